"""Texts joined from columns, row by row; the twin of properties_text.py's and ids.py's."""

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
    """One behind the other, with their bounds."""
    Joined = tuple[tuple[KernelSpans, ...], Literals]

COLUMNS = 4
"""How many columns are joined at once."""

_TICK_DIGITS = 12
_ONES = np.uint64(0x0101010101010101)
_ZERO = np.uint64(ord("0"))
_TO_LETTERS = np.uint64(ord("A") - ord("9") - 1)


JOINED = types.Tuple((types.UniTuple(SPANS, COLUMNS), types.Tuple((BYTES, INT64S))))


@inlined
def put_bytes(
    out: NDArray[np.uint8],
    at: int,
    data: NDArray[np.uint8],
    start: int,
    length: int,
) -> int:
    """Put some bytes; where they end."""
    copy(out, at, data, start, length)
    end: int = at + length
    return end


@kernel(types.void, JOINED, BYTES_OUT, INT32S_OUT)
def join_columns(joined: Joined, out: NDArray[np.uint8], bounds: NDArray[np.int32]) -> None:
    """Join literal 0, column 0, literal 1, column 1, ... and the last literal in every row.

    There is one literal more than columns; where fewer columns are joined than there can be, the
    others have no rows. The texts lie one behind the other.
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
    """The eight upper-case digits of a number of 32 bits, the first one highest."""
    spread = (number | number << np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    spread = (spread | spread << np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    spread = (spread | spread << np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    # Six more than nine carry into the upper half of a byte.
    is_letter = (spread + np.uint64(0x0606060606060606)) >> np.uint64(4) & _ONES
    return spread + _ONES * _ZERO + is_letter * _TO_LETTERS


@kernel(types.void, BYTES, INT64, BYTES_OUT)
def write_ids(maker: NDArray[np.uint8], first: int, out: NDArray[np.uint8]) -> None:
    """Fill `out` with ids: the maker, and numbers from `first` on as twelve hex digits."""
    made = len(maker)
    width = made + _TICK_DIGITS
    for row in range(len(out) // width):
        at = row * width
        number = np.uint64(first + row)
        store_i64(out, at + made + 4, hex_digits(number & np.uint64(0xFFFFFFFF)))
        upper = hex_digits(number >> np.uint64(32) & np.uint64(0xFFFF))
        store_i32(out, at + made, upper)
        copy(out, at, maker, 0, made)
