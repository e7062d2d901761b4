"""PULL_MESSAGE without being a member of a group: the subscription travels in each request.

sysFlag 4 alone means: the subscription is here, commit nothing, do not wait for messages. The group
is only a name, which must be allowed to read.
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
    """What the broker is to filter by. `is_everything`: it drops nothing."""

    expression: str = _EVERYTHING
    kind: str = "TAG"

    @classmethod
    def of(cls, message_filter: MessageFilter | None) -> SubscriptionData:
        """The part of a filter that a broker evaluates: the tags if there are any, else the SQL."""
        if message_filter is None:
            return cls()
        if message_filter.tags is not None and not message_filter.tags.is_everything:
            return cls(message_filter.tags.text)
        if message_filter.sql is not None:
            return cls(message_filter.sql.text, "SQL92")
        return cls()

    @property
    def is_everything(self) -> bool:
        """Whether the broker drops nothing."""
        return self.kind == "TAG" and self.expression == _EVERYTHING


def pull_fields(queue: QueueRef, group: str, subscription: SubscriptionData) -> SharedFields:
    """The fields that all pulls of one queue share."""
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
    """Ask for at most `count` messages from `start` on."""
    ext = {"queueOffset": str(start), "maxMsgNums": str(count)}
    return Request(RequestCode.PULL_MESSAGE, ext, shared=fields)


class PullAnswer(NamedTuple):
    """What a broker said: a code, records, and where the queue and the next messages are."""

    code: int
    next_offset: int
    minimum: int
    maximum: int
    suggested_id: int
    body: Body


def parse_pull_answer(answer: Command) -> PullAnswer:
    """The answer's fields; ValueError or KeyError if they are not there."""
    ext = answer.ext
    return PullAnswer(
        answer.code,
        int(ext["nextBeginOffset"]),
        int(ext["minOffset"]),
        int(ext["maxOffset"]),
        int(ext.get("suggestWhichBrokerId", "0")),
        answer.body,
    )
