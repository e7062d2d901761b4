"""SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: header fields by one letter each, and the answer.

    a producer group    b topic          c template topic   d its queues     e queue id
    f system flags      g born, ms       h flag             i properties     j reconsume times
    k unit mode         m is a batch     n broker name

A batch must not have properties in its header: brokers up to 5.3.3 add them to every entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.clients.cluster.send.plan import SendUnit
from broker_core.errors import IllegalMessageError
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import Command, Request, RequestCode, ResponseCode

if TYPE_CHECKING:
    from numpy.typing import NDArray

STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""The message is in the master's log; all but the first say that no more is known."""

_TEMPLATE = "TBW102"
_OFFSET_DIGITS = 16


def send_request(piece: SendUnit, queue: QueueRef, group: str) -> Request:
    """The request for a piece that goes to a queue."""
    ext = {
        "a": group,
        "b": queue.topic,
        "c": _TEMPLATE,
        "d": "4",
        "e": str(queue.queue_id),
        "f": str(piece.sys_flag),
        "g": str(piece.born_timestamp_ms),
        "h": str(piece.flag),
        "j": "0",
        "k": "false",
        "m": "false" if piece.is_single else "true",
        "n": queue.broker_name,
    }
    if piece.properties is None:
        return Request(RequestCode.SEND_BATCH_MESSAGE, ext, piece.body)
    if piece.properties:
        ext["i"] = _properties_text(piece)
    return Request(RequestCode.SEND_MESSAGE_V2, ext, piece.body)


def _properties_text(piece: SendUnit) -> str:
    assert piece.properties is not None, "a single message has them"
    try:
        return piece.properties.decode()
    except UnicodeDecodeError as error:
        raise IllegalMessageError(
            f"Message {int(piece.rows[0])} of this batch for topic '{piece.topic}' has properties"
            f" that are not UTF-8. Nothing of it was sent."
        ) from error


class SendAnswer(NamedTuple):
    """Where a piece was stored. `transaction_id` is a half message's."""

    queue_id: int
    queue_offset: int
    message_ids: str
    transaction_id: str

    def physical_offsets(self, count: int) -> NDArray[np.int64]:
        """Where each message lies in the log; ValueError if the ids do not say so."""
        return physical_offsets(self.message_ids, count)


def parse_send_answer(answer: Command) -> SendAnswer:
    """The answer's fields; ValueError or KeyError if they are not there."""
    ext = answer.ext
    return SendAnswer(
        int(ext["queueId"]), int(ext["queueOffset"]), ext["msgId"], ext.get("transactionId", "")
    )


def physical_offsets(message_ids: str, count: int) -> NDArray[np.int64]:
    """The last 16 hex digits of each offset id in a comma list of `count` ids of one length.

    >>> physical_offsets("7F00000100002A9F00000000000000FF,7F00000100002A9F0000000000000100", 2)
    array([255, 256])
    """
    text = np.frombuffer((message_ids + ",").encode(), dtype=np.uint8)
    if message_ids.count(",") != count - 1 or len(text) % count:
        raise ValueError(f"{message_ids[:80]!r} is no list of {count} message ids")
    rows = text.reshape(count, -1)
    if rows.shape[1] <= _OFFSET_DIGITS or not bool((rows[:, -1] == ord(",")).all()):
        raise ValueError(f"{message_ids[:80]!r} is no list of message ids of one length")
    digits = rows[:, -1 - _OFFSET_DIGITS : -1]
    raw = bytes.fromhex(digits.tobytes().decode())
    return np.frombuffer(raw, dtype=">i8").astype(np.int64)
