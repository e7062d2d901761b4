"""Conversion of a column of texts to numbers; convert.py is its twin for one text.

Plain numerals (`-?digits`, and `-?digits.digits` for doubles) are found by adding up byte classes
and go through Arrow's cast, which agrees with Java on these. All others, from `+5` and `1e3` to
what is no number at all, go through the scalar conversion, each distinct text once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.filter.sql92.convert import text_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.filter.sql92.tree import Width

# Sums of these over a numeral of at most 40 bytes tell how many of each class it has.
_DOT, _MINUS, _OTHER = 1, 64, 4096
_WEIGHTS = np.full(256, _OTHER, np.uint32)
_WEIGHTS[ord("0") : ord("9") + 1] = 0
_WEIGHTS[ord(".")] = _DOT
_WEIGHTS[ord("-")] = _MINUS

_MAX_DIGITS = {"int32": 18, "int64": 18, "double": 40}
_INT32 = np.iinfo(np.int32)
_INT64_MAX = np.int64(np.iinfo(np.int64).max)


class Keys(NamedTuple):
    """Integers by which texts are compared; `valid` is false where a text is no number."""

    values: NDArray[np.int64]
    valid: NDArray[np.bool_]


def column_keys(texts: pa.Array, width: Width) -> Keys:
    """Return keys of all texts at this width, as `text_key` of each; null texts have none."""
    present: NDArray[np.bool_] = texts.is_valid().to_numpy(zero_copy_only=False)
    plain = present & _is_plain(texts, width)
    odd = np.flatnonzero(present & ~plain)
    if not len(odd):
        values, valid = _cast(texts, width), plain
    else:
        values, valid = np.zeros(len(texts), np.int64), plain.copy()
        values[plain] = _cast(texts.filter(pa.array(plain)), width)
        values[odd], valid[odd] = _one_by_one(texts.take(pa.array(odd)), width)
    if width == "int32":
        valid &= (values >= _INT32.min) & (values <= _INT32.max)
    return Keys(values, valid)


def _is_plain(texts: pa.Array, width: Width) -> NDArray[np.bool_]:
    """Return where a text, if not null, is a numeral that Arrow's cast reads as Java does."""
    data, starts, sizes = _layout(texts)
    if not len(data):
        return np.zeros(len(texts), np.bool_)
    if _all_digits(data):
        return np.asarray((sizes >= 1) & (sizes <= _MAX_DIGITS[width]))

    sums = np.zeros(len(data) + 1, np.uint32)
    np.cumsum(_WEIGHTS[data], out=sums[1:])  # wraps, which differences of short texts don't mind
    weight = sums[starts + sizes] - sums[starts]

    last_byte = len(data) - 1
    negative = data[np.minimum(starts, last_byte)] == ord("-")
    weight -= negative * np.uint32(_MINUS)
    digits = sizes - negative
    plain = (digits >= 1) & (digits <= _MAX_DIGITS[width])
    if width != "double":
        return np.asarray(plain & (weight == 0))
    first = data[np.minimum(starts + negative, last_byte)]
    last = data[np.maximum(starts + sizes - 1, 0)]
    return np.asarray(plain & (weight <= _DOT) & (first != ord(".")) & (last != ord(".")))


def _all_digits(data: NDArray[np.uint8]) -> bool:
    return bool(data.min() >= ord("0") and data.max() <= ord("9"))


def _layout(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the bytes of all texts, and each one's start in them and length."""
    _, offsets_buffer, data_buffer = texts.buffers()
    dtype = np.dtype(np.int64 if pa.types.is_large_string(texts.type) else np.int32)
    first = texts.offset * dtype.itemsize
    offsets = np.frombuffer(offsets_buffer, dtype, len(texts) + 1, first).astype(np.int64)
    if data_buffer is None:
        data = np.zeros(0, np.uint8)
    else:
        data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets[:-1] - offsets[0]
    return data, starts, np.diff(offsets)


def _cast(texts: pa.Array, width: Width) -> NDArray[np.int64]:
    """Return the keys of plain numerals, 0 for null."""
    numbers = texts.cast(pa.float64() if width == "double" else pa.int64())
    values = (numbers.fill_null(0) if numbers.null_count else numbers).to_numpy()
    bits: NDArray[np.int64] = values.view(np.int64)
    return np.where(bits < 0, bits ^ _INT64_MAX, bits) if width == "double" else bits


def _one_by_one(texts: pa.Array, width: Width) -> Keys:
    """Return the keys of texts by `text_key`, each distinct text once."""
    encoded = pc.dictionary_encode(texts)
    keys = [text_key(text, width) for text in encoded.dictionary.to_pylist()]
    values = np.array([key or 0 for key in keys], np.int64)
    valid = np.array([key is not None for key in keys], np.bool_)
    rows = encoded.indices.to_numpy()
    return Keys(values[rows], valid[rows])
