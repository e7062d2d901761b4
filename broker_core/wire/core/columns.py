"""Columns on the wire: what a reader asked for, decoded by the broker.

Half of a record is of no use to most readers: its fixed part, its ids, properties that nobody
reads. Whoever names columns gets only those, as one Arrow record batch (the encapsulated message of
Arrow's IPC format, without its schema) behind the head of a chunk (frames.py) with the flag
COLUMNS. A broker that does not know the wish sends records, and the reader decodes them itself.

The batch is checked in full before it is used: offsets that lead out of its buffers would be
followed by whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from broker_core.codec.decode import decode, schema_of
from broker_core.errors import RequestError
from broker_core.wire.core.frames import HEAD, MAGIC, VERSION, Flag, pack_frames

if TYPE_CHECKING:
    from broker_core.codec.frames import FrameBatch
    from broker_core.wire.core.frames import Chunk


def pack_columns(frames: FrameBatch, columns: Sequence[str], chunk_bytes: int) -> Iterator[bytes]:
    """The columns of a batch in chunks of at most so many bytes.

    A single record whose columns take more, as an inflated body can, is sent as it is stored.
    """
    name = frames.queue.broker_name if frames.queue else ""
    yield from _packed(decode(frames, columns, name), frames, chunk_bytes)


def _packed(rows: pa.RecordBatch, frames: FrameBatch, chunk_bytes: int) -> Iterator[bytes]:
    size_bytes = pa.ipc.get_record_batch_size(rows)
    if size_bytes <= chunk_bytes:
        yield _pack(rows, frames.next_offset)
    elif len(frames) <= 1:
        yield pack_frames(frames)
    else:
        half = len(frames) // 2
        for start, stop in ((0, half), (half, len(frames))):
            piece = frames.piece(start, stop)
            yield from _packed(rows.slice(start, stop - start), piece, chunk_bytes)


def _pack(rows: pa.RecordBatch, next_offset: int) -> bytes:
    message = rows.serialize()
    flags = Flag.COLUMNS | Flag.DENSE
    fixed = HEAD.pack(MAGIC, VERSION, flags, 0, 0, rows.num_rows, message.size, 0, next_offset)
    return b"".join((fixed, message))


def unpack_columns(chunk: Chunk, columns: Sequence[str]) -> pa.RecordBatch:
    """The columns of a chunk that has them; RequestError if they are not what was asked for."""
    try:
        rows = pa.ipc.read_record_batch(pa.py_buffer(chunk.records), schema_of(columns))
        rows.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        message = f"A chunk of columns can't be read: {error}. Both ends must be of one version."
        raise RequestError(message) from error
    return rows
