"""Lists of decimal numbers, written and read; the twin of broker/op_messages.py's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.jit.compiler import BYTES, BYTES_OUT, INT64, INT64S, INT64S_OUT, kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_COMMA = 0x2C
_ZERO = 0x30


@kernel(INT64, INT64S, BYTES_OUT, INT64S_OUT)
def format_numbers(
    numbers: NDArray[np.int64], out: NDArray[np.uint8], ends: NDArray[np.int64]
) -> int:
    """Write numbers, none of them negative, each with a comma behind it; how many bytes.

    `ends` are where they end. `out` has room for as many digits as the largest has, everywhere.
    """
    at = 0
    for row in range(len(numbers)):
        rest = numbers[row]
        digits = 1
        while rest >= 10:
            rest //= 10
            digits += 1
        rest = numbers[row]
        for place in range(at + digits - 1, at - 1, -1):
            out[place] = _ZERO + rest % 10
            rest //= 10
        at += digits
        out[at] = _COMMA
        at += 1
        ends[row] = at
    return at


@kernel(INT64, BYTES, INT64S, INT64S_OUT, INT64S_OUT)
def parse_numbers(
    text: NDArray[np.uint8],
    body_ends: NDArray[np.int64],
    values: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> int:
    """Read the numbers of a text of digits and commas; how many there are.

    A number ends at a comma or at one of `body_ends`, the last of which is the text's own end.
    """
    count = 0
    at = 0
    for body in range(len(body_ends)):
        value, digits = 0, 0
        while at < body_ends[body]:
            if text[at] == _COMMA:
                if digits:
                    values[count], ends[count] = value, at
                    count += 1
                value, digits = 0, 0
            else:
                value = value * 10 + (text[at] - _ZERO)
                digits += 1
            at += 1
        if digits:
            values[count], ends[count] = value, at
            count += 1
    return count
