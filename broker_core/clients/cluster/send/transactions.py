"""Transactions of a cluster: half messages, and the decision on each.

A half message is stored and seen by nobody until END_TRANSACTION commits it. A broker does not
remember what it has committed: the same decision sent twice delivers twice. So a cluster's
transactions make each message visible atomically, and at least once; undecided halves stay
invisible, and brokers give up asking about them after 15 rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.clients.cluster.client_instance import ClientInstance, asked
from broker_core.clients.cluster.send.broker_share import SendReceipt
from broker_core.codec.encode import MessageBatch
from broker_core.codec.layout import SysFlag
from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import PRODUCER_GROUP, TRANSACTION_PREPARED
from broker_core.errors import (
    BrokerError,
    IllegalTransitionError,
    UnavailableError,
    UnknownTransactionError,
)
from broker_core.retry import Backoff, Deadline
from broker_core.wire.remoting.command import Command, Request, RequestCode, ResponseCode
from broker_core.wire.remoting.frame import RemotingProtocolError
from broker_core.wire.remoting.status import refusal

_PREPARED = int(SysFlag.PREPARED)
_COMMIT = 8
_ROLLBACK = 12
_IN_FLIGHT = 64


class ClusterHalf(NamedTuple):
    """Where a half message lies: all that is needed to decide on it, from any process."""

    broker_name: str
    topic: str
    group: str
    queue_offset: int
    physical_offset: int
    transaction_id: str


def as_halves(messages: MessageBatch, group: str) -> MessageBatch:
    """The messages, marked as halves of a producer group."""
    marks = format_properties({TRANSACTION_PREPARED: "true", PRODUCER_GROUP: group})
    text = messages.property_texts
    ended = pc.if_else(
        pc.match_substring_regex(text, r"(^|\x02)$"), pa.scalar(b""), pa.scalar(b"\x02")
    )
    joined = pc.binary_join_element_wise(text, ended, pa.scalar(marks), pa.scalar(b""))
    return replace(messages, properties=joined, sys_flags=messages.sys_flags | _PREPARED)


def half_message(receipt: SendReceipt, group: str) -> ClusterHalf:
    """What a broker's acknowledgement says of a half message."""
    try:
        (physical_offset,) = receipt.answer.physical_offsets(1).tolist()
    except ValueError as error:
        text = f"Broker {receipt.queue.broker_name} acknowledged a half message oddly ({error})."
        raise RemotingProtocolError(text) from error
    return ClusterHalf(
        receipt.queue.broker_name,
        receipt.queue.topic,
        group,
        receipt.answer.queue_offset,
        int(physical_offset),
        receipt.answer.transaction_id,
    )


class ClusterTransactions:
    """Decisions on half messages."""

    def __init__(self, directory: ClientInstance) -> None:
        self._directory = directory

    def end(self, halves: Sequence[ClusterHalf], *, is_commit: bool) -> None:
        """Commit or roll back half messages, in order on each broker.

        A decision whose answer is lost is sent again, which may deliver the message twice.

        Raises:
            UnknownTransactionError: A half is not there, or belongs to another group.
            UnavailableError: A broker could not be asked within `send_timeout_ms`.
        """
        by_broker: dict[str, list[ClusterHalf]] = defaultdict(list)
        for half in halves:
            by_broker[half.broker_name].append(half)
        for broker_name in sorted(by_broker):
            self._end_on(broker_name, by_broker[broker_name], is_commit)

    def _end_on(self, broker_name: str, halves: list[ClusterHalf], is_commit: bool) -> None:
        patience_ms = self._directory.settings.send_timeout_ms
        patience, backoff = Deadline.after_ms(patience_ms), Backoff()
        left = halves
        while left:
            try:
                done = self._end_some(broker_name, left[:_IN_FLIGHT], is_commit)
            except RemotingProtocolError:
                raise
            except UnavailableError:
                if patience.has_passed:
                    raise
                self._directory.routes.expire(left[0].topic)
                backoff.pause(patience)
            else:
                left = left[done:]
                patience = Deadline.after_ms(patience_ms)
                backoff.reset()

    def _end_some(self, broker_name: str, halves: list[ClusterHalf], is_commit: bool) -> int:
        """Decide on a few halves at once; how many of the first are decided."""
        server = self._directory.routes.find(halves[0].topic).broker(broker_name).master
        connection = self._directory.connections.to(server)
        requests = [_end_request(half, is_commit) for half in halves]
        for done, answer in enumerate(connection.call_all(requests)):
            error = _failure(answer, halves[done], asked(broker_name, server))
            if error is not None:
                if done and error.retryable:
                    return done
                raise error
        return len(halves)


def _end_request(half: ClusterHalf, is_commit: bool) -> Request:
    ext = {
        "producerGroup": half.group,
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.physical_offset),
        "commitOrRollback": str(_COMMIT if is_commit else _ROLLBACK),
        "fromTransactionCheck": "false",
        "msgId": half.transaction_id,
        "transactionId": half.transaction_id,
        "topic": half.topic,
        "bname": half.broker_name,
    }
    return Request(
        RequestCode.END_TRANSACTION, {name: value for name, value in ext.items() if value}
    )


def _failure(answer: Command, half: ClusterHalf, who: str) -> BrokerError | None:
    if answer.code == ResponseCode.SUCCESS:
        return None
    error = refusal(answer, who)
    where = f"The half message at {half.physical_offset} for topic '{half.topic}':"
    if answer.code == ResponseCode.SYSTEM_ERROR and type(error) is UnavailableError:
        return UnknownTransactionError(f"{where} {error}")
    if answer.code == ResponseCode.ILLEGAL_OPERATION:
        return IllegalTransitionError(f"{where} {error}")
    return error
