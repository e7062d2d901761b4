"""Properties texts of many records, cut at their separators: no assumption about any of them.

A segment is what lies between two separators. What it means follows properties.parse_properties:
`name 0x01 value`, neither of them empty, else it does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.properties.pieces import WORD_BYTES, Pieces, cut
from broker_core.codec.spans import Spans, integers

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAME_END = 1
_VALUE_END = 2


def split_texts(texts: Spans) -> Pieces:
    """Return the segments of each properties text."""
    return cut(texts, _VALUE_END)


def segments_named(segments: Pieces, name: str) -> NDArray[np.intp]:
    """Numbers of the segments that have this name and a value."""
    key = name.encode() + bytes([_NAME_END])
    if not name or _NAME_END in key[:-1] or _VALUE_END in key:
        return np.empty(0, dtype=np.intp)
    mask = (1 << 8 * min(len(key), WORD_BYTES)) - 1
    first = int.from_bytes(key[:WORD_BYTES], "little")
    hits = np.flatnonzero((segments.words & np.uint64(mask)) == first)
    hits = hits[segments.begins[hits] + len(key) < segments.ends[hits]]
    # The rest of a long name, word by word; the last word reaches back into the one before.
    for at in range(WORD_BYTES, len(key), WORD_BYTES):
        place = min(at, len(key) - WORD_BYTES)
        word = int.from_bytes(key[place : place + WORD_BYTES], "little")
        hits = hits[integers(segments.text, segments.begins[hits] + place, "<u8") == word]
    return hits


def segments_with_names(segments: Pieces) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """(numbers of the segments that have a name and a value, where their names end)."""
    name_ends = np.append(np.flatnonzero(segments.text == _NAME_END), len(segments.text))
    splits = name_ends[np.searchsorted(name_ends, segments.begins)]
    hits = np.flatnonzero((splits > segments.begins) & (splits + 1 < segments.ends))
    return hits, splits[hits]
