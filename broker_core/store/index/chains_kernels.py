"""Index chains, compiled: the twin of `chain_by_numpy` in chains.py, which states the rules.

Runs for puts of 2,048 keys or more where Numba is there and the slot table is mapped; chains.py
does the rest. Equal to it byte for byte, but for the order in which touched slots are listed.

A table of 5,000,000 slots is 20 MB, and a put touches slots all over it. So keys are first dealt
into blocks of the table, each small enough for the processor's cache, and then chained block by
block. However often slots repeat, a key costs the same.
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

    from broker_core.store.index.chains import EntryFields

# The newest entries of 8,192 slots, 32 KiB, fit into a processor's first cache. A larger table has
# longer blocks instead of more: dealing writes to the ends of all of them in turn.
_BLOCK_BITS = 13
_MOST_BLOCKS = 2048

_AHEAD_KEYS = 24
"""How many keys before its use a slot is prefetched."""


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
    positions: tuple[int, int, int, int, int],
    fields: EntryFields,
    table: NDArray[np.uint8],
    first: int,
    changed: tuple[NDArray[np.int64], NDArray[np.int32]],
) -> tuple[int, int]:
    """Fill `entries`, numbered from `first` on, and `changed` with touched slots and their values.

    `positions` are those of hash, physical offset, seconds and previous entry in an entry, and an
    entry's size. `table` is the slot table as it is, big-endian. `first` is at least 1; each array
    of `changed` has room for as many slots as there are keys. Return how many slots are touched,
    and how many of them held nothing that can be an entry's number.
    """
    at_hash, at_offset, at_seconds, at_previous, width = positions
    hashes, offsets, seconds = fields
    slots, newest = changed
    table_slots = np.uint32(len(table) // 4)
    bits = _BLOCK_BITS
    while table_slots >> bits >= _MOST_BLOCKS:
        bits += 1
    # Keys of each block, counted one element further on: summed up, bounds[b] is where block b's
    # keys begin in `dealt`.
    bounds = np.zeros((table_slots >> bits) + 2, dtype=np.int64)
    found = np.empty(len(hashes), dtype=np.int32)
    at = 0
    for row in range(len(hashes)):
        hashed = hashes[row]
        # Unsigned: a hash is never negative, and a signed remainder costs twice as much.
        slot = np.int32(np.uint32(hashed) % table_slots)
        found[row] = slot
        bounds[(slot >> bits) + 1] += 1
        store_i32(entries, at + at_hash, hashed)
        store_i64(entries, at + at_offset, offsets[row])
        store_i32(entries, at + at_seconds, seconds[row])
        at += width
    for block in range(1, len(bounds)):
        bounds[block] += bounds[block - 1]
    # Dealing keeps put order within a block, and moves each bound to where the next block begins:
    # afterwards bounds[b] is the end of block b. Slot and row travel in one integer.
    dealt = np.empty(len(hashes), dtype=np.int64)
    for row in range(len(hashes)):
        slot = found[row]
        block = slot >> bits
        dealt[bounds[block]] = (np.int64(slot) << 32) | row
        bounds[block] += 1
    # Of each slot of a block its newest entry of this put, 0 for none. Cleared after each block
    # where it was touched, so that one array serves all blocks and stays in the cache.
    latest = np.zeros(1 << bits, dtype=np.int32)
    mask = (1 << bits) - 1
    touched, fresh, low = 0, 0, 0
    for block in range(len(bounds) - 1):
        begun = touched
        for key in range(low, bounds[block]):
            if key + _AHEAD_KEYS < len(dealt):
                prefetch(table, 4 * (dealt[key + _AHEAD_KEYS] >> 32))
            slot = dealt[key] >> 32
            row = dealt[key] & 0xFFFFFFFF
            previous = latest[slot & mask]
            if previous == 0:
                previous = load_i32(table, 4 * slot)
                # By arithmetic, not by a branch: whether a slot is in use can't be predicted.
                is_entry = (previous > 0) & (previous <= first)
                previous *= np.int32(is_entry)
                fresh += not is_entry
                slots[touched] = slot
                touched += 1
            store_i32(entries, width * row + at_previous, previous)
            latest[slot & mask] = first + row
        low = bounds[block]
        for change in range(begun, touched):
            newest[change] = latest[slots[change] & mask]
            latest[slots[change] & mask] = 0
    return touched, fresh
