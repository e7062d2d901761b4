"""Consume-queue extension: tags code, store time and filter bitmap beside an entry. Read only.

Brokers with `enableConsumeQueueExt` put a unit here for each message and its address into the
entry's `tags_code`. The units of a queue form a log of their own (consumequeue_ext/TOPIC/QUEUE/,
48 MiB files by default), big-endian, of varying size:

    0      2           10                18              20
    | size | tags_code | store_timestamp | bitmap_length | bitmap ... |
    | int16| int64     | int64           | int16         |            |

`size` is 20 + bitmap_length, -1 where the rest of the file is unused, 0 where nothing was written
yet. An address is the unit's offset in this log minus 2**63, so it lies below every tag hash.
Written before the entry that refers to it. Not checksummed; a unit that is gone or damaged makes
the tag unknown, which every filter lets pass, so nothing is ever lost by it.
The layout is RocketMQ's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.store.io.segments import SegmentedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The only statement of this layout in code.
UNIT_HEAD = np.dtype(
    [
        ("size", ">i2"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("bitmap_length", ">i2"),
    ]
)
UNIT_HEAD_BYTES = UNIT_HEAD.itemsize
MAX_ADDRESS = -(1 << 31) - 1
_ADDRESS_SHIFT = np.int64(-(1 << 63))


def is_address(tags_codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which tags codes are addresses of units; hashes of tags never are."""
    mask: NDArray[np.bool_] = tags_codes <= MAX_ADDRESS
    return mask


def has_address(tags_codes: NDArray[np.int64]) -> bool:
    """Tell whether any tags code is an address; faster than `is_address` where none is."""
    return bool(tags_codes.min(initial=0) <= MAX_ADDRESS)


def address_of(offset: int) -> int:
    """Return the address of the unit at a byte offset of the extension's log.

    >>> address_of(20)
    -9223372036854775788
    """
    return offset - (1 << 63)


@dataclass(frozen=True, slots=True)
class ExtUnits:
    """Units for a batch of tags codes, row by row.

    `is_known` tells the rows whose tag hash is certain: plain hashes, and addresses that led to a
    unit. `bitmaps` has one row each, zero-padded to the longest; `bitmap_lengths` is 0 for none.
    """

    is_known: NDArray[np.bool_]
    tags_codes: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]
    bitmap_lengths: NDArray[np.int16]
    bitmaps: NDArray[np.uint8]


class ConsumeQueueExt:
    """The read-only view of one queue's extension."""

    def __init__(self, directory: Path) -> None:
        self._log = SegmentedLog(directory)

    def read(self, tags_codes: NDArray[np.int64]) -> ExtUnits:
        """Follow the addresses among some tags codes; plain hashes are returned unchanged.

        The codes are those of consecutive entries, whose units lie one after another. An address
        that is out of order with a neighbour's may lead to another message's unit, so it says
        nothing.
        """
        codes = tags_codes.astype(np.int64)
        rows = np.flatnonzero(is_address(codes))
        known = np.ones(len(codes), dtype=np.bool_)
        known[rows] = False
        rows = rows[_in_order(codes[rows])]
        times = np.zeros(len(codes), dtype=np.int64)
        lengths = np.zeros(len(codes), dtype=np.int16)
        found_bitmaps: list[tuple[NDArray[np.intp], NDArray[np.uint8]]] = []
        offsets = codes[rows] - _ADDRESS_SHIFT
        for segment in self._log.segments:
            inside = (offsets >= segment.base) & (offsets <= segment.end - UNIT_HEAD_BYTES)
            buffer = self._log.map(segment) if inside.any() else None
            if buffer is None:
                continue
            found, positions, heads = _heads(buffer, rows[inside], offsets[inside] - segment.base)
            known[found] = True
            codes[found] = heads["tags_code"]
            times[found] = heads["store_timestamp"]
            lengths[found] = heads["bitmap_length"]
            found_bitmaps.append((found, _bitmaps(buffer, positions, heads["bitmap_length"])))
        width = max((bitmap.shape[1] for _, bitmap in found_bitmaps), default=0)
        bitmaps = np.zeros((len(codes), width), dtype=np.uint8)
        for found, bitmap in found_bitmaps:
            bitmaps[found, : bitmap.shape[1]] = bitmap
        return ExtUnits(known, codes, times, lengths, bitmaps)


def _in_order(addresses: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which addresses are above the one before and below the one behind."""
    rises = addresses[1:] > addresses[:-1]
    fits = np.ones(len(addresses), dtype=np.bool_)
    fits[1:] &= rises
    fits[:-1] &= rises
    return fits


def _heads(
    buffer: NDArray[np.uint8], rows: NDArray[np.intp], positions: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.void]]:
    """Return the rows whose position holds a whole unit, with position and head."""
    raw = buffer[positions[:, None] + np.arange(UNIT_HEAD_BYTES)]
    heads = raw.view(UNIT_HEAD)[:, 0]
    length = heads["bitmap_length"].astype(np.int64)
    whole = (length >= 0) & (heads["size"].astype(np.int64) == UNIT_HEAD_BYTES + length)
    whole &= positions + UNIT_HEAD_BYTES + length <= len(buffer)
    return rows[whole], positions[whole], heads[whole]


def _bitmaps(
    buffer: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int16]
) -> NDArray[np.uint8]:
    """Return the bitmap behind each unit's head, zero-padded to the longest."""
    width = int(lengths.max(initial=0))
    columns = np.arange(width)
    at = np.minimum(positions[:, None] + UNIT_HEAD_BYTES + columns, len(buffer) - 1)
    bitmaps: NDArray[np.uint8] = np.where(columns < lengths[:, None], buffer[at], 0)
    return bitmaps.astype(np.uint8)
