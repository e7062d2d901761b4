"""Torn records: written to the page cache whole, but not to the disk when power was lost.

What a disk lost reads as zeros, in whole sectors. A record that lost a sector of its head does not
add up, one that lost some of its body fails its checksum, but nothing in the format covers the
properties text: a record that lost only some of that looks valid. It is told by its zeros. Text has
none of its own that would fill all of a record's share of a sector.

Looked for only after an unclean stop, in what follows the last flush.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SECTOR = 512


def first_torn(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> int | None:
    """The number of the first text buffer[start : start + length] that lacks a sector.

    `buffer` is a segment from its first byte, so positions in it are positions on the disk.
    """
    if not len(starts):
        return None
    low = int(starts[0])
    high = int(starts[-1] + lengths[-1])
    written = np.zeros(high - low + 1, dtype=np.int64)
    np.cumsum(buffer[low:high] != 0, out=written[1:])
    counts = written[starts + lengths - low] - written[starts - low]
    for row in np.flatnonzero(counts < lengths).tolist():
        if _lacks_sector(written, int(starts[row]), int(starts[row] + lengths[row]), low):
            return int(row)
    return None


def _lacks_sector(written: NDArray[np.int64], start: int, end: int, low: int) -> bool:
    """Whether some sector's share of [start, end) is all zeros."""
    cuts = [start, *range((start // SECTOR + 1) * SECTOR, end, SECTOR), end]
    return bool((np.diff(written[np.array(cuts) - low]) == 0).any())
