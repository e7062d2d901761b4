"""Chunks: frame batches on the wire, records as they lie in the log behind a small fixed head.

One gRPC message is one chunk. Integers are little-endian, so that the arrays can be used as they
are; the records are RocketMQ's own, big-endian as always.

    0   magic         u32   "RMQF"
    4   version       u8    1
    5   flags         u8    see Flag
    6                 u16   0
    8   head_bytes    u32   H, a control message (broker.proto), may be 0
    12  count         u32   N records
    16  record_bytes  u64   R, of all records together
    24  first_offset  i64   LogicalOffset of the first record, if DENSE
    32  next_offset   i64   LogicalOffset after the last message that was examined
    40  head          H     and zeros up to a multiple of 8
        sizes         i32   N of them, and zeros up to a multiple of 8
        offsets       i64   N of them; absent if DENSE: first_offset, first_offset + 1, ...
        records       R     one after another

With the flag COLUMNS there are columns of N records in place of the records: sizes and offsets are
absent, and R is the length of one Arrow record batch (the encapsulated message of Arrow's IPC
format, without its schema). Half of a record is of no use to most readers: its fixed part, ids,
properties that are not read. A reader that names columns gets only those. A broker that does not
know the wish sends records, and the reader decodes them itself.

A chunk is checked as a whole before anything in it is used: its parts must add up to its length,
and the sizes to R. The contents of records are checked by the code that uses them. Columns are
checked in full when they are unpacked: offsets that lead out of their buffers would be followed by
the reader. Nothing of a chunk is stored. The version is raised by a change that older peers would
misread; unknown flags are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from broker_core.codec.decode import LargeBodiesError, decode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.schema import schema_of
from broker_core.codec.spans import Spans, gather_spans, starts_of
from broker_core.errors import RequestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.types import QueueRef

MAGIC = int.from_bytes(b"RMQF", "little")
VERSION = 1
HEAD = struct.Struct("<IBBHIIQqq")
"""The only statement of the fixed head in code."""
INFLATED_CHUNKS = 2
"""Chunks' worth of columns that are decoded at a time, and of bodies that are inflated."""

_FEW = 64

Raw = bytes | memoryview


class Flag(IntFlag):
    """Properties of a chunk."""

    DENSE = 1
    VERIFY = 2  # body checksums are to be checked by the reader
    MIXED = 4  # records of several queues, as a query finds them
    MORE = 8  # an append goes on in the next chunk
    COLUMNS = 16  # an Arrow record batch in place of records, for a reader that asked for columns


_KNOWN = int(Flag.DENSE | Flag.VERIFY | Flag.MIXED | Flag.MORE | Flag.COLUMNS)
_DENSE, _COLUMNS = int(Flag.DENSE), int(Flag.COLUMNS)
"""Plain numbers: those of an enum take ten times as long to combine."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One gRPC message, taken apart without copying anything."""

    flags: Flag
    head: Raw
    sizes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    records: NDArray[np.uint8]
    next_offset: int

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Positions in `records` at which each record begins."""
        return starts_of(self.sizes)

    def frames(self, queue: QueueRef | None, name: str) -> FrameBatch:
        """Return the records as a frame batch of `queue`, None for a mixture."""
        return FrameBatch(
            buffer=self.records,
            starts=self.starts,
            sizes=self.sizes,
            offsets=self.offsets,
            queue=None if self.flags & Flag.MIXED else queue,
            next_offset=self.next_offset,
            name=name,
            verify=bool(self.flags & Flag.VERIFY),
        )


def pack_frames(frames: FrameBatch) -> bytes:
    """Return one chunk with the records of a batch: their only copy on the way to the network."""
    flags = Flag.VERIFY if frames.verify else Flag(0)
    if frames.queue is None:
        flags |= Flag.MIXED
    return _pack(flags, b"", frames.sizes, frames.offsets, _contiguous(frames), frames.next_offset)


def join_packed(messages: Sequence[bytes]) -> bytes:
    """Return one chunk with the records of several, each of which begins where the last ends."""
    if len(messages) == 1:
        return messages[0]
    chunks = [unpack(message) for message in messages]
    return _pack(
        chunks[0].flags & ~Flag.DENSE,
        b"",
        np.concatenate([chunk.sizes for chunk in chunks]),
        np.concatenate([chunk.offsets for chunk in chunks]),
        b"".join(chunk.records.data for chunk in chunks),
        chunks[-1].next_offset,
    )


def pack_records(
    head: bytes, sizes: NDArray[np.int32], records: Raw, *, has_more: bool = False
) -> bytes:
    """Return one chunk of records on their way into the log, which have no offsets yet."""
    nowhere = np.zeros(len(sizes), dtype=np.int64)
    flags = Flag.DENSE | (Flag.MORE if has_more else Flag(0))
    return _pack(flags, head, sizes, nowhere, records, 0)


def unpack(message: bytes) -> Chunk:
    """Return a chunk's parts, uncopied; raise RequestError unless all of it adds up."""
    if len(message) < HEAD.size:
        raise _refused(f"it has {len(message)} bytes, a head alone takes {HEAD.size}")
    fixed = HEAD.unpack_from(message)
    magic, version, flags, _, head_bytes, count, record_bytes, first, next_offset = fixed
    if magic != MAGIC:
        raise _refused(f"it begins with {message[:4].hex()}, not {MAGIC.to_bytes(4, 'little')!r}")
    if version != VERSION or flags & ~_KNOWN:
        raise _refused(f"version {version} with flags {flags:#x} is unknown, {VERSION} is known")
    is_dense = bool(flags & _DENSE)
    sizes_at = HEAD.size + _padded(head_bytes)
    if flags & _COLUMNS:
        count = 0  # N counts rows of the Arrow batch, which has neither sizes nor offsets here
    offsets_at = sizes_at + _padded(4 * count)
    records_at = offsets_at + (0 if is_dense else 8 * count)
    # Python's integers do not overflow: lengths that a peer made up can't wrap to a valid sum.
    if records_at + record_bytes != len(message):
        raise _refused(f"its parts take {records_at + record_bytes} bytes, it has {len(message)}")
    sizes = np.frombuffer(message, dtype="<i4", count=count, offset=sizes_at)
    # Each of a few sizes is looked at by itself: a sum of arrays takes longer than a whole chunk of
    # one message.
    known = sizes.tolist() if count <= _FEW else None
    total = int(sizes.sum(dtype=np.int64)) if known is None else sum(known)
    least = int(sizes.min()) if known is None else min(known, default=1)
    if least <= 0 or (total != record_bytes and not flags & _COLUMNS):
        raise _refused(f"its {count} sizes do not add up to {record_bytes} bytes of records")
    return Chunk(
        flags=Flag(flags),
        head=memoryview(message)[HEAD.size : HEAD.size + head_bytes],
        sizes=sizes,
        offsets=np.arange(first, first + count, dtype=np.int64)
        if is_dense
        else np.frombuffer(message, dtype="<i8", count=count, offset=offsets_at),
        records=np.frombuffer(message, dtype=np.uint8, offset=records_at),
        next_offset=next_offset,
    )


def _pack(
    flags: Flag,
    head: bytes,
    sizes: NDArray[np.int32],
    offsets: NDArray[np.int64],
    records: Raw,
    next_offset: int,
) -> bytes:
    count = len(sizes)
    first = int(offsets[0]) if count else 0
    if flags & Flag.DENSE or not count or _is_dense(offsets):
        flags |= Flag.DENSE
        offsets = offsets[:0]
    fixed = HEAD.pack(MAGIC, VERSION, flags, 0, len(head), count, len(records), first, next_offset)
    return b"".join(
        (
            fixed,
            head,
            bytes(_padded(len(head)) - len(head)),
            sizes.astype("<i4", copy=False).data,
            bytes(_padded(4 * count) - 4 * count),
            offsets.astype("<i8", copy=False).data,
            records,
        )
    )


def _is_dense(offsets: NDArray[np.int64]) -> bool:
    return bool((offsets == np.arange(offsets[0], offsets[0] + len(offsets))).all())


def _contiguous(frames: FrameBatch) -> memoryview:
    """Return the records one after another; copied only if other bytes lie between them."""
    if not len(frames):
        return memoryview(b"")
    starts, ends = frames.starts, frames.starts + frames.sizes
    # A queue that was written alone lies in the log without gaps: its records are one view.
    if bool((starts[1:] == ends[:-1]).all()):
        return frames.buffer[int(starts[0]) : int(ends[-1])].data
    gathered = gather_spans(Spans(frames.buffer, starts, frames.sizes.astype(np.int64)))
    return memoryview(gathered.buffers()[2])[: int(frames.sizes.sum(dtype=np.int64))]


def _padded(size: int) -> int:
    return (size + 7) & ~7


def _refused(why: str) -> RequestError:
    message = f"A chunk of records can't be read: {why}. Both ends must be of one version."
    return RequestError(message)


def pack_columns(frames: FrameBatch, columns: Sequence[str], chunk_bytes: int) -> Iterator[bytes]:
    """Yield the columns of a batch in chunks of at most `chunk_bytes`.

    A single record whose columns take more, as an inflated body can, is sent as a record. About as
    many records are decoded at a time as fill a chunk, by what those before them took, and never
    more than INFLATED_CHUNKS: a client that does not read would have the server hold them, and
    small bodies may grow 30,000 times.
    """
    name = frames.queue.broker_name if frames.queue else ""
    most_bytes = INFLATED_CHUNKS * chunk_bytes
    at = 0
    filled = np.cumsum(frames.sizes, dtype=np.int64)
    count = max(1, int(np.searchsorted(filled, chunk_bytes, side="right")))
    while True:
        section = frames.section(at, min(at + count, len(frames)))
        try:
            rows = decode(section, columns, name, most_bytes)
        except LargeBodiesError as error:
            if error.fitting:
                count = error.fitting
                continue
            section = section.section(0, 1)
            packed = [pack_frames(section)]
        else:
            # A little less than a chunk: a little more would go out as two halves.
            count = max(1, len(section) * (chunk_bytes * 15 // 16) // max(1, rows.nbytes))
            if rows.nbytes > most_bytes and len(section) > 1:
                continue  # what came before was smaller
            packed = list(_packed(rows, section, chunk_bytes))
            del rows  # not held while the client takes the chunks
        while packed:
            yield packed.pop(0)
        at += len(section)
        if at >= len(frames):
            return


def _packed(rows: pa.RecordBatch, frames: FrameBatch, chunk_bytes: int) -> Iterator[bytes]:
    size_bytes = pa.ipc.get_record_batch_size(rows)
    if size_bytes <= chunk_bytes:
        yield _pack_rows(rows, frames.next_offset)
    elif len(frames) <= 1:
        yield pack_frames(frames)
    else:
        # Halves, not a computed count: sizes of rows in columns can differ widely.
        half = len(frames) // 2
        for start, stop in ((0, half), (half, len(frames))):
            section = frames.section(start, stop)
            yield from _packed(rows.slice(start, stop - start), section, chunk_bytes)


def _pack_rows(rows: pa.RecordBatch, next_offset: int) -> bytes:
    message = rows.serialize()
    flags = Flag.COLUMNS | Flag.DENSE
    fixed = HEAD.pack(MAGIC, VERSION, flags, 0, 0, rows.num_rows, message.size, 0, next_offset)
    return b"".join((fixed, message))


def unpack_columns(chunk: Chunk, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the columns of a chunk with COLUMNS; raise RequestError for any other columns."""
    try:
        rows = pa.ipc.read_record_batch(pa.py_buffer(chunk.records), schema_of(columns))
        rows.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        message = f"A chunk of columns can't be read: {error}. Both ends must be of one version."
        raise RequestError(message) from error
    return rows
