"""CRC-32 of many short texts at once: four bytes of every text a step, by table.

CRC-32 is affine: crc(text) = linear(text) ^ crc(zeros of the same length), and zeros before a text
leave its linear part as it is. So texts of different lengths are lined up at their ends, in rows of
whole words; each step folds one word of every row into a state of 32 bits:

    state = AFTER_4[low 16 bits of (state ^ word)] ^ AFTER_2[high 16 bits of (state ^ word)]

A table entry is what 16 bits become when so many bytes follow them. Both tables together are half
a megabyte and stay in a core's cache, as does a block of rows.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.spans import fixed_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POLYNOMIAL = 0xEDB88320
_WORD = 4
_BLOCK_ROWS = 4096


def crc32_many(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """The CRC-32 of every data[start : start + length]; time goes with the longest of them."""
    longest = int(lengths.max(initial=0))
    width = -(-longest // _WORD) * _WORD
    found = np.empty(len(starts), dtype=np.uint32)
    if not width:
        found[:] = 0
        return found
    zeros = _zeros_crcs(longest)
    for first in range(0, len(starts), _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        rows = _at_their_ends(data, starts[block], lengths[block], width)
        found[block] = _linear(rows) ^ zeros[lengths[block]]
    return found


def _at_their_ends(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int
) -> NDArray[np.uint8]:
    """The texts as rows of one width, with zeros before them."""
    begins = starts + lengths - width
    early = np.flatnonzero(begins < 0)  # too near to the data's begin to look that far back
    if len(data) < width:
        rows = np.zeros((len(starts), width), dtype=np.uint8)
    else:
        rows = fixed_width(data, np.maximum(begins, 0) if len(early) else begins, width)
        if int(lengths.min()) < width:
            rows[np.arange(width) < (width - lengths)[:, np.newaxis]] = 0
    for row in early.tolist():
        length = int(lengths[row])
        rows[row, : width - length] = 0
        rows[row, width - length :] = data[starts[row] : starts[row] + length]
    return rows


def _linear(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """What CRC-32 would be, were it linear: no complement before and after."""
    after_4, after_2 = _tables()
    words = np.ascontiguousarray(rows.view("<u4").T)
    count = len(rows)
    state = np.zeros(count, dtype=np.uint32)
    halves = state.view(np.uint16)
    low, high = (0, 1) if np.little_endian else (1, 0)
    places = np.empty(count, dtype=np.intp)
    other = np.empty(count, dtype=np.uint32)
    for word in words:
        state ^= word
        places[:] = halves[high::2]
        # A mode other than "raise" lets `take` write into `out` directly; 16 bits always fit.
        np.take(after_2, places, out=other, mode="clip")
        places[:] = halves[low::2]
        np.take(after_4, places, out=state, mode="clip")
        state ^= other
    return state


@cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """What each 16 bits become at the end of 4 bytes that begin with them, and of their own 2."""
    after_2 = _shifted(np.arange(1 << 16, dtype=np.uint32), 16)
    return _shifted(after_2, 16), after_2


def _shifted(state: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """States after so many zero bits."""
    for _ in range(bits):
        state = (state >> np.uint32(1)) ^ np.where(state & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return state


@cache
def _zeros_crcs(longest: int) -> NDArray[np.uint32]:
    """The CRC-32 of 0, 1, ... `longest` zero bytes."""
    found = [0]
    for _ in range(longest):
        found.append(zlib.crc32(b"\0", found[-1]))
    return np.array(found, dtype=np.uint32)
