"""Arguments of kernels: contiguous arrays of the one type that a kernel is compiled for.

An array that is so already is not copied. Spans become plain tuples: a kernel's signature has no
named tuples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    KernelSpans = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]
    """Data, starts, lengths."""


def octets(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return bytes, contiguous."""
    return np.ascontiguousarray(values)


def ints(values: NDArray[Any] | int) -> NDArray[np.int32]:
    """Return a column of 32-bit integers; one number for all rows becomes one element."""
    return np.ascontiguousarray(np.atleast_1d(values), dtype=np.int32)


def longs(values: NDArray[Any] | int) -> NDArray[np.int64]:
    """Return a column of 64-bit integers; one number for all rows becomes one element."""
    return np.ascontiguousarray(np.atleast_1d(values), dtype=np.int64)


def spans(data: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any]) -> KernelSpans:
    """Return the texts data[start : start + length]."""
    return octets(data), longs(starts), longs(lengths)


def joined(parts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return texts one after another in one buffer, and their bounds."""
    bounds = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return np.frombuffer(b"".join(parts), dtype=np.uint8), bounds
