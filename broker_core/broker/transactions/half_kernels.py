"""What texts end with, compared; the twin of broker/half_messages.py's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.jit.compiler import (
    BOOLEAN,
    BYTES,
    INT32S_OUT,
    SPANS,
    kernel,
    load_byte,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.jit.arguments import KernelSpans

_ZERO = 0x30


@kernel(BOOLEAN, SPANS, BYTES, INT32S_OUT)
def read_last_digits(
    texts: KernelSpans, ending: NDArray[np.uint8], digits: NDArray[np.int32]
) -> bool:
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
