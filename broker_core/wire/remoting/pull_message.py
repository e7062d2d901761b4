"""PULL_MESSAGE and its answer, for readers that are members of no group.

    consumerGroup   topic   queueId   queueOffset   maxMsgNums
    sysFlag                 4 alone: the subscription is here, commit nothing, do not wait
    commitOffset            0       suspendTimeoutMillis   0
    subscription            "*", "TagA || TagB" or an SQL92 expression
    expressionType          TAG or SQL92
    subVersion              0       bname   the broker's name

The answer has nextBeginOffset, minOffset, maxOffset and suggestWhichBrokerId, whatever its code:

    SUCCESS                  body: records, as in the commit log
    PULL_NOT_FOUND           nothing at queueOffset yet
    PULL_RETRY_IMMEDIATELY   nothing matched up to nextBeginOffset, or messages there have expired
    PULL_OFFSET_MOVED        queueOffset is outside of [minOffset, maxOffset]

A broker grants 32 messages or 256 KiB a pull by default, whatever maxMsgNums says. The group is
only a name, which must be allowed to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker_core.filter.pipeline import MessageFilter
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import (
    Body,
    Command,
    Request,
    RequestCode,
    SharedFields,
)
from broker_core.wire.remoting.frame import share

_SUBSCRIPTION_INSIDE = 4
_EVERYTHING = "*"


@dataclass(frozen=True)
class SubscriptionData:
    """The expression by which a broker filters, and its language."""

    expression: str = _EVERYTHING
    kind: str = "TAG"

    @classmethod
    def of(cls, message_filter: MessageFilter | None) -> SubscriptionData:
        """Return the part of a filter that a broker evaluates: tags if there are any, else SQL."""
        if message_filter is None:
            return cls()
        if message_filter.tags is not None and not message_filter.tags.is_everything:
            return cls(message_filter.tags.text)
        if message_filter.sql is not None:
            return cls(message_filter.sql.text, "SQL92")
        return cls()

    @property
    def is_everything(self) -> bool:
        """True if the broker drops nothing."""
        return self.kind == "TAG" and self.expression == _EVERYTHING


def pull_fields(queue: QueueRef, group: str, subscription: SubscriptionData) -> SharedFields:
    """Return the fields that all pulls of one queue share."""
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "sysFlag": str(_SUBSCRIPTION_INSIDE),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": subscription.expression,
        "subVersion": "0",
        "expressionType": subscription.kind,
        "bname": queue.broker_name,
    }
    return share(fields)


def pull_request(fields: SharedFields, start: int, count: int) -> Request:
    """Return the request for at most `count` messages from `start` on."""
    ext = {"queueOffset": str(start), "maxMsgNums": str(count)}
    return Request(RequestCode.PULL_MESSAGE, ext, shared=fields)


class PullAnswer(NamedTuple):
    """An answer to a pull.

    Messages up to `next_offset` have been looked at; the queue holds [minimum, maximum). `body`
    holds records if `code` is SUCCESS. The next pull should go to the replica `suggested_id`.
    """

    code: int
    next_offset: int
    minimum: int
    maximum: int
    suggested_id: int
    body: Body


def parse_pull_answer(answer: Command) -> PullAnswer:
    """Return the answer's fields; ValueError or KeyError if they are not there."""
    ext = answer.ext
    return PullAnswer(
        answer.code,
        int(ext["nextBeginOffset"]),
        int(ext["minOffset"]),
        int(ext["maxOffset"]),
        int(ext.get("suggestWhichBrokerId", "0")),
        answer.body,
    )
