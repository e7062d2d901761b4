"""Java's String.hashCode, which RocketMQ stores for tags and index keys.

Over UTF-16 code units, h = 31 * h + unit, wrapping at 32 bits, signed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.gather import fixed_width, span_arrays

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_CHUNK_BYTES = 1 << 20


def java_hash(text: str, seed: int = 0) -> int:
    """The signed 32-bit hash of one string, going on from the hash of what stands before it.

    >>> java_hash("TagA"), java_hash("Aa") == java_hash("BB"), java_hash("polygenelubricants")
    (2598919, True, -2147483648)
    """
    units = np.frombuffer(text.encode("utf-16-be", "surrogatepass"), dtype=">u2")
    value = seed & 0xFFFFFFFF
    for unit in units.tolist():
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def index_hash(value: int) -> int:
    """The non-negative form that index files store: |hash|, and 0 where that overflows."""
    return 0 if value == -(1 << 31) else abs(value)


def index_hashes(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """index_hash of many."""
    return np.abs(np.where(values == np.iinfo(np.int32).min, 0, values)).astype(np.int32)


def java_hashes(texts: pa.Array) -> NDArray[np.int32]:
    """The hash of every element of a string or binary array (UTF-8); nulls hash to 0."""
    buffer, starts, lengths = span_arrays(texts)
    return hash_spans(buffer, starts, lengths)


def hash_spans(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    seeds: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:
    """The hash of each UTF-8 text buffer[start : start + length].

    `seeds` are hashes of texts that stand before: with java_hash("a#") as the seed of "b" the
    result is java_hash("a#b").
    """
    hashes = np.zeros(len(starts), dtype=np.uint32)
    if seeds is not None:
        hashes[:] = seeds.view(np.uint32)
    if not len(starts):
        return hashes.view(np.int32)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest == longest:
        _hash_equal(buffer, starts, longest, hashes, slice(None))
    else:
        order = np.argsort(lengths, kind="stable")
        bounds = np.flatnonzero(np.diff(lengths[order], prepend=-1))
        for first, last in zip(bounds, [*bounds[1:], len(order)], strict=True):
            rows = order[first:last]
            _hash_equal(buffer, starts[rows], int(lengths[rows[0]]), hashes, rows)
    return hashes.view(np.int32)


def _hash_equal(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    length: int,
    hashes: NDArray[np.uint32],
    rows: slice | NDArray[np.intp],
) -> None:
    """Hash texts of one length, in place: ASCII by powers of 31, others one by one."""
    if length == 0:
        return
    powers = np.cumprod(np.full(length + 1, 31, dtype=np.uint32), dtype=np.uint32)
    weights = np.concatenate([powers[: length - 1][::-1], np.ones(1, dtype=np.uint32)])
    seeds = hashes[rows]
    found = np.empty(len(starts), dtype=np.uint32)
    step = max(1, _CHUNK_BYTES // length)
    for first in range(0, len(starts), step):
        chunk = fixed_width(buffer, starts[first : first + step], length)
        found[first : first + step] = np.einsum("ij,j->i", chunk.astype(np.uint32), weights)
        if int(chunk.max()) >= 0x80:
            odd = np.flatnonzero(chunk.max(axis=1) >= 0x80)
            for row in odd.tolist():
                text = chunk[row].tobytes().decode("utf-8", "replace")
                hashes_of_text = java_hash(text, int(seeds[first + row]))
                # The dot product is added to the seed below; undo that part for this row.
                base = int(seeds[first + row]) * int(powers[length - 1])
                found[first + row] = (hashes_of_text - base) & 0xFFFFFFFF
    hashes[rows] = found + seeds * powers[length - 1]
