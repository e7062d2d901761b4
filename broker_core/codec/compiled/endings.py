"""What texts end with: put behind them, or compared; the twin of broker/half_messages.py's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import types

from broker_core.codec.compiled.encoding import TEXTS
from broker_core.codec.compiled.words import (
    BOOLEAN,
    BYTES,
    BYTES_OUT,
    INT32S,
    INT32S_OUT,
    INT64S,
    copy,
    kernel,
    load_byte,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.compiled.arguments import Texts

_ZERO = 0x30


@kernel(types.void, TEXTS, types.Tuple((BYTES, INT64S)), INT32S, BYTES_OUT, INT32S_OUT)
def join_endings(
    texts: Texts,
    endings: tuple[NDArray[np.uint8], NDArray[np.int64]],
    codes: NDArray[np.int32],
    out: NDArray[np.uint8],
    bounds: NDArray[np.int32],
) -> None:
    """Put ending codes[i] behind text i: all of them one after another, and their bounds."""
    data, starts, lengths = texts
    ending_data, ending_bounds = endings
    at = 0
    bounds[0] = 0
    for row in range(len(starts)):
        copy(out, at, data, starts[row], lengths[row])
        at += lengths[row]
        begin = ending_bounds[codes[row]]
        length = ending_bounds[codes[row] + 1] - begin
        copy(out, at, ending_data, begin, length)
        at += length
        bounds[row + 1] = at


@kernel(BOOLEAN, TEXTS, BYTES, INT32S_OUT)
def read_last_digits(texts: Texts, ending: NDArray[np.uint8], digits: NDArray[np.int32]) -> bool:
    """Read the digit before the last byte of each text; whether all end alike but for it.

    What is compared is `ending`, in which that digit does not count.
    """
    data, starts, lengths = texts
    width = len(ending)
    for row in range(len(starts)):
        if lengths[row] < width:
            return False
        begin = starts[row] + lengths[row] - width
        differs = np.uint8(0)
        for place in range(width - 2):
            differs |= load_byte(data, begin + place) ^ ending[place]
        differs |= load_byte(data, begin + width - 1) ^ ending[width - 1]
        digit = np.int32(load_byte(data, begin + width - 2)) - _ZERO
        if differs != 0 or digit < 0 or digit > 9:
            return False
        digits[row] = digit
    return True
