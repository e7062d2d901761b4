"""Index entries out of columns, chained by slot; the twin of index_writer.py's group and link.

Keys are dealt into stretches of the slot table first, so that each stretch is read and chained
while the processor's cache holds it. However often slots repeat, the cost of a key is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import types

from broker_core.jit.compiler import (
    BYTES,
    BYTES_OUT,
    INT32S,
    INT32S_OUT,
    INT64,
    INT64S,
    INT64S_OUT,
    kernel,
    load_i32,
    prefetch,
    store_i32,
    store_i64,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Columns = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]
    """Hashes, physical offsets, seconds."""

# The newest entries of so many slots fit into a processor's first cache. A larger table has longer
# stretches instead of more: keys are written to the ends of all of them in turn.
_STRETCH_BITS = 13
_MOST_STRETCHES = 2048

_AHEAD_KEYS = 24
"""How early a key's slot is announced."""


@kernel(
    types.UniTuple(INT64, 2),
    BYTES_OUT,
    types.UniTuple(INT64, 5),
    types.Tuple((INT32S, INT64S, INT64S)),
    BYTES,
    INT64,
    types.Tuple((INT64S_OUT, INT32S_OUT)),
)
def chain_entries(
    entries: NDArray[np.uint8],
    places: tuple[int, int, int, int, int],
    columns: Columns,
    table: NDArray[np.uint8],
    first: int,
    changed: tuple[NDArray[np.int64], NDArray[np.int32]],
) -> tuple[int, int]:
    """Fill `entries`, numbered from `first` on, and `changed` with touched slots and their values.

    `places` are those of hash, physical offset, seconds and previous entry in an entry, and an
    entry's size. `table` is the slot table as it is, big-endian. Answers how many slots are
    touched, and how many of them held nothing that can be an entry's number. `first` is at least
    1; each array of `changed` has room for as many slots as there are keys.
    """
    at_hash, at_offset, at_seconds, at_previous, width = places
    hashes, offsets, seconds = columns
    slots, newest = changed
    table_slots = np.uint32(len(table) // 4)
    bits = _STRETCH_BITS
    while table_slots >> bits >= _MOST_STRETCHES:
        bits += 1
    # How many keys each stretch has, one place further on: summed up, where its keys begin.
    bounds = np.zeros((table_slots >> bits) + 2, dtype=np.int64)
    found = np.empty(len(hashes), dtype=np.int32)
    at = 0
    for row in range(len(hashes)):
        hashed = hashes[row]
        slot = np.int32(np.uint32(hashed) % table_slots)  # of signed numbers it costs twice as much
        found[row] = slot
        bounds[(slot >> bits) + 1] += 1
        store_i32(entries, at + at_hash, hashed)
        store_i64(entries, at + at_offset, offsets[row])
        store_i32(entries, at + at_seconds, seconds[row])
        at += width
    # Dealing a stretch's keys moves its bound to where the next one's began.
    for stretch in range(1, len(bounds)):
        bounds[stretch] += bounds[stretch - 1]
    dealt = np.empty(len(hashes), dtype=np.int64)
    for row in range(len(hashes)):
        slot = found[row]
        stretch = slot >> bits
        dealt[bounds[stretch]] = (np.int64(slot) << 32) | row
        bounds[stretch] += 1
    # Of each slot of a stretch its newest entry of this put, 0 for none.
    latest = np.zeros(1 << bits, dtype=np.int32)
    mask = (1 << bits) - 1
    touched, fresh, low = 0, 0, 0
    for stretch in range(len(bounds) - 1):
        begun = touched
        for key in range(low, bounds[stretch]):
            if key + _AHEAD_KEYS < len(dealt):
                prefetch(table, 4 * (dealt[key + _AHEAD_KEYS] >> 32))
            slot = dealt[key] >> 32
            row = dealt[key] & 0xFFFFFFFF
            previous = latest[slot & mask]
            if previous == 0:
                previous = load_i32(table, 4 * slot)
                # By arithmetic: no processor guesses whether a slot is in use.
                is_entry = (previous > 0) & (previous <= first)
                previous *= np.int32(is_entry)
                fresh += not is_entry
                slots[touched] = slot
                touched += 1
            store_i32(entries, width * row + at_previous, previous)
            latest[slot & mask] = first + row
        low = bounds[stretch]
        for change in range(begun, touched):
            newest[change] = latest[slots[change] & mask]
            latest[slots[change] & mask] = 0
    return touched, fresh
