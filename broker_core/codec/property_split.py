"""Properties texts cut at every separator: many texts at once, no assumption about any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.gather import fixed_width, span_arrays

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_NAME_END = 1
_VALUE_END = 2


@dataclass(frozen=True)
class Segments:
    """Every `name 0x01 value` of many texts, in order; `text` is those texts joined.

    Segment i is of row rows[i]; its name is text[begins[i] : splits[i]] and its value
    text[splits[i] + 1 : ends[i]], neither of them empty. Row r begins at row_starts[r].
    """

    text: NDArray[np.uint8]
    rows: NDArray[np.int64]
    begins: NDArray[np.int64]
    splits: NDArray[np.int64]
    ends: NDArray[np.int64]
    row_starts: NDArray[np.int64]

    def named(self, name: bytes) -> NDArray[np.intp]:
        """Numbers of the segments with this name."""
        hits = np.flatnonzero(self.splits - self.begins == len(name))
        if not len(hits):
            return hits
        names = fixed_width(self.text, self.begins[hits], len(name))
        return hits[(names == np.frombuffer(name, dtype=np.uint8)).all(axis=1)]


def split_texts(texts: pa.Array) -> Segments:
    """Cut each text at its separators; segments without name or value are left out."""
    text, row_starts, lengths = span_arrays(texts)
    marks, is_row_end, closes = _marks(text, row_starts + lengths)
    closing = np.flatnonzero(closes)
    ends = marks[closing]
    # The next segment begins behind what closes one: behind a separator, but at a row's end.
    begins = np.empty_like(ends)
    begins[:1] = row_starts[:1]
    begins[1:] = ends[:-1] + ~is_row_end[closing[:-1]]
    # Its first mark ends the name; one without a name's end meets what closes it first.
    first = np.zeros_like(closing)
    first[1:] = closing[:-1] + 1
    splits = marks[first]
    rows = np.zeros_like(closing)
    np.cumsum(is_row_end[closing[:-1]], out=rows[1:])
    keep = (splits > begins) & (splits + 1 < ends)
    return Segments(text, rows[keep], begins[keep], splits[keep], ends[keep], row_starts)


def _marks(
    text: NDArray[np.uint8], row_ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """(places of all separators and row ends in order, which are row ends, which close a segment).

    A row's end closes its last segment like a separator does.
    """
    separators = np.flatnonzero(text - np.uint8(_NAME_END) <= _VALUE_END - _NAME_END)
    at = np.searchsorted(separators, row_ends) + np.arange(len(row_ends))
    is_row_end = np.zeros(len(separators) + len(row_ends), dtype=np.bool_)
    is_row_end[at] = True
    marks = np.empty(len(is_row_end), dtype=np.int64)
    marks[at] = row_ends
    marks[~is_row_end] = separators
    closes = is_row_end.copy()
    closes[~is_row_end] = text[separators] == _VALUE_END
    return marks, is_row_end, closes
