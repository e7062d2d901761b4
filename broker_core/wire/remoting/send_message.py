"""SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: the header, the body of a batch, and the answer.

The header's fields have names of one letter:

    a producer group    b topic          c template topic   d its queues     e queue id
    f system flags      g born, ms       h flag             i properties     j reconsume times
    k unit mode         m is a batch     n broker name

The body of a single message is the message's own. The body of a batch is one entry after another,
without a count or an outer header; integers are big-endian:

    size              i32   22 + body + properties
    zero              i32   where a record has its magic
    zero              i32   where a record has its checksum
    flag              i32
    bodyLength        i32
    body
    propertiesLength  i16
    properties

System flags and birth stand in the header and hold for all entries, so only messages that agree in
them may share a request. A batch must not have properties in its header: brokers up to 5.3.3 add
them to every entry.

The answer's fields: queueId, queueOffset (of the first message), msgId (offset ids, joined by
commas) and transactionId (of a half message).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.spans import regular_offsets, spans_of
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import (
    TEMPLATE_TOPIC,
    Command,
    Request,
    RequestCode,
    ResponseCode,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENTRY_OVERHEAD_BYTES = 22
STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""The message is in the master's log; all but the first say that no more is known."""

_ENTRY_HEAD = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_length", ">i4")]
)
_OFFSET_DIGITS = 16


def send_request(
    queue: QueueRef,
    group: str,
    body: bytes,
    *,
    sys_flag: int,
    born_timestamp_ms: int,
    flag: int = 0,
    properties: str | None = None,
) -> Request:
    """Return the request that stores messages in a queue.

    With `properties`, if empty ones, `body` is a single message's; without, it is the entries of a
    batch.
    """
    is_batch = properties is None
    ext = {
        "a": group,
        "b": queue.topic,
        "c": TEMPLATE_TOPIC,
        "d": "4",
        "e": str(queue.queue_id),
        "f": str(sys_flag),
        "g": str(born_timestamp_ms),
        "h": str(flag),
        "j": "0",
        "k": "false",
        "m": "true" if is_batch else "false",
        "n": queue.broker_name,
    }
    if properties:  # Servers take an empty field for a missing one, and signatures must agree.
        ext["i"] = properties
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    return Request(code, ext, body)


def encode_entries(
    bodies: pa.Array, properties: pa.Array, flags: NDArray[np.int32] | int = 0
) -> tuple[memoryview, NDArray[np.int64]]:
    """Return the entries of messages in order, and their bounds (one more than messages)."""
    count = len(bodies)
    _, _, body_lengths = spans_of(bodies)
    _, _, properties_lengths = spans_of(properties)
    heads = np.zeros(count, dtype=_ENTRY_HEAD)
    sizes = ENTRY_OVERHEAD_BYTES + body_lengths + properties_lengths
    heads["size"] = sizes
    heads["flag"] = flags
    heads["body_length"] = body_lengths
    joined = pc.binary_join_element_wise(
        _fixed(heads.view(np.uint8), count, _ENTRY_HEAD.itemsize),
        bodies.cast(pa.binary()),
        _fixed(properties_lengths.astype(">i2").view(np.uint8), count, 2),
        properties.cast(pa.binary()),
        pa.scalar(b"", type=pa.binary()),
    )
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(sizes, out=bounds[1:])
    data, starts, _ = spans_of(joined)
    first = int(starts[0]) if count else 0
    return data.data[first : first + int(bounds[-1])], bounds


def _fixed(data: NDArray[np.uint8], count: int, width: int) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), count, [None, regular_offsets(count, width), pa.py_buffer(data)]
    )


class SendAnswer(NamedTuple):
    """Offsets of stored messages; `message_ids` are their offset ids, joined by commas."""

    queue_id: int
    queue_offset: int
    message_ids: str

    def physical_offsets(self, count: int) -> NDArray[np.int64]:
        """Return each message's offset in the log; ValueError if the ids do not say so."""
        return physical_offsets(self.message_ids, count)


def parse_send_answer(answer: Command) -> SendAnswer:
    """Return the answer's fields; ValueError or KeyError if they are not there."""
    ext = answer.ext
    return SendAnswer(int(ext["queueId"]), int(ext["queueOffset"]), ext["msgId"])


def physical_offsets(message_ids: str, count: int) -> NDArray[np.int64]:
    """Return the last 16 hex digits of each of `count` offset ids, all of one length, as numbers.

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
