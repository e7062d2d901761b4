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

import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.broker.transactions.half import HALF_QUEUE
from broker_core.codec.fields import locate
from broker_core.codec.message_batch import LOOPBACK, MessageBatch
from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import HALF_TOPIC, OP_TOPIC, TAGS, WAIT
from broker_core.codec.spans import gather_spans, spans_of
from broker_core.errors import OffsetRangeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.frames import FrameBatch
    from broker_core.store.reader import StoreReader

OP_QUEUE = 0
MAX_BODY_CHARS = 4096
"""RocketMQ's `transactionOpMsgMaxSize`: a body is full once it is this long."""

_PROPERTIES = format_properties({WAIT: "true", TAGS: "d"})
_NUMBER = r"^[0-9]{1,18}$"
"""Of 18 digits at most: a number that fits an offset, whatever they are."""
log = logging.getLogger(__name__)


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
    """The half messages from `first` on that op messages from `since` on settle. Not thread-safe.

    Both numbers are the broker's own, never a client's: where check-back came to in the two queues
    (check_back_plan.CheckBackProgress), or what a decision in the log says. All half messages
    before `first` count as settled: check-back, ours or another broker's, has passed them. A look
    costs what was settled since the last one; a half message takes one byte of memory.
    """

    def __init__(self, reader: StoreReader, since: int, first: int = 0) -> None:
        self._reader = reader
        self.since = since
        self.first = first
        self._end = since
        self._flags = np.zeros(0, dtype=np.bool_)
        self.refresh()

    def refresh(self) -> None:
        """Read the op messages that came since the last look."""
        start, end = self._reader.queue_range(OP_TOPIC, OP_QUEUE)
        if end <= self._end:
            return
        for frames in self._reader.frames(OP_TOPIC, OP_QUEUE, max(start, self._end), end):
            if len(frames):
                self._note(settled_by(self._reader, frames)[0])
        self._end = end

    def add(self, offsets: NDArray[np.int64], op_count: int) -> None:
        """Take note of half messages that the caller settled itself, with `op_count` op messages.

        Only right behind an append under whose lock `refresh` was called: then they are the next.
        """
        self._note(offsets)
        self._end += op_count

    def are_settled(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which of these half messages are settled, as of the last look."""
        rows = offsets - self.first
        settled = rows < 0
        inside = np.flatnonzero((rows >= 0) & (rows < len(self._flags)))
        settled[inside] = self._flags[rows[inside]]
        return settled

    def _note(self, offsets: NDArray[np.int64]) -> None:
        rows = offsets[offsets >= self.first] - self.first
        if not len(rows):
            return
        room = int(rows.max()) + 1
        if room > len(self._flags):
            flags = np.zeros(max(room, 2 * len(self._flags)), dtype=np.bool_)
            flags[: len(self._flags)] = self._flags
            self._flags = flags
        self._flags[rows] = True


def settled_by(
    reader: StoreReader, frames: FrameBatch
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (half offsets, the op offset that lists each) as far as op messages are believed.

    One settles what lay in the half queue before it did, nothing later. So an odd record (of an
    older release, or another broker) can't settle half messages that are still to come.
    """
    halves, ops = listed_halves(frames)
    rows = np.searchsorted(frames.offsets, ops)
    try:
        is_later = _are_later(reader, halves, frames.starts[rows] + (frames.origin or 0))
    except OffsetRangeError:
        # Some were just deleted with the log; those are no longer looked at.
        return settled_by(reader, frames)
    if is_later.any():
        _tell(frames, np.unique(rows[is_later]), "half_messages_not_there_yet")
    return halves[~is_later], ops[~is_later]


def _are_later(
    reader: StoreReader, halves: NDArray[np.int64], op_places: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell which half messages came behind an op message, given its place in the log for each."""
    start, end = reader.queue_range(HALF_TOPIC, HALF_QUEUE)
    is_later = halves >= end
    # What was deleted from the queue was there before whatever is left of the log.
    inside = np.flatnonzero((halves >= start) & ~is_later)
    if len(inside):
        first, last = int(halves[inside].min()), int(halves[inside].max())
        places = reader.entries(HALF_TOPIC, HALF_QUEUE, first, last + 1)["physical_offset"]
        is_later[inside] = places[halves[inside] - first] > op_places[inside]
    return is_later


def listed_halves(frames: FrameBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (half offsets, the op offset that lists each) of a batch of op messages, in order.

    A message whose body is no list of numbers settles nothing: it is passed over, with a line in
    the log, so that a record that should not be here hurts no one.
    """
    fields = locate(frames)
    bodies = gather_spans(fields.bodies)
    lists = pc.split_pattern(bodies, b",")
    texts, rows = lists.flatten(), pc.list_parent_indices(lists)
    # What follows the last comma of a body is empty, and so is what lies between two of them.
    is_some = pc.greater(pc.binary_length(texts), 0)
    texts, rows = texts.filter(is_some), rows.filter(is_some)
    is_number = pc.match_substring_regex(texts, _NUMBER)
    if not pc.all(is_number, min_count=0).as_py():
        odd = pc.unique(rows.filter(pc.invert(is_number)))
        _tell(frames, odd.to_numpy(), "no_numbers")
        is_sound = pc.invert(pc.is_in(rows, odd))
        texts, rows = texts.filter(is_sound), rows.filter(is_sound)
    numbers = texts.cast(pa.string()).cast(pa.int64())
    return numbers.to_numpy(), frames.offsets[rows.to_numpy()]


def _tell(frames: FrameBatch, rows: NDArray[np.int64], reason: str) -> None:
    """Log op messages that make no sense, the first of them by its place."""
    first = int(rows[0])
    log.warning(
        "event=op_messages_ignored count=%d first_offset=%d physical_offset=%d reason=%s",
        len(rows),
        int(frames.offsets[first]),
        int(frames.starts[first]) + (frames.origin or 0),
        reason,
    )
