"""Index chains: links the entries of a put by slot, as RocketMQ does one key at a time.

This is the NumPy half; chains_kernels.py is its compiled twin. `chain` picks the kernel for puts of
2,048 keys or more (availability.is_worth) into a slot table that is mapped, and this module's
`chain_by_numpy` for everything else; tests hold the two equal. Undoing a put (`walk_back`) and the
check of a whole file (check/index.py) always run here.

Problem. A slot holds the number of its newest entry, and each entry the number of the entry that
its slot held before. RocketMQ reads a slot, writes an entry and sets the slot for every key: three
small accesses a key, all over a table of 20 MB. A put of many keys has to come to the same bytes
with one write of entries and each touched slot read once and set once.

Invariants.

- Entries are numbered in put order from the header's `entry_count` on; number 0 ends a chain.
- `previous` is the entry before this one in the same slot: of this put if there is one, else what
  the slot held. So chains lead from newer to older entries only.
- A slot value that can't be an entry's number (below 1, or above `entry_count`) counts as empty, as
  in RocketMQ. It accepts `entry_count` itself, which no entry has yet; a reader takes an entry that
  leads to itself as the end of its chain (IndexFile.lookup).
- Nothing here writes. The writer puts entries, then the header, then slots on disk, so a slot never
  leads to an entry that is not there, and a put of which any part is on disk can be taken back:
  follow `previous` from each slot until the number is below the old count.

Outline. `group_by_slot` sorts the keys by slot, put order kept within a slot; `link` gives each
entry the one before it in its group, the first of a group what the slot held, and each slot the
last of its group; `chain_by_numpy` packs the entries. How slots are read and set is slots.py's.

Rejected. A stable argsort by slot: sorting slot and row packed into one integer is several times
faster. Other ways to set slots: decision 0007.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from broker_core.jit import arguments, availability
from broker_core.store.index.file import ENTRY, ENTRY_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.index.slots import SlotTable

    EntryFields = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]
    """Of each new entry its key's hash, its physical offset and its seconds."""


@dataclass(frozen=True, slots=True)
class SlotGroups:
    """Rows of a put by slot: those of slots[i] begin at starts[i] of `rows`, in put order."""

    slots: NDArray[np.int64]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Links:
    """The chains of a put: each new entry's predecessor, and the new value of each touched slot.

    `fresh_slots` counts the touched slots that were empty.
    """

    previous: NDArray[np.int32]
    newest: NDArray[np.int32]
    fresh_slots: int


@dataclass(frozen=True, slots=True)
class ChainedEntries:
    """A put as bytes: the new entries, and the touched slots with their new values."""

    entries: NDArray[np.uint8]
    slots: NDArray[np.int64]
    newest: NDArray[np.int32]
    fresh_slots: int


def chain(fields: EntryFields, table: SlotTable, slots: int, first: int) -> ChainedEntries:
    """Chain new entries `first`, `first` + 1, ... into a table of `slots` slots; write nothing."""
    count = len(fields[0])
    if availability.is_worth(count, may_load=False):
        mapped = table.mapped(count)
        if mapped is not None:  # the kernel reads slots where they are mapped
            return chain_by_kernel(fields, mapped, first)
    return chain_by_numpy(fields, table, slots, first)


def chain_by_numpy(fields: EntryFields, table: SlotTable, slots: int, first: int) -> ChainedEntries:
    """Chain new entries by NumPy; the reference, and the way for small puts (see the module)."""
    hashes, physical_offsets, seconds = fields
    groups = group_by_slot(hashes % np.int32(slots))
    links = link(groups, entry_numbers(table.held(groups.slots), first), first)
    entries = np.empty(len(hashes), dtype=ENTRY)
    entries["key_hash"] = hashes
    entries["physical_offset"] = physical_offsets
    entries["seconds"] = seconds
    entries["previous"] = links.previous
    return ChainedEntries(entries.view(np.uint8), groups.slots, links.newest, links.fresh_slots)


def chain_by_kernel(fields: EntryFields, table: NDArray[np.uint8], first: int) -> ChainedEntries:
    """Chain new entries by chains_kernels.py; equal to `chain_by_numpy` but for the slots' order.

    `table` is the mapped slot table, all of it.
    """
    from broker_core.store.index.chains_kernels import chain_entries

    hashes, physical_offsets, seconds = fields
    count = len(hashes)
    entries = np.empty(count * ENTRY_BYTES, dtype=np.uint8)
    touched_slots, newest = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int32)
    touched, fresh = chain_entries(
        entries,
        _field_positions(),
        (arguments.ints(hashes), arguments.longs(physical_offsets), arguments.longs(seconds)),
        table,
        first,
        (touched_slots, newest),
    )
    return ChainedEntries(entries, touched_slots[:touched], newest[:touched], fresh)


def _field_positions() -> tuple[int, int, int, int, int]:
    """Return the position of each field in an entry, and an entry's size: the kernel states none.

    The layout has one statement in code, file.py's ENTRY.
    """
    fields = ENTRY.fields
    assert fields is not None
    names = ("key_hash", "physical_offset", "seconds", "previous")
    key_hash, physical_offset, seconds, previous = (fields[name][1] for name in names)
    return key_hash, physical_offset, seconds, previous, ENTRY_BYTES


def group_by_slot(slots: NDArray[np.int32]) -> SlotGroups:
    """Group the rows of a put by their slots."""
    # Slot and row in one integer: the row breaks ties, so that a plain sort keeps put order.
    packed = slots.astype(np.int64) << 32
    packed |= np.arange(len(slots), dtype=np.int64)
    packed.sort()
    sorted_slots = packed >> 32
    is_first = np.empty(len(packed), dtype=np.bool_)
    is_first[0] = True
    np.not_equal(sorted_slots[1:], sorted_slots[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    packed &= 0xFFFFFFFF
    return SlotGroups(sorted_slots[starts], packed, starts)


def link(groups: SlotGroups, held: NDArray[np.int32], first: int) -> Links:
    """Chain new entries `first`, `first` + 1, ... to each other and to what their slots held.

    `held` is the value of each group's slot, 0 for none.
    """
    rows, starts = groups.rows, groups.starts
    numbers = (rows + first).astype(np.int32)
    # Shifted by one, every entry has the one before it in slot order; only the first of each group
    # then has a neighbour of another slot, and gets what its own slot held instead.
    before = np.empty(len(rows), dtype=np.int32)
    before[1:] = numbers[:-1]
    before[starts] = held
    previous = np.empty(len(rows), dtype=np.int32)
    previous[rows] = before
    ends = np.append(starts[1:], len(rows)) - 1
    return Links(previous, numbers[ends], int(np.count_nonzero(held == 0)))


def walk_back(
    held: NDArray[np.int64], previous: NDArray[np.int64], count: int
) -> NDArray[np.int64] | None:
    """Follow chains from the entries `held` until below `count`; None if one does not lead there.

    `previous` holds what entries `count`, `count` + 1, ... say; a chain must only lead downwards.
    """
    held = held.copy()
    # One step of all chains a round: as many rounds as the longest chain of the put has entries.
    while (ahead := np.flatnonzero(held >= count)).size:
        numbers = held[ahead]
        if int(numbers.max()) - count >= len(previous):
            return None
        older = previous[numbers - count]
        # Without this a damaged file could lead round in circles for ever.
        if bool((older >= numbers).any() or (older < 0).any()):
            return None
        held[ahead] = older
    return held


def entry_numbers(held: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """Return slot values as RocketMQ takes them: 0 for what can't be an entry's number."""
    return np.where((held <= 0) | (held > count), np.int32(0), held)
