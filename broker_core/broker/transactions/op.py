"""Op messages: which half messages are settled, one way or the other.

An op message is a record of RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag `d`, whose body lists offsets
of the half queue as decimal text, each followed by a comma:

    105,106,109,

Releases up to 5.0 wrote one number a message, without the comma; both are read. An op message does
not say whether the transaction was committed or rolled back, only that check-back need not ask
about it any more: a commit has its visible copies in the same append (settle.py).

A half message is *settled* if an op message lists it, else it is *open*. (A batch is *decided* if
the journal has a decision for it: decision_records.py.)
"""

from __future__ import annotations

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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.frames import FrameBatch
    from broker_core.store.reader import StoreReader

OP_QUEUE = 0
MAX_BODY_CHARS = 4096
"""RocketMQ's `transactionOpMsgMaxSize`: a body is full once it is this long."""

_PROPERTIES = format_properties({WAIT: "true", TAGS: "d"})
_NUMBER = r"^[0-9]+$"
_MAX_OFFSET = (1 << 63) - 1


# Writing


def op_messages(
    offsets: NDArray[np.int64], born_timestamp_ms: int, store_host: bytes = LOOPBACK
) -> MessageBatch:
    """Return the op messages that settle these half messages."""
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


def op_bodies(offsets: NDArray[np.int64]) -> pa.Array:
    """Return the bodies that list these half messages, in order.

    >>> op_bodies(np.array([105, 106])).to_pylist()
    [b'105,106,']
    """
    if not len(offsets):
        return pa.array([], type=pa.binary())
    # A batch of a million messages is some hundred half blocks, so these lists are short. Lists
    # of 100,000 (stores from before half blocks) take 10 ms to write and 17 ms to read this way,
    # compiled loops took 4 ms each.
    texts = pc.binary_join_element_wise(
        pa.array(offsets).cast(pa.string()).cast(pa.binary()), pa.scalar(b","), pa.scalar(b"")
    )
    data, starts, lengths = spans_of(texts)
    ends = starts + lengths - starts[0]
    # A body ends with the number that makes it full.
    full = (ends - 1) // MAX_BODY_CHARS
    last = np.flatnonzero(np.diff(full, append=full[-1] + 1))
    bounds = np.concatenate([[0], ends[last]]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(last), [None, pa.py_buffer(bounds), pa.py_buffer(data[starts[0] :])]
    )


# Reading


class SettledHalves:
    """The half messages that op messages from `since` on have settled. Not thread-safe.

    `since` is an offset of the op queue from before the half messages in question were prepared:
    nothing can have settled them earlier, so a look costs what was settled since, not what the
    store holds.
    """

    def __init__(self, reader: StoreReader, since: int) -> None:
        self._reader = reader
        self._end = since
        self._settled = np.zeros(0, dtype=np.int64)
        self.refresh()

    def refresh(self) -> None:
        """Read the op messages that came since the last look."""
        start, end = self._reader.queue_range(OP_TOPIC, OP_QUEUE)
        if end > self._end:
            ops = self._reader.frames(OP_TOPIC, OP_QUEUE, max(start, self._end), end)
            fresh = [listed_halves(frames)[0] for frames in ops if len(frames)]
            self._settled = np.unique(np.concatenate([self._settled, *fresh]))
            self._end = end

    def skip(self, count: int) -> None:
        """Pass over the next `count` op messages without reading them: they are the caller's own.

        Only right behind an append under whose lock `refresh` was called: then they are the next.
        """
        self._end += count

    def are_settled(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which of these half messages are settled, as of the last look."""
        if not len(self._settled):
            return np.zeros(len(offsets), dtype=np.bool_)
        return np.isin(offsets, self._settled)


def listed_halves(frames: FrameBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (half offsets, the op offset that lists each) of a batch of op messages, in order.

    CorruptRecordError for a body that is no list of numbers.
    """
    fields = locate(frames)
    bodies = gather_spans(fields.bodies)
    lists = pc.split_pattern(bodies, b",")
    texts, rows = lists.flatten(), pc.list_parent_indices(lists)
    # What follows the last comma of a body is empty, and so is what lies between two of them.
    is_some = pc.greater(pc.binary_length(texts), 0)
    texts, rows = texts.filter(is_some), rows.filter(is_some)
    if not pc.all(pc.match_substring_regex(texts, _NUMBER), min_count=0).as_py():
        raise _damaged(frames, bodies)
    try:
        numbers = texts.cast(pa.string()).cast(pa.int64())
    except pa.ArrowInvalid as error:  # a number too large for an offset
        raise _damaged(frames, bodies) from error
    return numbers.to_numpy(), frames.offsets[rows.to_numpy()]


def _damaged(frames: FrameBatch, bodies: pa.Array) -> CorruptRecordError:
    row = next(row for row, body in enumerate(bodies.to_pylist()) if not _is_list(body))
    physical_offset = int(frames.starts[row]) + (frames.origin or 0)
    message = (
        f"Op message {int(frames.offsets[row])} at physical offset {physical_offset} in "
        f"{frames.name or 'a received batch'} does not list half messages: its body is no list of "
        "numbers. Run `rocketmq-broker check` on the store."
    )
    return CorruptRecordError(message, frames.name, physical_offset)


def _is_list(body: bytes) -> bool:
    texts = [text for text in body.split(b",") if text]
    return all(text.isdigit() and int(text) <= _MAX_OFFSET for text in texts)
