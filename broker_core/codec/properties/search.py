"""Search for properties by name in many texts: the NumPy twin of search_kernels.py.

The kernel runs for at least WORTH_ROWS texts, this one for fewer and without Numba. Both
give what parse_properties (text.py) gives for one text. Here all texts are cut at 0x02 at once; a
segment between two separators is `name 0x01 value`, neither of them empty, or it does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.spans import Spans, gather_spans, integers, spans_of
from broker_core.jit import arguments, availability

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD_BYTES = 8
_BLOCK_BYTES = 64
"""BLOCK_BYTES of search_kernels.py, known here without loading Numba."""
_NAME_END = 1
_VALUE_END = 2


def find_values(texts: Spans, names: Sequence[str]) -> list[Spans]:
    """Return the spans of the values of each name, in the order of the names.

    An absent value has length 0 and the text's own start, so that spans stay in increasing order.
    No text may begin at position 0; in a record its length lies before it.
    """
    if not names:
        return []
    starts = texts.starts
    if availability.is_worth(len(starts)):
        values = _find_compiled(texts, names)
        if values is not None:
            return values
    segments = split_texts(texts)
    shift = starts - (segments.row_starts + 1)
    return [_values_named(segments, name, texts, shift) for name in names]


def count_named(texts: Spans, names: Sequence[str]) -> NDArray[np.int64]:
    """Return how many properties of each text have one of these names."""
    counts = np.zeros(len(texts.starts), dtype=np.int64)
    rows = np.arange(len(counts))
    if availability.is_worth(len(counts)) and len(texts.data) >= _BLOCK_BYTES:
        from broker_core.codec.properties.search_kernels import sieve_of, sift_spans

        rows = rows[: sift_spans(*arguments.spans(*texts), sieve_of(names), rows)]
    if len(rows):
        counts[rows] = _count_named(
            Spans(texts.data, texts.starts[rows], texts.lengths[rows]), names
        )
    return counts


def _count_named(texts: Spans, names: Sequence[str]) -> NDArray[np.int64]:
    # A byte before the first text, which may begin at position 0.
    data = np.concatenate([np.zeros(1, dtype=np.uint8), texts.data])
    segments = split_texts(Spans(data, texts.starts + 1, texts.lengths))
    hits = [segments.rows[segments_named(segments, name)] for name in names]
    found = np.concatenate(hits) if hits else np.zeros(0, dtype=np.int64)
    return np.bincount(found, minlength=len(texts.starts)).astype(np.int64)


def decimal_numbers(values: pa.Array, otherwise: int) -> NDArray[np.int64]:
    """Return a column of decimal text as numbers; what is none, or too long, is `otherwise`."""
    is_number = pc.match_substring_regex(values, "^[0-9]{1,15}$").fill_null(False)
    digits = pc.if_else(is_number, values, pa.scalar(str(otherwise), type=values.type))
    numbers: NDArray[np.int64] = digits.cast(pa.string()).cast(pa.int64()).to_numpy()
    return numbers.copy()


def _find_compiled(texts: Spans, names: Sequence[str]) -> list[Spans] | None:
    """Search by the kernel; None for a buffer shorter than the block that it reads."""
    from broker_core.codec.properties.search_kernels import BLOCK_BYTES, find_spans, keys_of

    if len(texts.data) < BLOCK_BYTES:
        return None
    found = np.empty((2, len(names), len(texts.starts)), dtype=np.int64)
    find_spans(
        *arguments.spans(*texts),
        keys_of(names),
        found[0].reshape(-1),
        found[1].reshape(-1),
    )
    return [Spans(texts.data, *value) for value in zip(*found, strict=True)]


def _values_named(segments: Segments, name: str, texts: Spans, shift: NDArray[np.int64]) -> Spans:
    """Find the values of one name.

    `shift` is added to a position in the segments' text to get the one in the row's own text.
    """
    starts, lengths = texts.starts.astype(np.int64), np.zeros(len(texts.starts), dtype=np.int64)
    hits = segments_named(segments, name)
    rows = segments.rows[hits]
    begins = segments.begins[hits] + (len(name.encode()) + 1)
    # Assigned in text order, so that of two entries with one name the last stays.
    starts[rows] = begins + shift[rows]
    lengths[rows] = segments.ends[hits] - begins
    return Spans(texts.data, starts, lengths)


@dataclass(frozen=True)
class Segments:
    """Segments of many texts: segment i is text[begins[i] : ends[i]]; a row's follow one another.

    A row has one segment more than separators; segments may be empty. Row r begins behind its own
    separator text[row_starts[r]]. `text` ends with eight bytes that belong to no segment, so that
    a word can be read wherever a segment begins.
    """

    text: NDArray[np.uint8]
    row_starts: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """The eight bytes at the beginning of each segment, as one number."""
        return integers(self.text, self.begins, "<u8")

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of each segment."""
        rows, segments = len(self.row_starts), len(self.begins)
        count = segments // rows if rows else 1
        # Often all rows have equally many.
        if rows * count == segments and bool((self.begins[::count] == self.row_starts + 1).all()):
            return np.repeat(np.arange(rows), count)
        firsts = np.searchsorted(self.begins, self.row_starts, side="right")
        return np.repeat(np.arange(rows), np.diff(firsts, append=segments))


def cut_texts(texts: Spans, separator: int) -> Segments:
    """Cut texts at a byte; none may begin at position 0 of its data.

    The texts are copied together with the byte before each, which becomes a separator. So every
    separator begins a segment and the next one ends it, whether or not a text ends with its own.
    """
    joined, row_starts, _ = spans_of(
        gather_spans(Spans(texts.data, texts.starts - 1, texts.lengths + 1))
    )
    text = np.concatenate([joined, np.zeros(_WORD_BYTES, dtype=np.uint8)])
    text[row_starts] = separator
    marks = np.flatnonzero(text[: len(joined)] == separator)
    ends = np.append(marks[1:], len(joined))
    return Segments(text, row_starts, marks + 1, ends)


def split_texts(texts: Spans) -> Segments:
    """Return the segments of each properties text."""
    return cut_texts(texts, _VALUE_END)


def segments_named(segments: Segments, name: str) -> NDArray[np.intp]:
    """Return the numbers of the segments that have this name and a value."""
    key = name.encode() + bytes([_NAME_END])
    if not name or _NAME_END in key[:-1] or _VALUE_END in key:
        return np.empty(0, dtype=np.intp)
    # Most segments differ from the name within the first eight bytes: one comparison of words.
    mask = (1 << 8 * min(len(key), _WORD_BYTES)) - 1
    first = int.from_bytes(key[:_WORD_BYTES], "little")
    hits = np.flatnonzero((segments.words & np.uint64(mask)) == first)
    hits = hits[segments.begins[hits] + len(key) < segments.ends[hits]]
    # The rest of a long name, word by word; the last word reaches back into the one before.
    for at in range(_WORD_BYTES, len(key), _WORD_BYTES):
        begin = min(at, len(key) - _WORD_BYTES)
        word = int.from_bytes(key[begin : begin + _WORD_BYTES], "little")
        hits = hits[integers(segments.text, segments.begins[hits] + begin, "<u8") == word]
    return hits


def segments_with_names(segments: Segments) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return (numbers of the segments that have a name and a value, where their names end)."""
    name_ends = np.append(np.flatnonzero(segments.text == _NAME_END), len(segments.text))
    splits = name_ends[np.searchsorted(name_ends, segments.begins)]
    hits = np.flatnonzero((splits > segments.begins) & (splits + 1 < segments.ends))
    return hits, splits[hits]
