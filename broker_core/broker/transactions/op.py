"""Op messages: which half messages are decided, one way or the other.

An op message is a record of RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag `d`, whose body lists offsets
of the half queue as decimal text, each followed by a comma:

    105,106,109,

Releases up to 5.0 wrote one number a message, without the comma; both are read. An op message does
not say whether the transaction was committed or rolled back, only that nobody need ask about it
any more: a commit has its visible copies in the same append.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.fields import locate
from broker_core.codec.message_batch import LOOPBACK, MessageBatch
from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import OP_TOPIC, TAGS, WAIT
from broker_core.codec.spans import gather_spans, spans_of
from broker_core.errors import CorruptRecordError
from broker_core.jit import arguments, kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.frames import FrameBatch

OP_QUEUE = 0
MAX_BODY_CHARS = 4096
"""RocketMQ's `transactionOpMsgMaxSize`: a body is full once it is this long."""

_PROPERTIES = format_properties({WAIT: "true", TAGS: "d"})
_COMMA = 0x2C
_ZERO = 0x30


def op_bodies(offsets: NDArray[np.int64]) -> pa.Array:
    """The bodies that list these half messages, in order.

    >>> op_bodies(np.array([105, 106])).to_pylist()
    [b'105,106,']
    """
    if not len(offsets):
        return pa.array([], type=pa.binary())
    text, ends = _listed(offsets)
    # A body ends with the number that makes it full.
    full = (ends - 1) // MAX_BODY_CHARS
    last = np.flatnonzero(np.diff(full, append=full[-1] + 1))
    bounds = np.concatenate([[0], ends[last]]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(last), [None, pa.py_buffer(bounds), pa.py_buffer(text)]
    )


def _listed(offsets: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Numbers as text, a comma behind each, and where they end."""
    if kernels.is_worth(len(offsets)):
        from broker_core.broker.transactions.op_kernels import format_numbers

        most = len(str(int(offsets.max()))) + 1
        text = np.empty(most * len(offsets), dtype=np.uint8)
        ends = np.empty(len(offsets), dtype=np.int64)
        used = format_numbers(arguments.longs(offsets), text, ends)
        return text[:used], ends
    texts = pc.binary_join_element_wise(
        pa.array(offsets).cast(pa.string()).cast(pa.binary()), pa.scalar(b","), pa.scalar(b"")
    )
    data, starts, lengths = spans_of(texts)
    return data[starts[0] :], starts + lengths - starts[0]


def op_messages(
    offsets: NDArray[np.int64], born_timestamp_ms: int, store_host: bytes = LOOPBACK
) -> MessageBatch:
    """The op messages that decide these half messages."""
    bodies = op_bodies(offsets)
    count = len(bodies)
    nowhere_else = np.zeros(count, dtype=np.int32)
    return MessageBatch(
        topics=(OP_TOPIC,),
        topic_codes=nowhere_else,
        queue_ids=nowhere_else + np.int32(OP_QUEUE),
        bodies=bodies,
        properties=pa.repeat(pa.scalar(_PROPERTIES, type=pa.binary()), count),
        born_timestamps=born_timestamp_ms,
        born_host=store_host,
        store_host=store_host,
    )


def listed_halves(frames: FrameBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(half offsets, the op offset that lists each) of a batch of op messages, in order.

    CorruptRecordError for a body that is no list of numbers.
    """
    fields = locate(frames)
    bodies = gather_spans(fields.bodies)
    data, starts, lengths = spans_of(bodies)
    text = data[int(starts[0]) : int(starts[-1] + lengths[-1])] if len(starts) else data[:0]
    ends = starts + lengths - (starts[0] if len(starts) else 0)
    is_digit = (text >= _ZERO) & (text <= _ZERO + 9)
    if not bool((is_digit | (text == _COMMA)).all()):
        row = int(np.searchsorted(ends, int((~(is_digit | (text == _COMMA))).argmax()), "right"))
        raise _damaged(frames, row)
    numbers, number_ends = _numbers(text, ends)
    rows = np.searchsorted(ends, number_ends, side="left")
    return numbers, frames.offsets[rows]


def _numbers(
    text: NDArray[np.uint8], body_ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every number of a text of digits and commas, and where it ends; bodies end numbers too."""
    if kernels.is_worth(len(text)):
        from broker_core.broker.transactions.op_kernels import parse_numbers

        values, ends = np.empty((2, len(text)), dtype=np.int64)
        count = parse_numbers(arguments.octets(text), arguments.longs(body_ends), values, ends)
        return values[:count], ends[:count]
    commas = np.flatnonzero(text == _COMMA)
    ends = np.concatenate([commas, body_ends])
    ends.sort(kind="stable")  # two sorted runs: merged
    is_new = np.ones(len(ends), dtype=np.bool_)
    np.not_equal(ends[1:], ends[:-1], out=is_new[1:])
    ends = ends[is_new]
    begins = np.concatenate([[0], ends[:-1]])
    is_after_comma = np.zeros(len(ends), dtype=np.bool_)
    is_after_comma[1:] = text[np.minimum(ends[:-1], len(text) - 1)] == _COMMA
    is_after_comma[1:] &= ends[:-1] < len(text)
    begins = begins + is_after_comma
    keep = ends > begins
    begins, ends = begins[keep], ends[keep]
    values = np.zeros(len(ends), dtype=np.int64)
    # One pass per digit: numbers of one queue have nearly the same length.
    for digit in range(int((ends - begins).max(initial=0))):
        has = begins + digit < ends
        places = begins[has] + digit
        values[has] = values[has] * 10 + (text[places].astype(np.int64) - _ZERO)
    return values, ends


def decided(batches: Iterable[FrameBatch]) -> NDArray[np.int64]:
    """All half messages that some op messages list, sorted, each once."""
    found = [listed_halves(batch)[0] for batch in batches if len(batch)]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


def _damaged(frames: FrameBatch, row: int) -> CorruptRecordError:
    place = int(frames.starts[row]) + (frames.origin or 0)
    message = (
        f"Op message {int(frames.offsets[row])} at physical offset {place} in "
        f"{frames.name or 'a received batch'} does not list half messages: its body is no list of "
        "numbers. Run `rocketmq-broker check` on the store."
    )
    return CorruptRecordError(message, frames.name, place)
