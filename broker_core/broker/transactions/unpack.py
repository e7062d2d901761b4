"""What makes half messages visible: the records that they hold, ready to be appended.

A block holds many (half_blocks.py), any other half message is one (half_messages.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.transactions.half import read_halves
from broker_core.broker.transactions.half_blocks import BLOCK_BYTES
from broker_core.codec import layout
from broker_core.codec.decode import property_columns
from broker_core.codec.dispatch_request import topics_of
from broker_core.codec.encode import EncodedRecords, writable
from broker_core.codec.fields import RecordFields, locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.property_names import HALF_BLOCK
from broker_core.codec.record_copy import Destinations, store_time_at
from broker_core.codec.scan import chain
from broker_core.codec.spans import Spans, gather_spans, sliding
from broker_core.errors import CorruptRecordError
from broker_core.jit import arguments, kernels
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KEEP_FLAGS = ~TRANSACTION_MASK


@dataclass(frozen=True)
class Visible:
    """What makes prepared messages visible: records, where they go, and where they were prepared.

    `prepared_offsets` are places in the log, of half messages or of records inside blocks.
    """

    records: EncodedRecords
    route: Destinations
    properties_lengths: NDArray[np.int64]
    prepared_offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.route)

    def without(self, prepared_offsets: NDArray[np.int64]) -> Visible:
        """The same but for what was prepared at these places."""
        if not len(prepared_offsets):
            return self
        rows = np.flatnonzero(~np.isin(self.prepared_offsets, prepared_offsets))
        if len(rows) == len(self):
            return self
        records, route = self.records, self.route
        sizes = records.sizes[rows]
        at = records.store_timestamp_at
        left = EncodedRecords(
            writable(
                gather_spans(Spans(records.buffer, records.starts[rows], sizes.astype(np.int64)))
            ),
            np.cumsum(sizes, dtype=np.int64) - sizes,
            sizes,
            at if isinstance(at, int) else at[rows],
        )
        return Visible(
            left,
            Destinations(route.topics, route.topic_codes[rows], route.queue_ids[rows]),
            self.properties_lengths[rows],
            self.prepared_offsets[rows],
        )

    def batch(self) -> Batch:
        """The records to append."""
        return Batch.of_located(self.records, self.route, self.properties_lengths, SysFlag.COMMIT)


def visible(frames: FrameBatch) -> Iterator[Visible]:
    """What makes half messages visible, blocks and others, in their order.

    CorruptRecordError for what is no half message, or no block though it says so.
    """
    counts = _counts(frames)
    is_block = counts > 0
    changes = np.flatnonzero(np.diff(is_block)) + 1
    bounds = [0, *changes.tolist(), len(frames)]
    for start, stop in pairwise(bounds):
        some = frames.slice(start, stop)
        yield _of_blocks(some, counts[start:stop]) if is_block[start] else _of_singles(some)


def _counts(frames: FrameBatch) -> NDArray[np.int64]:
    """How many messages each half message holds; 0 for one that is no block."""
    said = property_columns(frames, [HALF_BLOCK])[HALF_BLOCK]
    if said.null_count == len(said):
        return np.zeros(len(frames), dtype=np.int64)
    texts = [text or "0" for text in said.to_pylist()]
    if not all(text.isdecimal() and len(text) <= len(str(BLOCK_BYTES)) for text in texts):
        raise _no_block(frames, f"a {HALF_BLOCK} of them is no number")
    return np.array(texts, dtype=np.int64)


def _of_singles(frames: FrameBatch) -> Visible:
    halves = read_halves(frames)
    return Visible(
        halves.commit(), halves.route, halves.properties.lengths, halves.physical_offsets
    )


def _of_blocks(frames: FrameBatch, counts: NDArray[np.int64]) -> Visible:
    blocks = locate(frames)
    if kernels.is_worth(min(int(counts.sum()), frames.size_bytes // layout.MIN_RECORD_BYTES)):
        unpacked = _unpacked(blocks, counts)
        if unpacked is not None:
            return unpacked
    places = map(slice, blocks.bodies.starts.tolist(), blocks.bodies.ends.tolist())
    data = np.concatenate([frames.buffer[place] for place in places])
    bounds = np.concatenate([[0], np.cumsum(blocks.bodies.lengths)])
    starts, sizes, end, _, detail = chain(data, 0, len(data))
    firsts = np.searchsorted(starts, bounds)
    if end != len(data):
        raise _no_block(frames, detail or f"{len(data) - end} bytes are left over")
    if not np.array_equal(np.diff(firsts), counts) or (starts[firsts[:-1]] != bounds[:-1]).any():
        raise _no_block(frames, "they do not hold as many records as they say")
    nowhere = np.zeros(len(starts), dtype=np.int64)
    fields = locate(FrameBatch(data, starts, sizes, nowhere, name=_name(frames)))
    prepared = starts + np.repeat(_body_places(blocks) - bounds[:-1], counts)
    flags = (fields.sys_flags & np.int32(_KEEP_FLAGS)) | np.int32(SysFlag.COMMIT)
    sliding(data, ">i4")[starts + layout.SYS_FLAG] = flags
    at = fields.bodies.starts - (layout.BODY - layout.PREPARED_OFFSET)
    sliding(data, ">i8")[at] = prepared
    return Visible(
        EncodedRecords(data, starts, sizes, store_time_at(fields)),
        Destinations(*topics_of(fields), fields.integer("queueId").astype(np.int32)),
        fields.properties.lengths,
        prepared,
    )


def _unpacked(blocks: RecordFields, counts: NDArray[np.int64]) -> Visible | None:
    """The same by a kernel; None if a record is beyond it."""
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
            arguments.longs(_body_places(blocks)),
            arguments.longs(counts),
        ),
        (int(_KEEP_FLAGS), int(SysFlag.COMMIT)),
        data,
        (starts, lengths, prepared),
        (sizes, queue_ids),
    )
    if topic_bytes < 0:
        return None
    end = int(sizes[0]) - int(lengths[0]) - 2
    topic = data[end - topic_bytes : end].tobytes().decode("utf-8", "replace")
    route = Destinations((topic,), np.zeros(count, dtype=np.int32), queue_ids)
    return Visible(
        EncodedRecords(data, starts, sizes, layout.STORE_TIMESTAMP), route, lengths, prepared
    )


def _body_places(blocks: RecordFields) -> NDArray[np.int64]:
    """Where in the log the bodies of blocks begin."""
    places = blocks.integer("physicalOffset") + blocks.bodies.starts - blocks.frames.starts
    return places.astype(np.int64)


def _name(frames: FrameBatch) -> str:
    return f"half blocks of {frames.name or 'a received batch'}"


def _no_block(frames: FrameBatch, what: str) -> CorruptRecordError:
    place = int(frames.starts[0]) + (frames.origin or 0)
    message = (
        f"The half messages from physical offset {place} on in {frames.name or 'a received batch'} "
        f"are no blocks of records: {what}. Run `rocketmq-broker check` on the store."
    )
    return CorruptRecordError(message, frames.name, place)
