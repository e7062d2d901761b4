"""Java's String.hashCode, which RocketMQ stores for tags and index keys.

Over UTF-16 code units, h = 31 * h + unit, wrapping at 32 bits, signed. `java_hash` hashes one text,
`hash_spans` many by NumPy; for large ASCII batches of records index_keys_kernels.py has a twin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np

from broker_core.codec.spans import fixed_width, is_ascii, spans_of

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from broker_core.codec.spans import Spans

_BLOCK_BYTES = 1 << 16
_SHORT_BYTES = 64


def java_hash(text: str, seed: int = 0) -> int:
    """Return the signed 32-bit hash of a string behind a text whose hash is `seed`.

    >>> java_hash("TagA"), java_hash("Aa") == java_hash("BB"), java_hash("polygenelubricants")
    (2598919, True, -2147483648)
    """
    value = seed & 0xFFFFFFFF
    for unit in text.encode() if text.isascii() else _units(text):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _units(text: str) -> list[int]:
    units = np.frombuffer(text.encode("utf-16-be", "surrogatepass"), dtype=">u2")
    return cast("list[int]", units.tolist())


def index_hash(value: int) -> int:
    """Return the non-negative form that index files store: |hash|, and 0 where that overflows."""
    return 0 if value == -(1 << 31) else abs(value)


def index_hashes(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return `index_hash` of many hashes."""
    return np.abs(np.where(values == np.iinfo(np.int32).min, 0, values)).astype(np.int32)


def java_hashes(texts: pa.Array) -> NDArray[np.int32]:
    """Return the hash of every element of a string or binary array (UTF-8); nulls hash to 0."""
    return hash_spans(spans_of(texts)).values


@dataclass(frozen=True)
class TextHashes:
    """Hashes of many texts, and the length of each text in UTF-16 units."""

    values: NDArray[np.int32]
    units: NDArray[np.int64]

    def behind(self, seeds: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the hashes of these texts, each behind a text whose hash is its seed.

        With java_hash("a#") as its seed the hash of "b" becomes java_hash("a#b").
        """
        powers = _powers(int(self.units.max(initial=0)) + 1)
        return seeds * powers[self.units] + self.values


def hash_spans(spans: Spans) -> TextHashes:
    """Return the hash of each UTF-8 text."""
    buffer, starts, lengths = spans
    values, units = np.zeros(len(starts), dtype=np.int32), lengths.copy()
    ends = spans.ends
    for rows, width in _batches(ends, lengths):
        texts = fixed_width(buffer, ends[rows] - width, width)
        if bool((lengths[rows] < width).any()):
            texts &= _masks(width)[lengths[rows]]
        # The sum of unit * 31 ** (units behind it); int32 wraps as Java's int does.
        values[rows] = np.einsum("ij,j->i", texts.astype(np.int32), _powers(width)[::-1])
        if is_ascii(texts.reshape(-1)):
            continue
        # Bytes are UTF-16 units only in ASCII. Other texts are few: one by one.
        for row in np.arange(len(starts))[rows][texts.max(axis=1) >= 0x80].tolist():
            text = buffer[starts[row] : ends[row]].tobytes().decode("utf-8", "replace")
            values[row] = java_hash(text)
            units[row] = len(text.encode("utf-16-be")) // 2
    return TextHashes(values, units)


def _batches(
    ends: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Iterator[tuple[slice | NDArray[np.intp], int]]:
    """Yield rows to hash together, and the number of bytes to read before the end of each.

    Short texts of all lengths go together, aligned at their ends; what stands before the shorter
    ones is blanked, since zeros before a text do not change its hash. That needs enough bytes
    before each. Other texts go together by length. Rows with an empty text may be left out.
    """
    # For 1000 keys of 1 to 60 bytes aligning is 15 times faster than going by length.
    longest = int(lengths.max(initial=0))
    if 0 < longest <= _SHORT_BYTES and int(ends.min()) >= longest:
        step = _BLOCK_BYTES // longest
        yield from ((slice(at, at + step), longest) for at in range(0, len(ends), step))
        return
    order = np.argsort(lengths, kind="stable")
    bounds = (np.flatnonzero(np.diff(lengths[order])) + 1).tolist()
    for first, last in zip([0, *bounds], [*bounds, len(order)], strict=True):
        width = int(lengths[order[first]]) if last else 0
        step = max(1, _BLOCK_BYTES // max(1, width))
        for at in range(first, last if width else first, step):
            yield order[at : min(at + step, last)], width


@lru_cache(maxsize=256)
def _masks(width: int) -> NDArray[np.uint8]:
    """Return masks whose row n keeps the last n of `width` bytes."""
    positions = np.arange(width)
    counts = np.arange(width + 1)[:, np.newaxis]
    return np.where(positions >= width - counts, 0xFF, 0).astype(np.uint8)


@lru_cache(maxsize=1024)
def _powers(count: int) -> NDArray[np.int32]:
    """Return 31 to the power of 0, 1, ... modulo 2^32."""
    powers = np.full(count, 31, dtype=np.int32)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.int32)
