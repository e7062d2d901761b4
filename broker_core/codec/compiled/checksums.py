"""CRC-32 of many texts, sixteen bytes a step; the twin of crc32_many.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from broker_core.codec.compiled.words import BYTES, INT64S, kernel, load_word, part

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POLYNOMIAL = 0xEDB88320
_STEP = 16


def _tables() -> NDArray[np.uint32]:
    """Row k: what a byte becomes when k bytes follow it."""
    tables = np.empty((_STEP, 256), dtype=np.uint32)
    state = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        odd = (state & np.uint32(1)).astype(np.bool_)
        state = (state >> np.uint32(1)) ^ np.where(odd, np.uint32(_POLYNOMIAL), np.uint32(0))
    tables[0] = state
    for row in range(1, _STEP):
        before = tables[row - 1]
        tables[row] = (before >> np.uint32(8)) ^ tables[0][before & np.uint32(0xFF)]
    return tables


_TABLES = _tables()


@part
def crc32(data: NDArray[np.uint8], start: int, length: int) -> Any:
    """The CRC-32 of data[start : start + length]."""
    state = np.uint32(0xFFFFFFFF)
    at, end = start, start + length
    low_byte = np.uint64(0xFF)
    while at + _STEP <= end:
        first = load_word(data, at) ^ np.uint64(state)
        second = load_word(data, at + 8)
        state = np.uint32(0)
        for byte in range(8):
            shift = np.uint64(8 * byte)
            state ^= _TABLES[15 - byte, (first >> shift) & low_byte]
            state ^= _TABLES[7 - byte, (second >> shift) & low_byte]
        at += _STEP
    while at < end:
        state = _TABLES[0, (state ^ np.uint32(data[at])) & np.uint32(0xFF)] ^ (
            state >> np.uint32(8)
        )
        at += 1
    return state ^ np.uint32(0xFFFFFFFF)


@kernel(types.void, BYTES, INT64S, INT64S, types.uint32[::1])
def crc32_spans(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    found: NDArray[np.uint32],
) -> None:
    """The CRC-32 of every data[start : start + length]."""
    for row in range(len(starts)):
        found[row] = crc32(data, starts[row], lengths[row])
