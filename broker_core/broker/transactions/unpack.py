"""Unpacking half messages: the visible copies of the messages that they hold, ready to append.

A block holds many messages (half_blocks.py), any other half message is one (half.py). A copy goes
to the message's own topic and queue, has transaction bits 0x8, and carries in
PREPAREDTRANSACTIONOFFSET the physical offset at which the message was prepared: that of its half
message, or of its record inside a block. It is unique, which is how a copy that a
loss of power left without its op message is known, together with its unique key (settle.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.broker.transactions.half import read_halves
from broker_core.broker.transactions.half_blocks import BLOCK_BYTES
from broker_core.codec import layout
from broker_core.codec.decode import property_columns
from broker_core.codec.dispatch_request import topics_of
from broker_core.codec.encode import EncodedRecords, writable
from broker_core.codec.fields import RecordFields, locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.message_batch import Destinations
from broker_core.codec.properties.search import find_values
from broker_core.codec.property_names import HALF_BLOCK, REAL_TOPIC, SCHEDULE_TOPIC, UNIQ_KEY
from broker_core.codec.record_copy import store_time_at
from broker_core.codec.scan import chain
from broker_core.codec.spans import Spans, gather_spans, sliding
from broker_core.errors import CorruptRecordError
from broker_core.jit import arguments, availability
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KEEP_FLAGS = ~TRANSACTION_MASK


@dataclass(frozen=True)
class VisibleCopies:
    """Copies that make prepared messages visible: records, their destinations, their origins.

    `prepared_offsets` are the physical offsets of half messages, or of records inside blocks.
    """

    records: EncodedRecords
    destinations: Destinations
    properties_lengths: NDArray[np.int64]
    prepared_offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.destinations)

    def without(self, prepared_offsets: NDArray[np.int64]) -> VisibleCopies:
        """Return the copies except of what was prepared at these physical offsets."""
        if not len(prepared_offsets):
            return self
        rows = np.flatnonzero(~np.isin(self.prepared_offsets, prepared_offsets))
        return self if len(rows) == len(self) else self.select(rows)

    def select(self, rows: NDArray[np.intp]) -> VisibleCopies:
        """Return some of the copies, in the order of the rows."""
        records, to = self.records, self.destinations
        sizes = records.sizes[rows]
        at = records.store_timestamp_at
        kept = Spans(records.buffer, records.starts[rows], sizes.astype(np.int64))
        left = EncodedRecords(
            writable(gather_spans(kept)),
            np.cumsum(sizes, dtype=np.int64) - sizes,
            sizes,
            at if isinstance(at, int) else at[rows],
        )
        return VisibleCopies(
            left,
            Destinations(to.topics, to.topic_codes[rows], to.queue_ids[rows]),
            self.properties_lengths[rows],
            self.prepared_offsets[rows],
        )

    def names(self) -> pa.Array:
        """Return what each copy is known by (`names_of`)."""
        records, lengths = self.records, self.properties_lengths.astype(np.int64)
        starts = records.starts + records.sizes - lengths
        return names_of(self.prepared_offsets, Spans(records.buffer, starts, lengths))

    def in_queues(self, queue_ids: NDArray[np.int32]) -> VisibleCopies:
        """Return the copies for other queues of their topics; these are written over."""
        sliding(self.records.buffer, ">i4")[self.records.starts + layout.QUEUE_ID] = queue_ids
        return replace(self, destinations=replace(self.destinations, queue_ids=queue_ids))

    def batch(self) -> Batch:
        """Return the copies as a batch to append."""
        return Batch.of_located(
            self.records, self.destinations, self.properties_lengths, SysFlag.COMMIT
        )


def visible_copies(frames: FrameBatch) -> Iterator[VisibleCopies]:
    """Yield the visible copies of half messages, blocks and others, in their order.

    CorruptRecordError for what is no half message, or no block though it says so.
    """
    counts = _counts(frames)
    is_block = counts > 0
    # In runs of one kind, so that the order of half messages, which is a queue's order, is kept.
    changes = np.flatnonzero(np.diff(is_block)) + 1
    bounds = [0, *changes.tolist(), len(frames)]
    for start, stop in pairwise(bounds):
        some = frames.slice(start, stop)
        yield _of_blocks(some, counts[start:stop]) if is_block[start] else _of_singles(some)


def names_of(prepared_offsets: NDArray[np.int64], properties: Spans) -> pa.Array:
    """Return what visible copies are known by: their prepared offsets and their unique keys."""
    (keys,) = find_values(properties, [UNIQ_KEY])
    texts = pa.array(prepared_offsets).cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(texts, gather_spans(keys).cast(pa.binary()), b" ")


def topics_of_halves(frames: FrameBatch) -> set[str]:
    """Return the topics that half messages are for, of blocks those of every message they hold.

    Of delayed ones those that they are delivered to.
    """
    found: set[str] = set()
    for copies in visible_copies(frames):
        to = copies.destinations
        found |= {to.topics[code] for code in np.unique(to.topic_codes).tolist()}
        if SCHEDULE_TOPIC in found:
            found.remove(SCHEDULE_TOPIC)
            found |= _delayed_topics(copies)
    return found


def _delayed_topics(copies: VisibleCopies) -> set[str]:
    """Return where the delayed messages among copies are delivered to."""
    records, to = copies.records, copies.destinations
    is_delayed = np.array([topic == SCHEDULE_TOPIC for topic in to.topics])[to.topic_codes]
    rows = np.flatnonzero(is_delayed)
    lengths = copies.properties_lengths[rows].astype(np.int64)
    ends = records.starts[rows] + records.sizes[rows]
    (topics,) = find_values(Spans(records.buffer, ends - lengths, lengths), [REAL_TOPIC])
    texts = pc.unique(gather_spans(topics)).to_pylist()
    return {text.decode("utf-8", "replace") for text in texts}


def _counts(frames: FrameBatch) -> NDArray[np.int64]:
    """Return how many messages each half message holds; 0 for one that is no block."""
    said = property_columns(frames, [HALF_BLOCK])[HALF_BLOCK]
    if said.null_count == len(said):
        return np.zeros(len(frames), dtype=np.int64)
    texts = [text or "0" for text in said.to_pylist()]
    if not all(text.isdecimal() and len(text) <= len(str(BLOCK_BYTES)) for text in texts):
        raise _no_block(frames, f"a {HALF_BLOCK} of them is no number")
    return np.array(texts, dtype=np.int64)


def _of_singles(frames: FrameBatch) -> VisibleCopies:
    """Return the copies of half messages that hold one message each."""
    halves = read_halves(frames)
    return VisibleCopies(
        halves.commit(), halves.destinations, halves.properties.lengths, halves.physical_offsets
    )


def _of_blocks(frames: FrameBatch, counts: NDArray[np.int64]) -> VisibleCopies:
    """Return the copies of what blocks hold, by the kernel or its NumPy twin."""
    blocks = locate(frames)
    # A block may claim more records than its bytes can hold; only real ones make a kernel pay.
    if availability.is_worth(min(int(counts.sum()), frames.size_bytes // layout.MIN_RECORD_BYTES)):
        copies = _copies_compiled(blocks, counts)
        if copies is not None:
            return copies
    return _copies(blocks, counts)


def _copies(blocks: RecordFields, counts: NDArray[np.int64]) -> VisibleCopies:
    """Copy the records of blocks; the NumPy twin of `_copies_compiled`.

    It runs for few records, for those that the kernel does not take, and to say what is wrong
    with blocks that do not check.
    """
    frames = blocks.frames
    spans = map(slice, blocks.bodies.starts.tolist(), blocks.bodies.ends.tolist())
    data = np.concatenate([frames.buffer[span] for span in spans])
    # Bodies lie one behind the other in `data`; a record that crosses a bound shows in `firsts`.
    bounds = np.concatenate([[0], np.cumsum(blocks.bodies.lengths)])
    starts, sizes, end, _, detail = chain(data, 0, len(data))
    firsts = np.searchsorted(starts, bounds)
    if end != len(data):
        raise _no_block(frames, detail or f"{len(data) - end} bytes are left over")
    if not np.array_equal(np.diff(firsts), counts) or (starts[firsts[:-1]] != bounds[:-1]).any():
        raise _no_block(frames, "they do not hold as many records as they say")
    no_offsets = np.zeros(len(starts), dtype=np.int64)
    fields = locate(FrameBatch(data, starts, sizes, no_offsets, name=_name(frames)))
    prepared = starts + np.repeat(_body_offsets(blocks) - bounds[:-1], counts)
    # Only two fields differ from what was prepared; offsets and time are filled in by the append.
    flags = (fields.sys_flags & np.int32(_KEEP_FLAGS)) | np.int32(SysFlag.COMMIT)
    sliding(data, ">i4")[starts + layout.SYS_FLAG] = flags
    at = fields.bodies.starts - (layout.BODY - layout.PREPARED_OFFSET)
    sliding(data, ">i8")[at] = prepared
    return VisibleCopies(
        EncodedRecords(data, starts, sizes, store_time_at(fields)),
        Destinations(*topics_of(fields), fields.integer("queueId").astype(np.int32)),
        fields.properties.lengths,
        prepared,
    )


def _copies_compiled(blocks: RecordFields, counts: NDArray[np.int64]) -> VisibleCopies | None:
    """Copy the records of blocks by a kernel (unpack_kernels.py), the twin of `_copies`.

    None if one of them is not for the kernel.
    """
    from broker_core.broker.transactions.unpack_kernels import unpack_blocks

    count = int(counts.sum())
    data = np.empty(int(blocks.bodies.lengths.sum()), dtype=np.uint8)
    starts, lengths, prepared = (np.empty(count, dtype=np.int64) for _ in range(3))
    sizes, queue_ids = (np.empty(count, dtype=np.int32) for _ in range(2))
    topic_bytes = unpack_blocks(
        arguments.octets(blocks.data),
        (
            arguments.longs(blocks.bodies.starts),
            arguments.longs(blocks.bodies.lengths),
            arguments.longs(_body_offsets(blocks)),
            arguments.longs(counts),
        ),
        (int(_KEEP_FLAGS), int(SysFlag.COMMIT)),
        data,
        (starts, lengths, prepared),
        (sizes, queue_ids),
    )
    if topic_bytes < 0:
        return None
    # All records have one topic: that of the first lies before its properties and their length.
    end = int(sizes[0]) - int(lengths[0]) - 2
    topic = data[end - topic_bytes : end].tobytes().decode("utf-8", "replace")
    destinations = Destinations((topic,), np.zeros(count, dtype=np.int32), queue_ids)
    return VisibleCopies(
        EncodedRecords(data, starts, sizes, layout.STORE_TIMESTAMP), destinations, lengths, prepared
    )


def _body_offsets(blocks: RecordFields) -> NDArray[np.int64]:
    """Return the physical offsets at which the bodies of blocks begin."""
    offsets = blocks.integer("physicalOffset") + blocks.bodies.starts - blocks.frames.starts
    return offsets.astype(np.int64)


def _name(frames: FrameBatch) -> str:
    return f"half blocks of {frames.name or 'a received batch'}"


def _no_block(frames: FrameBatch, what: str) -> CorruptRecordError:
    first = int(frames.starts[0]) + (frames.origin or 0)
    message = (
        f"The half messages from physical offset {first} on in {frames.name or 'a received batch'} "
        f"are no blocks of records: {what}. Run `rocketmq-broker check` on the store."
    )
    return CorruptRecordError(message, frames.name, first)
