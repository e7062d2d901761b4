"""Numbers at many places of one buffer, in one walk; twins of gather.integers and of its opposite.

No place is trusted: one beyond the buffer ends the walk, and the twin says what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.jit.compiler import (
    AHEAD_ROWS,
    BOOLEAN,
    BYTES,
    BYTES_OUT,
    INT32S_OUT,
    INT64,
    INT64S,
    INT64S_OUT,
    kernel,
    load_i32,
    load_i64,
    prefetch,
    store_i64,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@kernel(BOOLEAN, BYTES, INT64S, INT32S_OUT)
def gather_ints(
    data: NDArray[np.uint8], places: NDArray[np.int64], found: NDArray[np.int32]
) -> bool:
    """Read the big-endian integers of four bytes; whether all places lie in the data."""
    rows, last = len(places), len(data) - 4
    for row in range(rows):
        if row + AHEAD_ROWS < rows:
            prefetch(data, places[row + AHEAD_ROWS])
        if places[row] < 0 or places[row] > last:
            return False
        found[row] = load_i32(data, places[row])
    return True


@kernel(BOOLEAN, BYTES, INT64S, INT64S_OUT)
def gather_longs(
    data: NDArray[np.uint8], places: NDArray[np.int64], found: NDArray[np.int64]
) -> bool:
    """The same of eight bytes."""
    rows, last = len(places), len(data) - 8
    for row in range(rows):
        if row + AHEAD_ROWS < rows:
            prefetch(data, places[row + AHEAD_ROWS])
        if places[row] < 0 or places[row] > last:
            return False
        found[row] = load_i64(data, places[row])
    return True


@kernel(BOOLEAN, BYTES_OUT, INT64S, INT64)
def put_long(data: NDArray[np.uint8], places: NDArray[np.int64], number: int) -> bool:
    """Write one number of eight bytes to many places; whether all of them lie in the data."""
    rows, last = len(places), len(data) - 8
    for row in range(rows):
        if places[row] < 0 or places[row] > last:
            return False
        store_i64(data, places[row], number)
    return True
