"""Columns of plain records, in one walk: the compiled twin of decode.py.

Runs for batches of at least WORTH_ROWS plain records: V1 with IPv4 hosts, of one queue,
their bodies not compressed if bodies are asked for. The first record that is anything else, or does
not check, ends the walk, and the twin decodes the batch.

One walk checks a record, reads its numbers, searches its properties and copies values and body,
while its memory is at hand. NumPy goes over the batch about twenty times for that, and waiting for
memory is what it costs (docs/decisions/0010). Records of one queue lie far apart in the log, so
each is prefetched AHEAD_ROWS rows early.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numba import types

from broker_core.codec import layout
from broker_core.codec.hashing.crc_kernels import crc32
from broker_core.codec.layout import HEAD
from broker_core.codec.properties.search_kernels import KEYS, WORDS, keys_of, search
from broker_core.codec.spans import strings
from broker_core.jit import arguments
from broker_core.jit.compiler import (
    AHEAD_ROWS,
    BOOLEAN,
    BYTES,
    BYTES_OUT,
    INT32S,
    INT32S_OUT,
    INT64,
    INT64S,
    INT64S_OUT,
    LINE_BYTES,
    copy,
    inlined,
    kernel,
    load_i16,
    load_i32,
    load_i64,
    load_word,
    prefetch,
)
from broker_core.process_settings import keep_freed_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.properties.search_kernels import Keys

    Column = tuple[NDArray[np.uint8], NDArray[np.int32]]
    """Data, and the bounds of each row in them."""

_LARGE_RECORD_BYTES = 4096
"""Records that are larger on average are left to the twin: they cost what copying them costs."""
_MOST_BYTES = 256 << 20
"""Most room that is asked for; little of it is touched."""

_SCRATCH_KEPT_BYTES = 16 << 20

_MAGIC = layout.MAGIC_V1 - (1 << 32)
_WORD_BYTES = 8
_SHORT_BYTES = 32
_MOST_LINES, _TAIL_LINES = 8, 4
"""Cache lines of a record that are prefetched; of a larger one, those at its end."""

_RECORDS = types.Tuple((BYTES, INT64S, INT32S, INT64S))


@inlined
def ends_with(data: NDArray[np.uint8], end: int, words: NDArray[np.uint64], mask: Any) -> bool:
    """Tell whether words lie before a position; of the first word only the mask's bits count.

    Words are aligned at the topic's end, so that what is read too much lies before it: in the
    record, never beyond the buffer.
    """
    at = end - _WORD_BYTES * len(words)
    differs = (load_word(data, at) ^ words[0]) & mask
    for word in range(1, len(words)):
        differs |= load_word(data, at + _WORD_BYTES * word) ^ words[word]
    return bool(differs == np.uint64(0))


@inlined
def copy_value(
    out: NDArray[np.uint8], at: int, data: NDArray[np.uint8], start: int, length: int
) -> None:
    """Copy a value that is likely short; bytes behind it may be copied with it.

    A copy of constant size is a few vector moves; one of any size is a call of memcpy.
    """
    if length <= _SHORT_BYTES and start <= len(data) - _SHORT_BYTES:
        copy(out, at, data, start, _SHORT_BYTES)
    else:
        copy(out, at, data, start, length)


@inlined
def announce(data: NDArray[np.uint8], start: int, size: int, is_searched: bool) -> None:
    """Prefetch a record; its properties too, if they are searched.

    A search reads a little of what lies behind. The middle of a large record is left out: it is not
    read, or read as a stream, which the processor prefetches by itself.
    """
    if size > _MOST_LINES * LINE_BYTES:
        prefetch(data, start)
        prefetch(data, start + LINE_BYTES)
        for line in range(_TAIL_LINES):
            prefetch(data, start + size - 1 + LINE_BYTES * (1 - line))
    else:
        end = size + (_SHORT_BYTES if is_searched else -LINE_BYTES)
        for line in range(0, end, LINE_BYTES):
            prefetch(data, start + line)


@kernel(
    BOOLEAN,
    _RECORDS,
    types.UniTuple(INT64, 3),
    types.UniTuple(BOOLEAN, 3),
    types.Tuple((WORDS, INT64, types.uint64)),
    KEYS,
    INT64,
    types.UniTuple(INT64S, 2),
    types.Tuple((INT64S_OUT, INT32S_OUT)),
    types.UniTuple(types.Tuple((BYTES_OUT, INT32S_OUT)), 2),
)
def decode_records(
    records: tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]],
    expected: tuple[int, int, int],
    options: tuple[bool, bool, bool],
    topic: tuple[NDArray[np.uint64], int, Any],
    keys: Keys,
    needed: int,
    fields: tuple[NDArray[np.int64], NDArray[np.int64]],
    numbers: tuple[NDArray[np.int64], NDArray[np.int32]],
    texts: tuple[Column, Column],
) -> bool:
    """Decode records; return True if all are plain and check, else the columns mean nothing.

    `records` are data, starts, sizes and queue offsets; `expected` are the queue id, the origin,
    and bits that no system flag may have. `options` say whether there is an origin, whether to
    check bodies, and whether to copy them. `topic` is what lies behind bodies, length and text, as
    words, its bytes, and which bits of the first word count. `needed` is the number of a key that
    every record must have, or -1. `fields` are positions of numbers in records, long ones and short
    ones, for the columns of `numbers`.

    `texts` are data and bounds of values, those of all keys after one another, and of bodies. Each
    key has equal room in the data, for all that records hold and a short value more.
    """
    data, starts, sizes, offsets = records
    queue_id, origin, refused = expected
    has_origin, checks_bodies, takes_bodies = options
    topic_words, topic_bytes, topic_mask = topic
    long_fields, int_fields = fields
    longs, ints = numbers
    (values, value_bounds), (bodies, body_bounds) = texts
    rows, count = len(starts), len(keys[2])
    room = len(values) // max(count, 1)
    fixed = layout.BODY + topic_bytes + 2
    used, used_by_bodies = np.zeros(count, dtype=np.int64), 0
    value_starts = np.empty(count, dtype=np.int64)
    value_lengths = np.empty(count, dtype=np.int64)
    for key in range(count):
        value_bounds[key * (rows + 1)] = 0
    if takes_bodies:
        body_bounds[0] = 0
    for row in range(rows):
        if row + AHEAD_ROWS < rows:
            announce(data, starts[row + AHEAD_ROWS], sizes[row + AHEAD_ROWS], count > 0)
        start, size = starts[row], sizes[row]
        if start < 0 or size < fixed or start > len(data) - size:
            return False
        # Checks of one record are joined without branches: almost none of them ever fails.
        is_wrong = load_i32(data, start) != size
        is_wrong |= load_i32(data, start + layout.MAGIC) != _MAGIC
        is_wrong |= load_i32(data, start + layout.QUEUE_ID) != queue_id
        is_wrong |= load_i64(data, start + layout.QUEUE_OFFSET) != offsets[row]
        if has_origin:
            is_wrong |= load_i64(data, start + layout.PHYSICAL_OFFSET) != start + origin
        is_wrong |= (load_i32(data, start + layout.SYS_FLAG) & refused) != 0
        body = start + layout.BODY
        body_length = load_i32(data, start + layout.BODY_LENGTH)
        text_length = size - fixed - body_length
        # From here on lengths lead somewhere, so they must be right.
        if is_wrong or body_length < 0 or text_length < 0:
            return False
        topic_end = body + body_length + topic_bytes
        is_wrong |= not ends_with(data, topic_end, topic_words, topic_mask)
        is_wrong |= load_i16(data, topic_end) != text_length
        if checks_bodies:
            crc = crc32(data, body, body_length) & np.uint32(layout.CRC_MASK)
            is_wrong |= load_i32(data, start + layout.BODY_CRC) != np.int64(crc)
        if is_wrong:
            return False
        for field in range(len(long_fields)):
            longs[field * rows + row] = load_i64(data, start + long_fields[field])
        for field in range(len(int_fields)):
            ints[field * rows + row] = load_i32(data, start + int_fields[field])
        if count:
            # A record is longer than a block, so the data are long enough to be searched.
            search(data, topic_end + 2, text_length, keys, value_starts, value_lengths)
            if needed >= 0 and value_lengths[needed] == 0:
                return False
        for key in range(count):
            copy_value(values, key * room + used[key], data, value_starts[key], value_lengths[key])
            used[key] += value_lengths[key]
            value_bounds[key * (rows + 1) + row + 1] = used[key]
        if takes_bodies:
            copy(bodies, used_by_bodies, data, body, body_length)
            used_by_bodies += body_length
            body_bounds[row + 1] = used_by_bodies
    return True


@dataclass(frozen=True)
class PlainColumns:
    """Columns that were asked for: numbers by names of fields, values by names of properties."""

    numbers: dict[str, NDArray[np.integer]]
    values: dict[str, pa.Array]
    bodies: pa.Array | None


def decode_plain(
    frames: FrameBatch,
    fields: Sequence[str],
    names: Sequence[str],
    *,
    bodies: bool,
    needed: str | None = None,
) -> PlainColumns | None:
    """Return the columns of a batch; None if not all of its records are plain, check and are small.

    `fields` are those of HEAD that are numbers, `names` properties; a record without the one that
    is needed is not plain.
    """
    room = _room(frames, len(names) + int(bodies))
    if room is None or frames.queue is None:
        return None
    keep_freed_memory()
    rows = len(frames)
    topic = frames.queue.topic.encode()
    long_fields = [name for name in fields if HEAD[name].itemsize == 8]
    int_fields = [name for name in fields if HEAD[name].itemsize == 4]
    longs = np.empty((len(long_fields), rows), dtype=np.int64)
    ints = np.empty((len(int_fields), rows), dtype=np.int32)
    values = scratch(len(names) * room).reshape(len(names), room)
    value_bounds = np.empty((len(names), rows + 1), dtype=np.int32)
    stored = np.empty(room if bodies else 0, dtype=np.uint8)
    stored_bounds = np.empty(rows + 1 if bodies else 0, dtype=np.int32)
    is_done = decode_records(
        (
            arguments.octets(frames.buffer),
            arguments.longs(frames.starts),
            arguments.ints(frames.sizes),
            arguments.longs(frames.offsets),
        ),
        (frames.queue.queue_id, frames.origin or 0, _refused(bodies=bodies)),
        (frames.origin is not None, frames.verify, bodies),
        _topic_words(bytes([len(topic)]) + topic),
        keys_of(names),
        names.index(needed) if needed is not None else -1,
        (_positions(long_fields), _positions(int_fields)),
        (longs.reshape(-1), ints.reshape(-1)),
        ((values.reshape(-1), value_bounds.reshape(-1)), (stored, stored_bounds)),
    )
    if not is_done:
        has_used_scratch(values.size)  # how much of it, is not known
        return None
    if bodies:
        stored.resize(int(stored_bounds[-1]), refcheck=False)  # gives back the rest, copies nothing
    columns = [_strings(data, bounds) for data, bounds in zip(values, value_bounds, strict=True)]
    has_used_scratch(int(value_bounds[:, -1].sum(dtype=np.int64)))
    return PlainColumns(
        dict(zip(long_fields + int_fields, [*longs, *ints], strict=True)),
        dict(zip(names, columns, strict=True)),
        _binary(stored, stored_bounds) if bodies else None,
    )


def _room(frames: FrameBatch, columns: int) -> int | None:
    """Return the bytes that no column of text exceeds; None if the kernel should not be asked."""
    topic_bytes = len(frames.queue.topic.encode()) if frames.queue is not None else -1
    if not 0 <= topic_bytes <= layout.MAX_TOPIC_V1:
        return None
    # With a negative size the sum would not be what the others need.
    if int(frames.sizes.min()) < layout.MIN_RECORD_BYTES:
        return None
    size_bytes = frames.size_bytes
    if size_bytes > _LARGE_RECORD_BYTES * len(frames):
        return None
    room = size_bytes - layout.MIN_RECORD_BYTES * len(frames) + _SHORT_BYTES
    room += -room % LINE_BYTES
    return room if room * columns <= _MOST_BYTES else None


def _refused(*, bodies: bool) -> int:
    """Return the bits of SYSFLAG that a plain record does not have."""
    return layout.HOSTS_V6_MASK | (int(layout.SysFlag.COMPRESSED) if bodies else 0)


def _topic_words(topic: bytes) -> tuple[NDArray[np.uint64], int, np.uint64]:
    """Return a topic with its length byte as words that end where it does.

    With them their number of bytes, and the mask of the first word's bytes that count.
    """
    padding = -len(topic) % _WORD_BYTES
    words = np.frombuffer(bytes(padding) + topic, dtype="<u8").astype(np.uint64)
    return words, len(topic), np.uint64((1 << 64) - (1 << 8 * padding))


def _positions(fields: Sequence[str]) -> NDArray[np.int64]:
    """Return the positions of fields in a plain record."""
    assert HEAD.fields is not None
    return np.array([HEAD.fields[name][1] for name in fields], dtype=np.int64)


def _binary(data: NDArray[np.uint8], bounds: NDArray[np.int32]) -> pa.Array:
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _strings(data: NDArray[np.uint8], bounds: NDArray[np.int32]) -> pa.Array:
    """Return values as strings, null where there is none; copied out of the scratch room."""
    is_present = bounds[1:] != bounds[:-1]
    text = strings(_binary(data[: int(bounds[-1])].copy(), bounds))
    if is_present.all():
        return text
    present = pa.py_buffer(np.packbits(is_present, bitorder="little"))
    buffers = [present, *text.buffers()[1:]]
    return pa.Array.from_buffers(pa.string(), len(text), buffers, offset=text.offset)


class _Scratch(threading.local):
    """The room of one thread.

    Each property has room for all that the records hold, of which values fill a little. Allocators
    would map and zero that room anew for every batch; kept, only pages that were written are in
    memory.
    """

    def __init__(self) -> None:
        self.room = np.empty(0, dtype=np.uint8)


_scratch = _Scratch()


def scratch(size_bytes: int) -> NDArray[np.uint8]:
    """Return room for the calling thread, until it asks again; its content is undefined."""
    if len(_scratch.room) < size_bytes:
        _scratch.room = np.empty(size_bytes, dtype=np.uint8)
    return _scratch.room[:size_bytes]


def has_used_scratch(size_bytes: int) -> None:
    """Report how much was written there; more than 16 MiB is given back to the system."""
    if size_bytes > _SCRATCH_KEPT_BYTES:
        _scratch.room = np.empty(0, dtype=np.uint8)
