"""Rows by queue, compiled: the twins of `_sorted` and `offsets_from` in dispatch.py.

They run where `availability.is_worth` says so, which is for large batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from broker_core.jit.compiler import INT32S, INT64, INT64S, INT64S_OUT, kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@kernel(types.void, INT32S, INT32S, INT64, INT64S_OUT, INT64S_OUT)
def group_rows(
    codes: NDArray[np.int32],
    ids: NDArray[np.int32],
    width: int,
    bounds: NDArray[np.int64],
    order: NDArray[np.int64],
) -> None:
    """Fill `order` with rows by code and id; those of group g end at bounds[g].

    Group g is code * width + id. `bounds` are one more than there are groups, and come as zeros.
    """
    for row in range(len(ids)):
        bounds[codes[row] * width + ids[row] + 1] += 1
    for group in range(1, len(bounds)):
        bounds[group] += bounds[group - 1]
    # bounds[g] is now where group g begins. It moves with each row, so that it ends as the group's
    # end: no second array of cursors.
    for row in range(len(ids)):
        group = codes[row] * width + ids[row]
        order[bounds[group]] = row
        bounds[group] += 1


@kernel(types.void, INT64S, INT64S, INT64S, INT64S_OUT)
def number_rows(
    rows: NDArray[np.int64],
    bounds: NDArray[np.int64],
    firsts: NDArray[np.int64],
    numbers: NDArray[np.int64],
) -> None:
    """Give the rows of each group, rows[bounds[g]:bounds[g + 1]], numbers from firsts[g] on."""
    for group in range(len(firsts)):
        shift = firsts[group] - bounds[group]
        for at in range(bounds[group], bounds[group + 1]):
            numbers[rows[at]] = at + shift
