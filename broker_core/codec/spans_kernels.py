"""Integers at many positions of one buffer, in one walk: the compiled twin of integers in spans.py.

Runs for at least WORTH_ROWS positions. None is trusted: one beyond the buffer ends the
walk, and the twin raises the error.
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
    data: NDArray[np.uint8], positions: NDArray[np.int64], found: NDArray[np.int32]
) -> bool:
    """Read big-endian integers of four bytes; return False if a position is outside the data."""
    rows, last = len(positions), len(data) - 4
    for row in range(rows):
        if row + AHEAD_ROWS < rows:
            prefetch(data, positions[row + AHEAD_ROWS])
        if positions[row] < 0 or positions[row] > last:
            return False
        found[row] = load_i32(data, positions[row])
    return True


@kernel(BOOLEAN, BYTES, INT64S, INT64S_OUT)
def gather_longs(
    data: NDArray[np.uint8], positions: NDArray[np.int64], found: NDArray[np.int64]
) -> bool:
    """Read big-endian integers of eight bytes; return False if a position is outside the data."""
    rows, last = len(positions), len(data) - 8
    for row in range(rows):
        if row + AHEAD_ROWS < rows:
            prefetch(data, positions[row + AHEAD_ROWS])
        if positions[row] < 0 or positions[row] > last:
            return False
        found[row] = load_i64(data, positions[row])
    return True


@kernel(BOOLEAN, BYTES_OUT, INT64S, INT64)
def put_long(data: NDArray[np.uint8], positions: NDArray[np.int64], number: int) -> bool:
    """Write one number of eight bytes to many positions; return False if one is outside the data.

    Twin of an assignment through `sliding` (spans.py).
    """
    rows, last = len(positions), len(data) - 8
    for row in range(rows):
        if positions[row] < 0 or positions[row] > last:
            return False
        store_i64(data, positions[row], number)
    return True
