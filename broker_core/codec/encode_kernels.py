"""Records out of columns, in one pass; the twin of outgoing.py's join.

Every record is a copy of one template of the fixed part, hosts included, with its own fields put
in, and body, topic and properties behind it; properties are joined on the way. Columns of one
number for all rows have one element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from broker_core.codec import layout
from broker_core.codec.hashing.crc_kernels import crc32
from broker_core.codec.properties.columns_kernels import JOINED, put_bytes
from broker_core.jit.compiler import (
    BYTES,
    BYTES_OUT,
    INT32S,
    INT64,
    INT64S,
    SPANS,
    copy,
    inlined,
    kernel,
    store_i16,
    store_i32,
    store_i64,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from broker_core.codec.properties.columns_kernels import Joined
    from broker_core.jit.arguments import KernelSpans

    Topics = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]]
    """Texts (length and topic) one after another, their bounds, and a magic number each."""

TOPICS = types.Tuple((BYTES, INT64S, INT32S))

_QUEUE_ID = layout.QUEUE_ID
_FLAG = layout.FLAG
_SYS_FLAG = layout.SYS_FLAG
_BORN = layout.BORN_TIMESTAMP
_CRC_MASK = layout.CRC_MASK
# Positions before the end of the fixed part, which the hosts' widths do not move.
_BODY_LENGTH = layout.BODY - layout.BODY_LENGTH
_PREPARED = layout.BODY - layout.PREPARED_OFFSET
_RECONSUMED = layout.BODY - layout.RECONSUME_TIMES


@inlined
def put_topic(out: NDArray[np.uint8], at: int, topics: Topics, code: int) -> int:
    """Put a topic with its length; where it ends."""
    data, bounds, _ = topics
    start = bounds[code]
    length = bounds[code + 1] - start
    copy(out, at, data, start, length)
    end: int = at + length
    return end


@kernel(
    types.void,
    BYTES_OUT,
    INT64S,
    INT32S,
    BYTES,
    SPANS,
    JOINED,
    INT64S,
    TOPICS,
    INT32S,
    types.UniTuple(INT32S, 4),
    types.UniTuple(INT64S, 2),
)
def encode_records(
    out: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int32],
    template: NDArray[np.uint8],
    bodies: KernelSpans,
    properties: Joined,
    properties_lengths: NDArray[np.int64],
    topics: Topics,
    codes: NDArray[np.int32],
    ints: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
    longs: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> None:
    """Fill `out` with records at `starts`, which leave room for exactly their `sizes`.

    `ints` are queue id, flag, system flag and reconsume times, `longs` born time and
    prepared offset.
    """
    body_data, body_starts, body_lengths = bodies
    columns, (text, ends) = properties
    count = len(ends) - 2
    magics = topics[2]
    queue_ids, flags, sys_flags, reconsumed = ints
    born, prepared = longs
    fixed = len(template)
    a_queue = 1 if len(queue_ids) > 1 else 0
    a_flag = 1 if len(flags) > 1 else 0
    a_sys_flag = 1 if len(sys_flags) > 1 else 0
    a_time = 1 if len(reconsumed) > 1 else 0
    a_birth = 1 if len(born) > 1 else 0
    a_half = 1 if len(prepared) > 1 else 0
    for row in range(len(starts)):
        at = starts[row]
        length = body_lengths[row]
        copy(out, at, template, 0, fixed)
        store_i32(out, at, sizes[row])
        store_i32(out, at + layout.MAGIC, magics[codes[row]])
        crc = crc32(body_data, body_starts[row], length)
        store_i32(out, at + layout.BODY_CRC, crc & _CRC_MASK)
        store_i32(out, at + _QUEUE_ID, queue_ids[row * a_queue])
        store_i32(out, at + _FLAG, flags[row * a_flag])
        store_i32(out, at + _SYS_FLAG, sys_flags[row * a_sys_flag])
        store_i64(out, at + _BORN, born[row * a_birth])
        at += fixed
        store_i32(out, at - _RECONSUMED, reconsumed[row * a_time])
        store_i64(out, at - _PREPARED, prepared[row * a_half])
        store_i32(out, at - _BODY_LENGTH, length)
        copy(out, at, body_data, body_starts[row], length)
        at = put_topic(out, at + length, topics, codes[row])
        store_i16(out, at, properties_lengths[row])
        at += 2
        for number in range(count):
            at = put_bytes(out, at, text, ends[number], ends[number + 1] - ends[number])
            data, places, lengths = columns[number]
            at = put_bytes(out, at, data, places[row], lengths[row])
        put_bytes(out, at, text, ends[count], ends[count + 1] - ends[count])


@kernel(types.void, BYTES_OUT, INT64S, INT64S, INT64S, INT64S, INT64)
def patch_records(
    out: NDArray[np.uint8],
    starts: NDArray[np.int64],
    queue_offsets: NDArray[np.int64],
    physical_offsets: NDArray[np.int64],
    store_time_at: NDArray[np.int64],
    store_ms: int,
) -> None:
    """Put in what only the holder of the store's lock knows."""
    a_place = 1 if len(store_time_at) > 1 else 0
    for row in range(len(starts)):
        at = starts[row]
        store_i64(out, at + layout.QUEUE_OFFSET, queue_offsets[row])
        store_i64(out, at + layout.PHYSICAL_OFFSET, physical_offsets[row])
        store_i64(out, at + store_time_at[row * a_place], store_ms)
