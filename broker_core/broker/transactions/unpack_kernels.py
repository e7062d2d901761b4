"""Unpacking half blocks in one pass; the twin of `_copies` in unpack.py, which says when it runs.

Only for records of one topic, V1 with IPv4 hosts. Every other is left to the twin, also to say what
is wrong with one that does not check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from broker_core.codec import layout
from broker_core.codec.fields_kernels import is_same
from broker_core.jit.compiler import (
    BYTES,
    BYTES_OUT,
    INT32S_OUT,
    INT64,
    INT64S,
    INT64S_OUT,
    copy,
    kernel,
    load_byte,
    load_i16,
    load_i32,
    store_i32,
    store_i64,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Blocks = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    """Of each block: position and length of its body, the body's physical offset, how many
    records it holds."""
    Found = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    """Of each record: its position, the length of its properties, its prepared offset."""

_V1 = layout.MAGIC_V1 - (1 << 32)
_HOSTS_V6 = int(layout.HOSTS_V6_MASK)
_LEAST = layout.MIN_RECORD_BYTES


@kernel(
    INT64,
    BYTES,
    types.UniTuple(INT64S, 4),
    types.UniTuple(INT64, 2),
    BYTES_OUT,
    types.UniTuple(INT64S_OUT, 3),
    types.UniTuple(INT32S_OUT, 2),
)
def unpack_blocks(
    data: NDArray[np.uint8],
    blocks: Blocks,
    flag_bits: tuple[int, int],
    out: NDArray[np.uint8],
    found: Found,
    numbers: tuple[NDArray[np.int32], NDArray[np.int32]],
) -> int:
    """Copy the records of all blocks to `out`, one behind the other, marked as committed.

    `flag_bits` are those of SYSFLAG to keep, and those to set. `numbers` are for sizes and queue
    ids. `out` has room for all bodies, the other arrays for as many records as blocks say. Returns
    the length of the topic that all records carry; -1 if one of them is not for this kernel.
    """
    bodies, lengths, offsets, counts = blocks
    starts, text_lengths, prepared = found
    sizes, queue_ids = numbers
    keep, put = flag_bits
    first_topic, topic_length = 0, -1
    row, to = 0, 0
    for block in range(len(bodies)):
        at = bodies[block]
        end = at + lengths[block]
        # From a position in `data` to a physical offset.
        shift = offsets[block] - at
        for _ in range(counts[block]):
            if end - at < _LEAST:
                return -1
            size = load_i32(data, at)
            if size < _LEAST or size > end - at or load_i32(data, at + layout.MAGIC) != _V1:
                return -1
            # Every length is checked before it is used: compiled loads have no bounds checks.
            flags = load_i32(data, at + layout.SYS_FLAG)
            body_length = load_i32(data, at + layout.BODY_LENGTH)
            spare = size - _LEAST - body_length
            if flags & _HOSTS_V6 or body_length < 0 or spare < 0:
                return -1
            topic = at + layout.BODY + body_length
            length = load_byte(data, topic)
            # One topic for all: then destinations need no table of names.
            if topic_length < 0:
                first_topic, topic_length = topic + 1, length
            if length != topic_length or length > spare:
                return -1
            if not is_same(data, topic + 1, data, first_topic, length):
                return -1
            if load_i16(data, topic + 1 + length) != spare - length:
                return -1
            copy(out, to, data, at, size)
            store_i32(out, to + layout.SYS_FLAG, (flags & keep) | put)
            store_i64(out, to + layout.PREPARED_OFFSET, at + shift)
            starts[row] = to
            sizes[row] = size
            queue_ids[row] = load_i32(data, at + layout.QUEUE_ID)
            text_lengths[row] = spare - length
            prepared[row] = at + shift
            row += 1
            to += size
            at += size
        if at != end:
            return -1
    return topic_length
