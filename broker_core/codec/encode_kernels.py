"""Records out of columns, in one pass: the twin of `_encode_joined` in encode.py.

Every record is a copy of one template header, hosts included, with its own fields put in; body,
topic and properties follow. Properties are joined in place: their texts never exist elsewhere. A
column that is one number for all rows has one element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from broker_core.codec import layout
from broker_core.codec.hashing.crc_kernels import crc32
from broker_core.codec.properties.join_kernels import PARTS, put_bytes
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

    from broker_core.codec.properties.join_kernels import KernelParts
    from broker_core.jit.arguments import KernelSpans

    KernelTopics = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]]
    """TOPICLENGTH and TOPIC of all topics in one buffer, their bounds, and a magic number each."""

TOPICS = types.Tuple((BYTES, INT64S, INT32S))

_QUEUE_ID = layout.QUEUE_ID
_FLAG = layout.FLAG
_SYS_FLAG = layout.SYS_FLAG
_BORN = layout.BORN_TIMESTAMP
_CRC_MASK = layout.CRC_MASK
# Distances to the end of the header, which the widths of the hosts do not change.
_BODY_LENGTH = layout.BODY - layout.BODY_LENGTH
_PREPARED = layout.BODY - layout.PREPARED_OFFSET
_RECONSUMED = layout.BODY - layout.RECONSUME_TIMES


@inlined
def put_topic(out: NDArray[np.uint8], at: int, topics: KernelTopics, code: int) -> int:
    """Write TOPICLENGTH and TOPIC; return the position behind them."""
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
    PARTS,
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
    properties: KernelParts,
    properties_lengths: NDArray[np.int64],
    topics: KernelTopics,
    codes: NDArray[np.int32],
    ints: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
    longs: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> None:
    """Write records of `sizes` bytes at `starts`.

    `ints` are queue id, flag, system flag and reconsume times, `longs` born time and prepared
    offset.
    """
    body_data, body_starts, body_lengths = bodies
    columns, (text, ends) = properties
    count = len(ends) - 2
    magics = topics[2]
    queue_ids, flags, sys_flags, reconsumed = ints
    born, prepared = longs
    fixed = len(template)
    # A step of 0 reads the one element of a column that holds for all rows: no branch in the loop.
    queue_step = 1 if len(queue_ids) > 1 else 0
    flag_step = 1 if len(flags) > 1 else 0
    sys_flag_step = 1 if len(sys_flags) > 1 else 0
    reconsumed_step = 1 if len(reconsumed) > 1 else 0
    born_step = 1 if len(born) > 1 else 0
    prepared_step = 1 if len(prepared) > 1 else 0
    for row in range(len(starts)):
        at = starts[row]
        length = body_lengths[row]
        copy(out, at, template, 0, fixed)
        # Offsets and store time are zeros of the template until `patch_records` writes them.
        store_i32(out, at, sizes[row])
        store_i32(out, at + layout.MAGIC, magics[codes[row]])
        crc = crc32(body_data, body_starts[row], length)
        store_i32(out, at + layout.BODY_CRC, crc & _CRC_MASK)
        store_i32(out, at + _QUEUE_ID, queue_ids[row * queue_step])
        store_i32(out, at + _FLAG, flags[row * flag_step])
        store_i32(out, at + _SYS_FLAG, sys_flags[row * sys_flag_step])
        store_i64(out, at + _BORN, born[row * born_step])
        at += fixed
        store_i32(out, at - _RECONSUMED, reconsumed[row * reconsumed_step])
        store_i64(out, at - _PREPARED, prepared[row * prepared_step])
        store_i32(out, at - _BODY_LENGTH, length)
        copy(out, at, body_data, body_starts[row], length)
        at = put_topic(out, at + length, topics, codes[row])
        store_i16(out, at, properties_lengths[row])
        at += 2
        # Literal, value, literal, value, ..., literal: the text is joined where it belongs.
        for number in range(count):
            at = put_bytes(out, at, text, ends[number], ends[number + 1] - ends[number])
            data, value_starts, lengths = columns[number]
            at = put_bytes(out, at, data, value_starts[row], lengths[row])
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
    """Write offsets and store time; the twin of `EncodedRecords.patch`."""
    step = 1 if len(store_time_at) > 1 else 0
    for row in range(len(starts)):
        at = starts[row]
        store_i64(out, at + layout.QUEUE_OFFSET, queue_offsets[row])
        store_i64(out, at + layout.PHYSICAL_OFFSET, physical_offsets[row])
        store_i64(out, at + store_time_at[row * step], store_ms)
