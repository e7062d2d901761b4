"""Finding properties by name in many records at once.

Rows that share a layout are looked up in it (property_layouts.py); the others are cut at their
separators (property_split.py). Both give what properties.parse_properties gives. Large batches are
searched by a compiled loop that does the same (compiled/properties.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.properties.pieces import Pieces
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
    segments = split_texts(texts)
    shift = starts - (segments.row_starts + 1)
    return [_values_named(segments, name, texts, shift) for name in names]


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


def _values_named(segments: Pieces, name: str, texts: Spans, shift: NDArray[np.int64]) -> Spans:
    """Find the values of one name; `shift` leads from the segments' text back to each row's own."""
    starts, lengths = texts.starts.astype(np.int64), np.zeros(len(texts.starts), dtype=np.int64)
    hits = segments_named(segments, name)
    rows = segments.rows[hits]
    begins = segments.begins[hits] + (len(name.encode()) + 1)
    # Assigned in text order, so that of two entries with one name the last stays.
    starts[rows] = begins + shift[rows]
    lengths[rows] = segments.ends[hits] - begins
    return Spans(texts.data, starts, lengths)
