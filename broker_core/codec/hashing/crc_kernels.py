"""CRC-32 of many texts: the twin of zlib's in crc.py.

Sixteen bytes a step: in a few instructions where the processor has them (crc_folding_kernels.py),
else by tables (slicing by 16). The rest behind the last whole step is done by tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from broker_core.codec.hashing.crc_folding_kernels import BLOCK_BYTES, POLYNOMIAL, can_fold, fold
from broker_core.jit.compiler import BYTES, INT64S, inlined, kernel, load_byte, load_word

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOW_BYTE = np.uint64(0xFF)
_BEGIN = np.uint32(0xFFFFFFFF)


def _tables() -> NDArray[np.uint32]:
    """Return tables whose row k tells what a byte becomes when k bytes follow it."""
    tables = np.empty((BLOCK_BYTES, 256), dtype=np.uint32)
    state = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        odd = (state & np.uint32(1)).astype(np.bool_)
        state = (state >> np.uint32(1)) ^ np.where(odd, np.uint32(POLYNOMIAL), np.uint32(0))
    tables[0] = state
    for row in range(1, BLOCK_BYTES):
        before = tables[row - 1]
        tables[row] = (before >> np.uint32(8)) ^ tables[0][before & np.uint32(0xFF)]
    return tables


_TABLES = _tables()


@inlined
def step_by_tables(data: NDArray[np.uint8], start: int, blocks: int, state: Any) -> Any:
    """Return the state after `blocks` blocks of 16 bytes from `start` on."""
    for at in range(start, start + blocks * BLOCK_BYTES, BLOCK_BYTES):
        # Sixteen look-ups that do not wait for each other: the state enters the first word only.
        first = load_word(data, at) ^ np.uint64(state)
        second = load_word(data, at + 8)
        state = np.uint32(0)
        for byte in range(8):
            shift = np.uint64(8 * byte)
            state ^= _TABLES[15 - byte, (first >> shift) & _LOW_BYTE]
            state ^= _TABLES[7 - byte, (second >> shift) & _LOW_BYTE]
    return state


# Chosen at import: what Numba keeps is for one kind of processor anyway.
_step = fold if can_fold() else step_by_tables


@inlined
def crc32(data: NDArray[np.uint8], start: int, length: int) -> Any:
    """Return the CRC-32 of data[start : start + length]."""
    state = _BEGIN
    blocks = length // BLOCK_BYTES
    at, end = start + blocks * BLOCK_BYTES, start + length
    if blocks:
        state = _step(data, start, blocks, state)
    # Eight bytes at once if there are, so that at most seven are left for single look-ups.
    if at + 8 <= end:
        word = load_word(data, at) ^ np.uint64(state)
        state = np.uint32(0)
        for byte in range(8):
            state ^= _TABLES[7 - byte, (word >> np.uint64(8 * byte)) & _LOW_BYTE]
        at += 8
    while at < end:
        state = _TABLES[0, (state ^ np.uint32(load_byte(data, at))) & np.uint32(0xFF)] ^ (
            state >> np.uint32(8)
        )
        at += 1
    return state ^ _BEGIN


@kernel(types.void, BYTES, INT64S, INT64S, types.uint32[::1])
def crc32_spans(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    found: NDArray[np.uint32],
) -> None:
    """Write the CRC-32 of every data[start : start + length] into `found`."""
    for row in range(len(starts)):
        found[row] = crc32(data, starts[row], lengths[row])
