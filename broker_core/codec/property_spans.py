"""Finding properties in the raw text of many records at once.

Most batches were written by few producers, so most of their property texts have one of a few
layouts: the same names at the same places around values of the same lengths. Rows are grouped by
text length, and in each group one row's layout is tried on all rows. Rows that no layout fits go
through a split at every separator, which makes no assumption. Both ways give what
properties.parse_properties gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.gather import fixed_width, spans
from broker_core.codec.property_split import split_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VALUE_END = 2
_MIN_GROUP = 64
_MAX_LAYOUTS = 8
_BLOCK_BYTES = 1 << 17

Layout = dict[bytes, tuple[int, int]]
"""Where the value of each name begins and ends in a text."""


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
    layouts: list[Layout] = [{}]
    codes = np.zeros(len(starts), dtype=np.intp)
    leftover = []
    for rows, width in _groups(lengths):
        if len(rows) < _MIN_GROUP:
            leftover.append(rows)
            continue
        for fitting, layout in _try_layouts(buffer, starts[_index(rows)], rows, width):
            if layout is None:
                leftover.append(fitting)
            else:
                codes[_index(fitting)] = len(layouts)
                layouts.append(layout)
    found = [_values(starts, codes, layouts, name.encode()) for name in names]
    if leftover:
        rows = np.sort(np.concatenate(leftover))
        _split_rows(buffer, starts, lengths, rows, names, found)
    return found


def _groups(lengths: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.intp], int]]:
    """Row numbers by text length, without those of length 0."""
    if not len(lengths):
        return
    first = int(lengths[0])
    if bool((lengths == first).all()):
        order = np.arange(len(lengths))
        bounds = [0]
    else:
        order = np.argsort(lengths.astype(np.int16), kind="stable")  # int16: sorted by radix
        bounds = np.flatnonzero(np.diff(lengths[order], prepend=-1)).tolist()
    for begin, end in zip(bounds, [*bounds[1:], len(order)], strict=True):
        width = int(lengths[order[begin]])
        if width:
            yield order[begin:end], width


def _try_layouts(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], rows: NDArray[np.intp], width: int
) -> Iterator[tuple[NDArray[np.intp], Layout | None]]:
    """Rows of one text length, parted by layout; None comes with rows that have none of a few."""
    for _ in range(_MAX_LAYOUTS):
        first = int(starts[0])
        text = buffer[first : first + width]
        layout = _layout(text.tobytes())
        misfits = _misfits(buffer, starts, text, layout)
        if not len(misfits):
            yield rows, layout
            return
        yield np.delete(rows, misfits), layout
        rows, starts = rows[misfits], starts[misfits]
        if len(rows) < _MIN_GROUP:
            break
    yield rows, None


def _layout(text: bytes) -> Layout:
    places = {}
    begin = 0
    for segment in text.split(b"\x02"):
        name, _, value = segment.partition(b"\x01")
        if name and value:
            places[name] = (begin + len(name) + 1, begin + len(segment))
        begin += len(segment) + 1
    return places


def _misfits(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    text: NDArray[np.uint8],
    layout: Layout,
) -> NDArray[np.intp]:
    """Numbers of the texts at `starts` that do not have the layout of `text`.

    Those that have it equal it in every byte outside values, and have no separator inside a
    value. With the separator in place of each value both are one comparison.
    """
    pattern = text.copy()
    is_structure = np.ones(len(text), dtype=np.bool_)
    for begin, end in layout.values():
        pattern[begin:end] = _VALUE_END
        is_structure[begin:end] = False
    # Many rows as one run of bytes: comparing row by row would cost more than the bytes do.
    width = len(text)
    step = max(1, min(len(starts), _BLOCK_BYTES // width))
    patterns, structures = np.tile(pattern, step), np.tile(is_structure, step)
    misfits = []
    for block in range(0, len(starts), step):
        texts = fixed_width(buffer, starts[block : block + step], width).reshape(-1)
        differs = (texts == patterns[: len(texts)]) != structures[: len(texts)]
        if differs.any():
            misfits.append(block + np.flatnonzero(differs.reshape(-1, width).any(axis=1)))
    return np.concatenate(misfits) if misfits else np.empty(0, dtype=np.intp)


def _values(
    starts: NDArray[np.int64], codes: NDArray[np.intp], layouts: list[Layout], name: bytes
) -> ValueSpans:
    """Where the value of a name lies in rows whose layouts are known."""
    places = np.array([layout.get(name, (0, 0)) for layout in layouts], dtype=np.int64)
    begins, ends = places[:, 0], places[:, 1]
    return ValueSpans(starts + begins[codes], (ends - begins)[codes])


def _index(rows: NDArray[np.intp]) -> NDArray[np.intp] | slice:
    """Increasing row numbers as a slice where they have no gap, which is cheaper to index with."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


def _split_rows(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rows: NDArray[np.intp],
    names: Sequence[str],
    found: list[ValueSpans],
) -> None:
    """Find the wanted names in these rows by their separators alone."""
    segments = split_texts(spans(buffer, starts[rows], lengths[rows]))
    for values, name in zip(found, names, strict=True):
        hits = segments.named(name.encode())
        # Assigned in text order, so that of two entries with one name the last stays.
        row = segments.rows[hits]
        shift = starts[rows[row]] - segments.row_starts[row]
        values.starts[rows[row]] = segments.splits[hits] + 1 + shift
        values.lengths[rows[row]] = segments.ends[hits] - segments.splits[hits] - 1
