"""Consume-queue entries, compiled: to columns, out of columns, or by tag in one pass.

The twins of `EntryColumns.of`, `packed_entries` and `rows_tagged` in consume_queue.py, which call
these for large batches. The layout is stated there; kernels get field positions as arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import types

from broker_core.jit.compiler import (
    BYTES,
    BYTES_OUT,
    INT32S,
    INT32S_OUT,
    INT64,
    INT64S,
    INT64S_OUT,
    kernel,
    load_i32,
    load_i64,
    prefetch,
    store_i32,
    store_i64,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POSITIONS = types.UniTuple(INT64, 4)
_AHEAD_BYTES = 4096
"""Prefetch distance: processors do not look beyond a page by themselves."""


@kernel(types.void, BYTES, _POSITIONS, INT64S_OUT, INT32S_OUT)
def unpack_entries(
    data: NDArray[np.uint8],
    positions: tuple[int, int, int, int],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int32],
) -> None:
    """Read physical offset and size of every entry.

    `positions` are those of physical offset, size and tags code in an entry, and an entry's length.
    """
    at_offset, at_size, _, width = positions
    for row in range(len(sizes)):
        offsets[row] = load_i64(data, row * width + at_offset)
        sizes[row] = load_i32(data, row * width + at_size)


@kernel(types.void, types.Tuple((INT64S, INT32S, INT64S)), INT64S, _POSITIONS, BYTES_OUT)
def pack_entries(
    columns: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]],
    rows: NDArray[np.int64],
    positions: tuple[int, int, int, int],
    data: NDArray[np.uint8],
) -> None:
    """Pack the entries of some rows: physical offset, size and tags code each."""
    offsets, sizes, tags_codes = columns
    at_offset, at_size, at_tags, width = positions
    at = 0
    for row in rows:
        store_i64(data, at + at_offset, offsets[row])
        store_i32(data, at + at_size, sizes[row])
        store_i64(data, at + at_tags, tags_codes[row])
        at += width


@kernel(types.UniTuple(INT64, 2), BYTES, _POSITIONS, INT64, INT32S, INT64S_OUT)
def select_tags(
    data: NDArray[np.uint8],
    positions: tuple[int, int, int, int],
    filler_size: int,
    hashes: NDArray[np.int32],
    rows: NDArray[np.int64],
) -> tuple[int, int]:
    """Fill `rows` with entries whose tags code has one of these low halves, or whose size is bad.

    Return how many they are, and the smallest code: one in the range of addresses tells the caller
    that the entries have an extension.
    """
    _, at_size, at_tags, width = positions
    # Nearly all subscriptions have one tag: it is compared without a loop.
    first = hashes[0]
    count, smallest = 0, 0
    for row in range(len(data) // width):
        prefetch(data, row * width + _AHEAD_BYTES)
        code = load_i64(data, row * width + at_tags)
        smallest = min(smallest, code)
        low = np.int32(code)
        size = load_i32(data, row * width + at_size)
        is_wanted = (low == first) | (size <= 0) | (size == filler_size)
        for other in range(1, len(hashes)):
            is_wanted |= low == hashes[other]
        if is_wanted:
            rows[count] = row
            count += 1
    return count, smallest
