"""Finding properties in the raw text of many records at once.

Most batches were written by few producers, so most of their property texts have one layout: the
same names at the same places around values of the same lengths. Rows are grouped by text length;
in each group one row's layout is tried on all rows, eight bytes at a time, and confirmed by the
number of separators. Rows that have no group, or no common layout, go through a scan for
separators that makes no assumption. All ways give what properties.parse_properties gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.gather import fixed_width, span_arrays, spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAME_END = 1
_VALUE_END = 2
_MIN_GROUP = 64
_MAX_LAYOUTS = 8


@dataclass(frozen=True)
class ValueSpans:
    """Where one property's value lies in each row; length 0 means that the row has none."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def find_values(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    names: Sequence[str],
) -> list[ValueSpans]:
    """The values of these names in each properties text buffer[start : start + length].

    Absent values have the text's own start, so that spans stay in increasing order.
    """
    if not names:
        return []
    found = [ValueSpans(starts.copy(), np.zeros(len(starts), dtype=np.int64)) for _ in names]
    wanted = [name.encode() for name in names]
    leftover = []
    for rows, width in _groups(lengths):
        if width == 0:
            continue
        if len(rows) < _MIN_GROUP:
            leftover.append(rows)
        else:
            leftover.extend(_match_group(buffer, starts, rows, width, wanted, found))
    if leftover:
        rows = np.sort(np.concatenate(leftover))
        _scan_rows(buffer, starts, lengths, rows, wanted, found)
    return found


def _groups(lengths: NDArray[np.int64]) -> list[tuple[NDArray[np.intp], int]]:
    """Row numbers by text length."""
    if not len(lengths):
        return []
    first = int(lengths[0])
    if bool((lengths == first).all()):
        return [(np.arange(len(lengths)), first)]
    order = np.argsort(lengths.astype(np.int16), kind="stable")  # int16: sorted by radix
    ordered = lengths[order]
    bounds = np.flatnonzero(np.diff(ordered, prepend=-1)).tolist()
    return [
        (order[begin:end], int(ordered[begin]))
        for begin, end in zip(bounds, [*bounds[1:], len(order)], strict=True)
    ]


def _match_group(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    rows: NDArray[np.intp],
    width: int,
    wanted: list[bytes],
    found: list[ValueSpans],
) -> list[NDArray[np.intp]]:
    """Try the layouts of a few rows on all rows of one text length; what no layout fits."""
    padded = -(-width // 8) * 8
    overhang = starts[rows] + padded > len(buffer)
    leftover = [rows[overhang]] if overhang.any() else []
    if leftover:
        rows = rows[~overhang]
    texts = fixed_width(buffer, starts[_index(rows)], padded)
    for _ in range(_MAX_LAYOUTS):
        if len(rows) < _MIN_GROUP:
            break
        matched = _matches(texts, width)
        if matched is None:
            places = _layout(texts[0, :width].tobytes())
            _place(found, wanted, places, rows, starts)
            return leftover
        if not matched[0]:
            break
        _place(found, wanted, _layout(texts[0, :width].tobytes()), rows[matched], starts)
        rows, texts = rows[~matched], texts[~matched]
    if len(rows):
        leftover.append(rows)
    return leftover


def _layout(text: bytes) -> list[tuple[bytes, int, int]]:
    """(name, value start, value end) of every segment that has both; the last wins later."""
    places = []
    begin = 0
    for segment in text.split(b"\x02"):
        name, _, value = segment.partition(b"\x01")
        if name and value:
            places.append((name, begin + len(name) + 1, begin + len(segment)))
        begin += len(segment) + 1
    return places


def _matches(texts: NDArray[np.uint8], width: int) -> NDArray[np.bool_] | None:
    """Which rows have the first row's layout; None for all of them."""
    text = texts[0]
    structure = np.full(len(text), 0xFF, dtype=np.uint8)
    structure[width:] = 0
    for _, begin, end in _layout(text[:width].tobytes()):
        structure[begin:end] = 0
    words, first, masks = texts.view(np.uint64), text.view(np.uint64), structure.view(np.uint64)
    differs = np.zeros(len(texts), dtype=np.uint64)
    for column in np.flatnonzero(masks).tolist():
        differs |= (words[:, column] ^ first[column]) & masks[column]
    # With the structure equal, a separator inside a value is the one way left to be different.
    separators = int(np.count_nonzero(text[:width] == _VALUE_END))
    is_separator = texts[:, :width] == _VALUE_END
    if not differs.any() and int(np.count_nonzero(is_separator)) == separators * len(texts):
        return None
    matched: NDArray[np.bool_] = (differs == 0) & (is_separator.sum(axis=1) == separators)
    return matched


def _place(
    found: list[ValueSpans],
    wanted: list[bytes],
    places: list[tuple[bytes, int, int]],
    rows: NDArray[np.intp],
    starts: NDArray[np.int64],
) -> None:
    """Write down where the wanted names lie in rows of one layout."""
    at = {name: (begin, end) for name, begin, end in places}
    index = _index(rows)
    for spans_of_name, name in zip(found, wanted, strict=True):
        if name in at:
            begin, end = at[name]
            spans_of_name.starts[index] = starts[index] + begin
            spans_of_name.lengths[index] = end - begin


def _index(rows: NDArray[np.intp]) -> NDArray[np.intp] | slice:
    """Increasing row numbers as a slice where they have no gap, which is cheaper to index with."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


@dataclass(frozen=True)
class Segments:
    """Every `name 0x01 value` of many texts, in order; `text` is those texts joined."""

    text: NDArray[np.uint8]
    rows: NDArray[np.int64]
    begins: NDArray[np.int64]
    splits: NDArray[np.int64]
    ends: NDArray[np.int64]
    row_starts: NDArray[np.int64]


def scan(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Segments:
    """Split properties texts at their separators; segments without name or value are left out."""
    text, row_starts, row_lengths = span_arrays(spans(buffer, starts, lengths))
    row_ends = row_starts + row_lengths
    separators = np.flatnonzero(text == _VALUE_END)
    ends = np.concatenate([separators, row_ends])
    ends.sort(kind="stable")
    # A row that ends with its separator has its end twice: the second makes an empty segment.
    rows = np.searchsorted(row_ends, ends, side="left")
    begins = np.empty_like(ends)
    begins[:1] = 0
    begins[1:] = ends[:-1] + (ends[:-1] < row_ends[rows[:-1]])
    begins = np.maximum(begins, row_starts[rows]) if len(rows) else begins
    marks = np.flatnonzero(text == _NAME_END)
    marks = np.append(marks, len(text))
    splits = marks[np.searchsorted(marks, begins)]
    keep = (splits > begins) & (splits + 1 < ends)
    return Segments(text, rows[keep], begins[keep], splits[keep], ends[keep], row_starts)


def _scan_rows(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rows: NDArray[np.intp],
    wanted: list[bytes],
    found: list[ValueSpans],
) -> None:
    """Find the wanted names in these rows by their separators alone."""
    segments = scan(buffer, starts[rows], lengths[rows])
    for spans_of_name, name in zip(found, wanted, strict=True):
        hits = np.flatnonzero(segments.splits - segments.begins == len(name))
        names = fixed_width(segments.text, segments.begins[hits], max(1, len(name)))
        hits = hits[(names[:, : len(name)] == np.frombuffer(name, dtype=np.uint8)).all(axis=1)]
        # Assigned in text order, so that of two entries with one name the last stays.
        row = segments.rows[hits]
        shift = starts[rows[row]] - segments.row_starts[row]
        spans_of_name.starts[rows[row]] = segments.splits[hits] + 1 + shift
        spans_of_name.lengths[rows[row]] = segments.ends[hits] - segments.splits[hits] - 1
