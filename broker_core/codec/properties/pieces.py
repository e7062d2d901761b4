"""Many texts cut at a separator, all at once.

The texts are copied out together with the byte before each, which becomes a separator: then every
separator begins a piece and the next one ends it, whether or not a text ends with one of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.spans import Spans, gather_spans, integers, spans_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD_BYTES = 8


@dataclass(frozen=True)
class Pieces:
    """Piece i is text[begins[i] : ends[i]]; those of one row follow one another.

    A row has one piece more than separators; pieces may be empty. Row r begins behind its own
    separator text[row_starts[r]]. `text` goes on for some bytes that belong to no piece, so that
    a word can be read wherever a piece begins.
    """

    text: NDArray[np.uint8]
    row_starts: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """The eight bytes at the beginning of each piece, as one number."""
        return integers(self.text, self.begins, "<u8")

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of each piece."""
        rows, pieces = len(self.row_starts), len(self.begins)
        count = pieces // rows if rows else 1
        # Often all rows have equally many.
        if rows * count == pieces and bool((self.begins[::count] == self.row_starts + 1).all()):
            return np.repeat(np.arange(rows), count)
        firsts = np.searchsorted(self.begins, self.row_starts, side="right")
        return np.repeat(np.arange(rows), np.diff(firsts, append=pieces))


def cut(texts: Spans, separator: int) -> Pieces:
    """Cut texts at a byte; none may begin at position 0 of its data."""
    joined, row_starts, _ = spans_of(
        gather_spans(Spans(texts.data, texts.starts - 1, texts.lengths + 1))
    )
    text = np.concatenate([joined, np.zeros(WORD_BYTES, dtype=np.uint8)])
    text[row_starts] = separator
    marks = np.flatnonzero(text[: len(joined)] == separator)
    ends = np.append(marks[1:], len(joined))
    return Pieces(text, row_starts, marks + 1, ends)
