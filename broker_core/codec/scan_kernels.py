"""From record to record by TOTALSIZE: the compiled twin of follow_sizes in scan.py.

Runs behind the first WORTH_ROWS records of a chain. `follow_heads` runs for answers of
1 MiB and more from a RocketMQ broker (clients/cluster/pull/records.py, its twin).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from broker_core.codec import layout
from broker_core.jit.compiler import (
    BYTES,
    INT32S_OUT,
    INT64,
    INT64S_OUT,
    LINE_BYTES,
    inlined,
    kernel,
    load_i32,
    load_i64,
    prefetch,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AHEAD_BYTES = 2048
"""How far ahead memory is prefetched.

A record's position is known only when the one before has been read, so the walk would wait for
memory at each. Records are prefetched by distance instead, before their positions are known.
"""


@inlined
def announce(data: NDArray[np.uint8], announced: int, at: int) -> int:
    """Prefetch what lies ahead of a position, unless it was; return how far that is done now."""
    announced = max(announced, at)
    while announced < at + _AHEAD_BYTES:
        prefetch(data, announced)
        announced += LINE_BYTES
    return announced


@kernel(types.UniTuple(INT64, 4), BYTES, INT64, INT64, INT64S_OUT, INT32S_OUT)
def follow_sizes(
    data: NDArray[np.uint8],
    start: int,
    stop: int,
    starts: NDArray[np.int64],
    sizes: NDArray[np.int32],
) -> tuple[int, int, int, int]:
    """Fill `starts` and `sizes` with the records from `start` on.

    End where they are full, or before the first bytes that are not the head of a record which ends
    at `stop` or before. Return how many records there are, where they end, and TOTALSIZE and
    MAGICCODE of the last head that was read. [start, stop) must lie in the data.
    """
    at, last = start, stop - layout.BLANK_BYTES
    announced = start
    row, room = 0, len(starts)
    size, magic = 0, 0
    while row < room and at <= last:
        size = load_i32(data, at)
        magic = load_i32(data, at + layout.MAGIC) & 0xFFFFFFFF
        if magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
            break
        if size < layout.MIN_RECORD_BYTES or at + size > stop:
            break
        starts[row] = at
        sizes[row] = size
        row += 1
        at += size
        announced = announce(data, announced, at)
    return row, at, size, magic


@kernel(types.UniTuple(INT64, 3), BYTES, INT64S_OUT, INT32S_OUT, INT64S_OUT)
def follow_heads(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int32],
    offsets: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Fill `starts`, `sizes` and queue offsets with the records of data that hold nothing else.

    Return how many records there are, where they end, and the bits of all their system flags.
    """
    at, stop, announced = 0, len(data), 0
    row, room, flags = 0, len(starts), 0
    while row < room and at + layout.MIN_RECORD_BYTES <= stop:
        size = load_i32(data, at)
        magic = load_i32(data, at + layout.MAGIC) & 0xFFFFFFFF
        if magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
            break
        if size < layout.MIN_RECORD_BYTES or at + size > stop:
            break
        starts[row] = at
        sizes[row] = size
        offsets[row] = load_i64(data, at + layout.QUEUE_OFFSET)
        flags |= load_i32(data, at + layout.SYS_FLAG)
        row += 1
        at += size
        announced = announce(data, announced, at)
    return row, at, flags
