"""Half blocks: half messages that hold many messages each.

What a sink prepares is decided as one, so its messages need not be told apart before. As many as
fit are the body of one half message (half_messages.py):

    BODY         records one after another, as `append` takes them: offsets and store time are 0
    properties   TRAN_MSG 01 true 02 PGROUP 01 g 02 UNIQ_KEY 01 k 02 HALF_BLOCK 01 n 02
                 REAL_TOPIC 01 t 02 REAL_QID 01 q 02

n is how many there are; group, key, topic and queue are those of the first. Their commit is that
body with offsets and time filled in, transaction bits 0x8, and as PREPAREDTRANSACTIONOFFSET the
place in the log where the record lies inside the block: no two have the same.

To a broker that knows nothing of this a block is one transaction that nobody answers for: Apache's
asks about it and gives it up, as any other. So a body is never larger than such a broker would put
back; a message that is too large for a block is a half message by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from broker_core.broker.half_messages import HALF_QUEUE, place_text, read_halves
from broker_core.codec import compiled, layout
from broker_core.codec.compiled import arguments
from broker_core.codec.copies import Route, copy_records, store_time_at
from broker_core.codec.decode import property_columns
from broker_core.codec.dispatch import topics_of
from broker_core.codec.fields import PropertyTexts, RecordFields, locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.gather import sliding, span_arrays, spans
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.names import (
    HALF_BLOCK,
    HALF_TOPIC,
    PRODUCER_GROUP,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from broker_core.codec.outgoing import Encoded, Outgoing, writable
from broker_core.codec.properties import ended, format_properties
from broker_core.codec.record import Record, decode_record
from broker_core.codec.scan import chain
from broker_core.errors import CorruptRecordError, IllegalMessageError
from broker_core.store.batch import Batch, known_part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.settings import StoreSettings

BLOCK_BYTES = 1 << 20
BLOCK_ROWS = 100_000
_BLOCKS_A_FILE = 4
_KEEP_FLAGS = ~TRANSACTION_MASK


def block_bytes(settings: StoreSettings) -> int:
    """The largest body of a block: a message that any broker takes, and a small part of a file."""
    in_file = settings.commit_log_file_bytes // _BLOCKS_A_FILE
    return min(BLOCK_BYTES, settings.max_message_bytes, in_file)


def as_blocks(messages: Batch, most_bytes: int, most_rows: int = BLOCK_ROWS) -> Batch:
    """Half messages that hold these, in their order: so many bytes of body, and messages, each.

    The records lie one behind the other, as those of `Batch.of_messages` do.
    """
    return Batch.join(
        [
            _blocks(part, bounds) if is_block else _single(part, bounds[0])
            for part in messages.parts
            for bounds, is_block in _runs(part, most_bytes, most_rows)
        ]
    )


def _runs(part: Encoded, most_bytes: int, most_rows: int) -> Iterator[tuple[list[int], bool]]:
    """Which rows go together: bounds of blocks that follow each other, or of one large message."""
    ends = part.starts + part.sizes
    bounds = [0]
    row = 0
    while row < len(part):
        limit = int(part.starts[row]) + most_bytes
        stop = min(row + most_rows, int(np.searchsorted(ends, limit, side="right")))
        if stop == row:
            if len(bounds) > 1:
                yield bounds, True
            yield [row, row + 1], False
            bounds = [row + 1]
        else:
            bounds.append(stop)
        row = max(row + 1, stop)
    if len(bounds) > 1:
        yield bounds, True


def _blocks(part: Encoded, bounds: list[int]) -> Batch:
    """Blocks of rows between these bounds."""
    count = len(bounds) - 1
    firsts = [_record(part, row) for row in bounds[:-1]]
    counts = np.diff(bounds).tolist()
    texts = [_properties(first, held) for first, held in zip(firsts, counts, strict=True)]
    places = [*part.starts[bounds[:-1]].tolist(), int(part.starts[bounds[-1] - 1])]
    places[-1] += int(part.sizes[bounds[-1] - 1])
    offsets = pa.py_buffer(np.array(places, dtype=np.int32))
    route = Route.to_queue(HALF_TOPIC, HALF_QUEUE, count)
    return Batch.of_messages(
        Outgoing(
            topics=route.topics,
            topic_codes=route.topic_codes,
            queue_ids=route.queue_ids,
            bodies=pa.Array.from_buffers(
                pa.binary(), count, [None, offsets, pa.py_buffer(part.buffer)]
            ),
            properties=pa.array(texts, type=pa.binary()),
            born_timestamps=np.array([first.born_timestamp for first in firsts], dtype=np.int64),
            born_host=firsts[0].born_host,
            store_host=firsts[0].store_host,
        )
    )


def _properties(first: Record, count: int) -> bytes:
    own = first.property_map
    kept = {name: own[name] for name in (PRODUCER_GROUP, UNIQ_KEY) if name in own}
    said = {TRANSACTION_PREPARED: "true", **kept, HALF_BLOCK: str(count)}
    return format_properties(said) + place_text(first.topic, first.queue_id)


def _record(part: Encoded, row: int) -> Record:
    start = int(part.starts[row])
    raw = part.buffer[start : start + int(part.sizes[row])]
    return decode_record(raw.tobytes(), verify=False)


def _single(part: Encoded, row: int) -> Batch:
    """A message too large for a block, as a half message."""
    only = slice(row, row + 1)
    nowhere = np.zeros(1, dtype=np.int64)
    fields = locate(FrameBatch(part.buffer, part.starts[only], part.sizes[only], nowhere))
    record = _record(part, row)
    text = ended(record.properties) + place_text(record.topic, record.queue_id)
    if len(text) > layout.MAX_PROPERTIES_BYTES:
        message = (
            f"Message {row} of this batch for topic '{record.topic}' has {len(text)} bytes of "
            f"properties as a half message, the limit is {layout.MAX_PROPERTIES_BYTES}. Nothing "
            "was written."
        )
        raise IllegalMessageError(message)
    texts = PropertyTexts(*span_arrays(pa.array([text], type=pa.binary())))
    route = Route.to_queue(HALF_TOPIC, HALF_QUEUE, 1)
    return Batch.of_copies(copy_records(fields, route, texts, transaction=0), route)


@dataclass(frozen=True)
class Visible:
    """What makes prepared messages visible: records, where they go, and where they were prepared.

    `prepared_offsets` are places in the log, of half messages or of records inside blocks.
    """

    records: Encoded
    route: Route
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
        left = Encoded(
            writable(spans(records.buffer, records.starts[rows], sizes.astype(np.int64))),
            np.cumsum(sizes, dtype=np.int64) - sizes,
            sizes,
            at if isinstance(at, int) else at[rows],
        )
        return Visible(
            left,
            Route(route.topics, route.topic_codes[rows], route.queue_ids[rows]),
            self.properties_lengths[rows],
            self.prepared_offsets[rows],
        )

    def batch(self) -> Batch:
        """The records to append."""
        part = known_part(self.records, self.route, self.properties_lengths, SysFlag.COMMIT)
        return Batch.of_copies(part, self.route)


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
    if compiled.is_worth(min(int(counts.sum()), frames.size_bytes // layout.MIN_RECORD_BYTES)):
        unpacked = _unpacked(blocks, counts)
        if unpacked is not None:
            return unpacked
    ends = blocks.body_starts + blocks.body_lengths
    places = map(slice, blocks.body_starts.tolist(), ends.tolist())
    data = np.concatenate([frames.buffer[place] for place in places])
    bounds = np.concatenate([[0], np.cumsum(blocks.body_lengths)])
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
    at = fields.body_starts - (layout.BODY - layout.PREPARED_OFFSET)
    sliding(data, ">i8")[at] = prepared
    return Visible(
        Encoded(data, starts, sizes, store_time_at(fields)),
        Route(*topics_of(fields), fields.integer("queueId").astype(np.int32)),
        fields.properties_lengths,
        prepared,
    )


def _unpacked(blocks: RecordFields, counts: NDArray[np.int64]) -> Visible | None:
    """The same by a kernel; None if a record is beyond it."""
    from broker_core.codec.compiled.unpacking import unpack_blocks

    count = int(counts.sum())
    data = np.empty(int(blocks.body_lengths.sum()), dtype=np.uint8)
    starts, lengths, prepared = (np.empty(count, dtype=np.int64) for _ in range(3))
    sizes, queue_ids = (np.empty(count, dtype=np.int32) for _ in range(2))
    topic_bytes = unpack_blocks(
        arguments.octets(blocks.data),
        (
            arguments.longs(blocks.body_starts),
            arguments.longs(blocks.body_lengths),
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
    route = Route((topic,), np.zeros(count, dtype=np.int32), queue_ids)
    return Visible(Encoded(data, starts, sizes, layout.STORE_TIMESTAMP), route, lengths, prepared)


def _body_places(blocks: RecordFields) -> NDArray[np.int64]:
    """Where in the log the bodies of blocks begin."""
    places = blocks.integer("physicalOffset") + blocks.body_starts - blocks.frames.starts
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
