"""Property layouts: rows whose names and values lie at the same places are found by comparison.

Most batches were written by few producers, so most of their property texts have one of a few
layouts: the same names at the same places around values of the same lengths. Rows are grouped by
text length, and in each group one row's layout is tried on all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.gather import fixed_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VALUE_END = 2
_MAX_GROUPS = 32
_MAX_LAYOUTS = 4
"""How many layouts are tried on rows of one length, each on what the ones before left over."""
_WORTH_ROWS = 64
_BLOCK_BYTES = 1 << 16

Layout = dict[bytes, tuple[int, int]]
"""Where in a text the value of each name begins and ends."""


def part_by_layout(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.intp], Layout | None]]:
    """Rows that share a layout, and the layout; None comes with rows that share none.

    Every row with a text of its own comes once. A layout is what properties.parse_properties finds
    in the row, for all rows it comes with.
    """
    for rows, width in _by_length(lengths):
        if width < 0:
            yield rows, None
        elif width > 0:
            yield from _try_layouts(buffer, starts[rows], rows, width)


def _by_length(lengths: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.intp], int]]:
    """Row numbers by text length; all of them with -1 where there are too many lengths."""
    if not len(lengths):
        return
    if bool((lengths == lengths[0]).all()):
        yield np.arange(len(lengths)), int(lengths[0])
        return
    order = np.argsort(lengths.astype(np.int16), kind="stable")  # int16: sorted by radix
    ordered = lengths[order]
    bounds = (np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()
    if len(bounds) >= _MAX_GROUPS:
        yield np.arange(len(lengths)), -1
        return
    for begin, end in zip([0, *bounds], [*bounds, len(order)], strict=True):
        yield order[begin:end], int(ordered[begin])


def _try_layouts(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], rows: NDArray[np.intp], width: int
) -> Iterator[tuple[NDArray[np.intp], Layout | None]]:
    """Rows of one text length, parted by layout."""
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
        if len(rows) < _WORTH_ROWS:
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
        differs = texts == patterns[: len(texts)]
        differs ^= structures[: len(texts)]
        if differs.any():
            misfits.append(block + np.flatnonzero(differs.reshape(-1, width).any(axis=1)))
    return np.concatenate(misfits) if misfits else np.empty(0, dtype=np.intp)
