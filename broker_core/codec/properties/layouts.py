"""Property layouts: rows whose names and values lie at the same places are found by comparison.

Most batches were written by few producers, so most of their property texts have one of a few
layouts: the same names at the same places around values of the same lengths. Rows are grouped by
text length, and in each group one row's layout is tried on all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from broker_core.codec.spans import fixed_width, pitch_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VALUE_END = 2
_MAX_GROUPS = 32
_MAX_LAYOUTS = 4
"""How many layouts are tried on rows of one length, each on what the ones before left over."""
_WORTH_ROWS = 64
_SAMPLE = np.arange(1, 33) * 0.6180339887498949 % 1  # in no step with any period of the rows
_BLOCK_BYTES = 1 << 16
_FEW_ROWS = 256

_Item = TypeVar("_Item", np.uint8, np.bool_)

Layout = dict[bytes, tuple[int, int]]
"""Where in a text the value of each name begins and ends."""


def part_by_layout(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.intp], Layout | None]]:
    """Rows that share a layout, and the layout; None comes with rows that share none.

    Every row with a text of its own comes once. A layout is what properties.parse_properties finds
    in the row, for all rows it comes with.
    """
    rest = np.arange(len(starts))
    text = _common_text(buffer, starts, lengths)
    if text is not None:
        layout = _layout(text.tobytes())
        fits = _fits_in_place(buffer, starts, lengths, text, layout)
        if fits.all():
            yield rest, layout
            return
        yield rest[fits], layout
        rest = rest[~fits]
        starts, lengths = starts[rest], lengths[rest]
    for rows, width in _by_length(lengths):
        if width < 0:
            yield rest[rows], None
        elif width > 0:
            yield from _try_layouts(buffer, starts[rows], rest[rows], width)


def _common_text(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint8] | None:
    """One of the texts that most are like, by a sample; None if there is no such text.

    None too if texts do not lie close together and equally far apart.
    """
    pitch = pitch_of(starts) if len(starts) >= _WORTH_ROWS else 0
    if not pitch:
        return None
    rows = (_SAMPLE * len(starts)).astype(np.intp)
    width = int(np.bincount(lengths[rows].astype(np.uint16)).argmax())
    if not 0 < width <= pitch < 2 * width:
        return None
    alike = starts[rows[lengths[rows] == width]]
    text = buffer[alike[0] : alike[0] + width]
    misfits = _misfits(buffer, alike, text, _layout(text.tobytes()))
    return text if 2 * (len(alike) - len(misfits)) > len(rows) else None


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


def _masks(text: NDArray[np.uint8], layout: Layout) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """(pattern, which of its bytes are structure): the separator stands in place of each value.

    A text has the layout if it equals the pattern in all of the structure, and nowhere else: no
    value may contain a separator.
    """
    pattern = text.copy()
    is_structure = np.ones(len(text), dtype=np.bool_)
    for begin, end in layout.values():
        pattern[begin:end] = _VALUE_END
        is_structure[begin:end] = False
    return pattern, is_structure


def _repeated(row: NDArray[_Item], count: int) -> NDArray[_Item]:
    """The same row so many times, one after another."""
    return np.broadcast_to(row, (count, len(row))).reshape(-1)


# Below, many rows are compared as one run of bytes: row by row would cost more than the bytes do.


def _fits_in_place(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    text: NDArray[np.uint8],
    layout: Layout,
) -> NDArray[np.bool_]:
    """Which texts have the layout of `text`, where all of them lie equally far apart."""
    pattern, is_structure = _masks(text, layout)
    first, pitch = int(starts[0]), pitch_of(starts)
    gap = np.zeros(pitch - len(text), dtype=np.bool_)
    step = max(1, min(len(starts), _BLOCK_BYTES // pitch))
    patterns = _repeated(np.concatenate([pattern, gap.view(np.uint8)]), step)
    structures = _repeated(np.concatenate([is_structure, gap]), step)
    cares = _repeated(np.concatenate([np.ones(len(text), dtype=np.bool_), gap]), step)
    differs = np.zeros(len(patterns), dtype=np.bool_)
    fits: NDArray[np.bool_] = lengths == len(text)
    # The gap behind the last text may be missing.
    near = buffer[first : first + pitch * (len(starts) - 1) + len(text)]
    for block in range(0, len(starts), step):
        texts = near[block * pitch : (block + step) * pitch]
        found = np.equal(texts, patterns[: len(texts)], out=differs[: len(texts)])
        found ^= structures[: len(texts)]
        found &= cares[: len(texts)]
        if not found.any():
            continue
        # Rows that are out already would only be found again, byte by byte.
        near_fits = fits[block : block + step]
        whole = differs[: len(near_fits) * pitch].reshape(len(near_fits), pitch)
        whole[~near_fits] = False
        if whole.any():
            near_fits[np.flatnonzero(whole) // pitch] = False
    return fits


def _misfits(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    text: NDArray[np.uint8],
    layout: Layout,
) -> NDArray[np.intp]:
    """Numbers of the texts at `starts`, all as long as `text`, that do not have its layout."""
    pattern, is_structure = _masks(text, layout)
    width = len(text)
    if len(starts) <= _FEW_ROWS:
        few = fixed_width(buffer, starts, width) == pattern
        few ^= is_structure
        return np.flatnonzero(few.any(axis=1))
    step = max(1, min(len(starts), _BLOCK_BYTES // width))
    patterns, structures = _repeated(pattern, step), _repeated(is_structure, step)
    misfits = []
    for block in range(0, len(starts), step):
        texts = fixed_width(buffer, starts[block : block + step], width).reshape(-1)
        differs = texts == patterns[: len(texts)]
        differs ^= structures[: len(texts)]
        if differs.any():
            rows = np.flatnonzero(differs) // width
            is_new = np.ones(len(rows), dtype=np.bool_)
            np.not_equal(rows[1:], rows[:-1], out=is_new[1:])
            misfits.append(block + rows[is_new])
    return np.concatenate(misfits) if misfits else np.empty(0, dtype=np.intp)
