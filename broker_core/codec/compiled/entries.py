"""Consume-queue entries as columns, in one walk; the twin of store/consume_queue.py's.

The layout is stated there; the store hands its places over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from broker_core.codec.compiled.words import (
    BYTES,
    INT32S_OUT,
    INT64,
    INT64S_OUT,
    kernel,
    load_i32,
    load_i64,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PLACES = types.UniTuple(INT64, 4)


@kernel(types.void, BYTES, _PLACES, INT64S_OUT, INT32S_OUT)
def unpack_entries(
    data: NDArray[np.uint8],
    places: tuple[int, int, int, int],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int32],
) -> None:
    """Physical offset and size of every entry.

    `places` are those of physical offset, size and tags code in an entry, and an entry's length.
    """
    at_offset, at_size, _, width = places
    for row in range(len(sizes)):
        offsets[row] = load_i64(data, row * width + at_offset)
        sizes[row] = load_i32(data, row * width + at_size)


@kernel(types.UniTuple(INT64, 2), BYTES, _PLACES, INT64S_OUT)
def unpack_tags(
    data: NDArray[np.uint8], places: tuple[int, int, int, int], tags: NDArray[np.int64]
) -> tuple[int, int]:
    """The tags code of every entry; answers the smallest and the largest size."""
    _, at_size, at_tags, width = places
    smallest, largest = 0x7FFFFFFF, -0x80000000
    for row in range(len(tags)):
        size = load_i32(data, row * width + at_size)
        smallest = min(smallest, size)
        largest = max(largest, size)
        tags[row] = load_i64(data, row * width + at_tags)
    return smallest, largest
