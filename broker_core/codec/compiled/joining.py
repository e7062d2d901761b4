"""Texts joined from columns, row by row; the twin of properties_text.py's and ids.py's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from broker_core.codec.compiled.encoding import TEXTS
from broker_core.codec.compiled.words import (
    BYTES,
    BYTES_OUT,
    INT32S_OUT,
    INT64,
    INT64S,
    copy,
    kernel,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from broker_core.codec.compiled.arguments import Texts

COLUMNS = 4
"""How many columns are joined at once."""

_DIGITS = b"0123456789ABCDEF"


@kernel(
    types.void,
    types.UniTuple(TEXTS, COLUMNS),
    types.Tuple((BYTES, INT64S)),
    BYTES_OUT,
    INT32S_OUT,
)
def join_columns(
    columns: tuple[Texts, ...],
    literals: tuple[NDArray[np.uint8], NDArray[np.int64]],
    out: NDArray[np.uint8],
    bounds: NDArray[np.int32],
) -> None:
    """Join literal 0, column 0, literal 1, column 1, ... and the last literal in every row.

    There is one literal more than columns; where fewer columns are joined than there can be, the
    others have no rows.
    """
    text, ends = literals
    count = len(ends) - 2
    at = 0
    bounds[0] = 0
    for row in range(len(bounds) - 1):
        for number in range(count):
            length = ends[number + 1] - ends[number]
            copy(out, at, text, ends[number], length)
            at += length
            data, starts, lengths = columns[number]
            copy(out, at, data, starts[row], lengths[row])
            at += lengths[row]
        length = ends[count + 1] - ends[count]
        copy(out, at, text, ends[count], length)
        at += length
        bounds[row + 1] = at


@kernel(types.void, BYTES, INT64, INT64, BYTES_OUT)
def write_ids(maker: NDArray[np.uint8], first: int, digits: int, out: NDArray[np.uint8]) -> None:
    """Fill `out` with ids: the maker, and numbers from `first` on as so many hex digits."""
    width = len(maker) + digits
    for row in range(len(out) // width):
        at = row * width
        copy(out, at, maker, 0, len(maker))
        number = first + row
        for place in range(at + width - 1, at + len(maker) - 1, -1):
            out[place] = _DIGITS[number & 15]
            number >>= 4
