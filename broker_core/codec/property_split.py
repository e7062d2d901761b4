"""Properties texts of many records, cut at their separators all at once.

The texts are copied out together with one byte before each, which becomes a separator: then every
separator begins a segment and the next one ends it, whether or not a text ends with one of its own.
What a segment means follows properties.parse_properties: `name 0x01 value`, neither empty, else
it does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.gather import integers, span_arrays, spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAME_END = 1
_VALUE_END = 2
_WORD = 8


@dataclass(frozen=True)
class Segments:
    """Segment i is text[begins[i] : ends[i]]; those of one row follow one another.

    Row r begins behind its own separator text[row_starts[r]]. `text` goes on for a few bytes that
    belong to no segment, so that a word can be read wherever a segment begins.
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
        # Most batches have equally many properties in every row.
        if rows * count == segments and bool((self.begins[::count] == self.row_starts + 1).all()):
            return np.repeat(np.arange(rows), count)
        firsts = np.searchsorted(self.begins, self.row_starts, side="right")
        return np.repeat(np.arange(rows), np.diff(firsts, append=segments))

    def named(self, name: str) -> NDArray[np.intp]:
        """Numbers of the segments that have this name and a value."""
        key = name.encode() + bytes([_NAME_END])
        if not name or _NAME_END in key[:-1] or _VALUE_END in key:
            return np.empty(0, dtype=np.intp)
        mask = (1 << 8 * min(len(key), _WORD)) - 1
        first = int.from_bytes(key[:_WORD], "little")
        hits: NDArray[np.intp] = np.flatnonzero((self.words & np.uint64(mask)) == first)
        hits = hits[self.begins[hits] + len(key) < self.ends[hits]]
        # The rest of a long name, word by word; the last word reaches back into the one before.
        for at in range(_WORD, len(key), _WORD):
            place = min(at, len(key) - _WORD)
            word = int.from_bytes(key[place : place + _WORD], "little")
            hits = hits[integers(self.text, self.begins[hits] + place, "<u8") == word]
        return hits

    def with_names(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """(numbers of the segments that have a name and a value, where those names end)."""
        name_ends = np.flatnonzero(self.text == _NAME_END)
        name_ends = np.append(name_ends, len(self.text))
        splits = name_ends[np.searchsorted(name_ends, self.begins)]
        hits = np.flatnonzero((splits > self.begins) & (splits + 1 < self.ends))
        return hits, splits[hits]


def split_texts(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Segments:
    """Cut the texts buffer[start : start + length] into segments; no text begins at 0."""
    joined, row_starts, _ = span_arrays(spans(buffer, starts - 1, lengths + 1))
    text = np.concatenate([joined, np.zeros(_WORD, dtype=np.uint8)])
    text[row_starts] = _VALUE_END
    marks = np.flatnonzero(text == _VALUE_END)
    begins = marks + 1
    ends = np.append(marks[1:], len(joined))
    return Segments(text, row_starts, begins, ends)
