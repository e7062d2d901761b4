"""String columns of raw bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from broker_core.codec.gather import is_ascii, regular_offsets, spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.properties.search import ValueSpans


def strings(raw: pa.Array) -> pa.Array:
    """Binary as UTF-8 text; what is not UTF-8 becomes U+FFFD, as in Java."""
    _, offsets, data = raw.buffers()
    if data is None or is_ascii(np.frombuffer(data, dtype=np.uint8)):
        return pa.Array.from_buffers(
            pa.string(), len(raw), [None, offsets, data], offset=raw.offset
        )
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [item.decode("utf-8", "replace") for item in raw.to_pylist()]
        return pa.array(texts, type=pa.string())


def value_column(buffer: NDArray[np.uint8], value: ValueSpans) -> pa.Array:
    """A property's values as strings, null where the row has none."""
    text = strings(spans(buffer, value.starts, value.lengths))
    absent = value.lengths == 0
    if not absent.any():
        return text
    _, offsets, data = text.buffers()
    present = np.packbits(~absent, bitorder="little")
    return pa.Array.from_buffers(
        pa.string(), len(text), [pa.py_buffer(present), offsets, data], offset=text.offset
    )


def fixed_strings(text: NDArray[np.uint8]) -> pa.Array:
    """The rows of a matrix of ASCII characters as strings."""
    rows, width = text.shape
    return pa.Array.from_buffers(
        pa.string(), rows, [None, regular_offsets(rows, width), pa.py_buffer(text)]
    )


@lru_cache(maxsize=16)
def repeated(text: str, count: int) -> pa.Array:
    """One text in every row; batches of one size share it, for arrays never change."""
    return pa.repeat(pa.scalar(text), count)
