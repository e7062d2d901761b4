"""Texts made row by row: properties texts out of columns, and unique ids.

`join_columns` is the twin of the Arrow join in `PropertyParts.joined` (join.py), `write_ids` of
the NumPy way in `UniqueIds.make` (ids.py); both run for batches that are worth it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from broker_core.jit.compiler import (
    BYTES,
    BYTES_OUT,
    INT32S_OUT,
    INT64,
    INT64S,
    SPANS,
    copy,
    inlined,
    kernel,
    store_i32,
    store_i64,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.jit.arguments import KernelSpans

    Literals = tuple[NDArray[np.uint8], NDArray[np.int64]]
    """Literals one behind the other, and their bounds."""
    KernelParts = tuple[tuple[KernelSpans, ...], Literals]

COLUMNS = 4
"""Columns that a kernel joins at once: it has one signature, so their number is fixed."""

_TICK_DIGITS = 12
_ONES = np.uint64(0x0101010101010101)
_ZERO = np.uint64(ord("0"))
_TO_LETTERS = np.uint64(ord("A") - ord("9") - 1)


PARTS = types.Tuple((types.UniTuple(SPANS, COLUMNS), types.Tuple((BYTES, INT64S))))


@inlined
def put_bytes(
    out: NDArray[np.uint8],
    at: int,
    data: NDArray[np.uint8],
    start: int,
    length: int,
) -> int:
    """Write bytes; return the position behind them."""
    copy(out, at, data, start, length)
    end: int = at + length
    return end


@kernel(types.void, PARTS, BYTES_OUT, INT32S_OUT)
def join_columns(joined: KernelParts, out: NDArray[np.uint8], bounds: NDArray[np.int32]) -> None:
    """Join literal 0, column 0, literal 1, column 1, ... and the last literal in every row.

    There is one literal more than columns; columns beyond them have no rows. The texts are written
    one behind the other, text i to out[bounds[i] : bounds[i + 1]].
    """
    columns, (text, ends) = joined
    count = len(ends) - 2
    at = 0
    bounds[0] = 0
    for row in range(len(bounds) - 1):
        for number in range(count):
            at = put_bytes(out, at, text, ends[number], ends[number + 1] - ends[number])
            data, starts, lengths = columns[number]
            at = put_bytes(out, at, data, starts[row], lengths[row])
        at = put_bytes(out, at, text, ends[count], ends[count + 1] - ends[count])
        bounds[row + 1] = at


@inlined
def hex_digits(number: Any) -> Any:
    """Return the eight upper-case hex digits of 32 bits, the first digit in the highest byte.

    Spreads the eight half bytes over eight bytes, then adds "0", and 7 more where it is a letter.
    """
    spread = (number | number << np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    spread = (spread | spread << np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    spread = (spread | spread << np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    # 10 to 15 plus 6 carry into the upper half of the byte, which marks a letter.
    is_letter = (spread + np.uint64(0x0606060606060606)) >> np.uint64(4) & _ONES
    return spread + _ONES * _ZERO + is_letter * _TO_LETTERS


@kernel(types.void, BYTES, INT64, BYTES_OUT)
def write_ids(maker: NDArray[np.uint8], first: int, out: NDArray[np.uint8]) -> None:
    """Write ids: the maker, and the numbers from `first` on as twelve hex digits."""
    made = len(maker)
    width = made + _TICK_DIGITS
    for row in range(len(out) // width):
        at = row * width
        number = np.uint64(first + row)
        # 48 bits: the eight digits of the lower 32, and the last four digits of the upper 16.
        store_i64(out, at + made + 4, hex_digits(number & np.uint64(0xFFFFFFFF)))
        upper = hex_digits(number >> np.uint64(32) & np.uint64(0xFFFF))
        store_i32(out, at + made, upper)
        copy(out, at, maker, 0, made)
