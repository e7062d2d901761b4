"""Finding properties by name in many records at once.

Rows that share a layout are looked up in it (property_layouts.py); the others are cut at their
separators (property_split.py). Both give what properties.parse_properties gives. Large batches are
searched by a compiled loop that does the same (compiled/properties.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.properties.layouts import Layout, part_by_layout
from broker_core.codec.properties.split import segments_named, split_texts
from broker_core.codec.spans import Spans
from broker_core.jit import arguments, kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray


def find_values(texts: Spans, names: Sequence[str]) -> list[Spans]:
    """Find the values of these names in properties texts: spans of each name, in its order.

    Absent values have the text's own start, so that spans stay in increasing order. No text
    begins at 0: there its length would be.
    """
    if not names:
        return []
    starts = texts.starts
    if kernels.is_worth(len(starts)):
        values = _find_compiled(texts, names)
        if values is not None:
            return values
    layouts: list[Layout] = [{}]
    codes = np.zeros(len(starts), dtype=np.intp)
    leftover = []
    for rows, layout in part_by_layout(*texts):
        if layout is not None and len(rows) == len(starts):
            return [_same_values(texts, layout, name.encode()) for name in names]
        if layout is None:
            leftover.append(rows)
        else:
            codes[rows] = len(layouts)
            layouts.append(layout)
    found = [_values(texts, codes, layouts, name.encode()) for name in names]
    if leftover:
        rows = np.sort(np.concatenate(leftover))
        _split_rows(texts, rows, names, found)
    return found


def _find_compiled(texts: Spans, names: Sequence[str]) -> list[Spans] | None:
    """The same by a kernel; None for a buffer so small that it can't read a block of it."""
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


def _same_values(texts: Spans, layout: Layout, name: bytes) -> Spans:
    """Where the value of a name lies in rows that all have one layout."""
    begin, end = layout.get(name, (0, 0))
    lengths = np.full(len(texts.starts), end - begin, dtype=np.int64)
    return Spans(texts.data, texts.starts + begin, lengths)


def _values(texts: Spans, codes: NDArray[np.intp], layouts: list[Layout], name: bytes) -> Spans:
    """Where the value of a name lies in rows whose layouts are known."""
    places = [layout.get(name, (0, 0)) for layout in layouts]
    begins = np.array([begin for begin, _ in places], dtype=np.int64)
    sizes = np.array([end - begin for begin, end in places], dtype=np.int64)
    return Spans(texts.data, texts.starts + begins[codes], sizes[codes])


def _split_rows(
    texts: Spans, rows: NDArray[np.intp], names: Sequence[str], found: list[Spans]
) -> None:
    """Find the names in these rows by their separators alone."""
    segments = split_texts(texts.take(rows))
    shift = texts.starts[rows] - (segments.row_starts + 1)
    for values, name in zip(found, names, strict=True):
        hits = segments_named(segments, name)
        row = segments.rows[hits]
        begins = segments.begins[hits] + (len(name.encode()) + 1)
        # Assigned in text order, so that of two entries with one name the last stays.
        values.starts[rows[row]] = begins + shift[row]
        values.lengths[rows[row]] = segments.ends[hits] - begins
