"""Index writer: puts many keys into index files at once, as RocketMQ does one by one.

The layout is file.py's, how entries are chained chains.py's, how slots are read and set slots.py's.
A put of n keys into a file writes, in this order: the n entries behind the last one, the header
that counts them, the slots that lead to them. A process that dies in between leaves slots that
point only to whole entries, so following `previous` from any slot until it is below the old count
restores what the slot held: `rewind` does so, to the position that the tail marker recorded. The
newest file's header is kept in memory until `forget`.

Not thread-safe; only the holder of the store's lock may use it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.spans import is_one_number
from broker_core.errors import CorruptRecordError
from broker_core.jit import availability
from broker_core.store.index.chains import ChainedEntries, chain, walk_back
from broker_core.store.index.file import (
    ENTRY,
    ENTRY_BYTES,
    FIRST_ENTRY,
    HEADER_BYTES,
    IndexHeader,
    entry_position,
    file_size,
    list_index_files,
)
from broker_core.store.index.slots import SlotTable
from broker_core.store.io.files import Failpoint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.io.file_handles import FileHandles

    KeyColumns = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]
    """Of each key its hash, its record's physical offset, its record's store time."""

EMPTY_HEADER = IndexHeader()
_MAX_SECONDS = (1 << 31) - 1
_NAME_DIGITS = 17
_UNNAMED = "next.tmp"
_CLAIMED_AHEAD = 4096
"""Keys for which room is claimed at a time: 80 KB."""


@dataclass(frozen=True, slots=True)
class IndexPosition:
    """The end of an index: the newest file's name as a number (0: none), and its header."""

    name: int = 0
    header: IndexHeader = EMPTY_HEADER


@dataclass(frozen=True, slots=True)
class Put:
    """A put into the newest file, computed but not written: after `before`, counted by `after`."""

    table: SlotTable
    before: IndexPosition
    after: IndexHeader
    chained: ChainedEntries


class IndexWriter:
    """The index files of one store, open for appending."""

    def __init__(
        self,
        directory: Path,
        handles: FileHandles,
        *,
        slots: int,
        entries: int,
    ) -> None:
        self._directory = directory
        self._handles = handles
        self._reach = handles.files.reach
        self._slots = slots
        self._capacity = entries
        self._claimed = (0, 0)
        self._position: IndexPosition | None = None
        self._table: SlotTable | None = None

    @property
    def position(self) -> IndexPosition:
        """The end of the index; read from the newest file when not known."""
        if self._position is None:
            self._position = self._read_position()
        return self._position

    def forget(self) -> None:
        """Read the newest file again next time: another process may have written."""
        self._position = None
        self._claimed = (0, 0)

    def claim(self, count: int) -> bool:
        """Allocate disk blocks for `count` keys, and some more; False if the file has no room.

        OSError if the disk refuses. Nothing is written.
        """
        if not count:
            return True  # messages without keys need no file
        position = self.position
        if count > self._room():
            return False
        wanted = position.header.entry_count + count
        name, claimed = self._claimed
        if name == position.name and wanted <= claimed:
            return True
        path = self._path(position.name)
        if not self._handles.is_whole(path, file_size(self._slots, self._capacity)):
            return False
        # The slots too: a key may fall on any of them.
        start = entry_position(self._slots, claimed) if name == position.name else 0
        claimed = min(self._capacity, wanted + _CLAIMED_AHEAD)
        self._handles.reserve(path, start, entry_position(self._slots, claimed) - start)
        self._claimed = position.name, claimed
        return True

    def put(
        self,
        hashes: NDArray[np.int32],
        physical_offsets: NDArray[np.int64],
        store_timestamps: NDArray[np.int64],
    ) -> None:
        """Index keys in order: hash i belongs to the record at physical_offsets[i].

        Hashes are non-negative. A file that is full is followed by a new one.
        """
        done = 0
        while done < len(hashes):
            room = self._room()
            if room <= 0:
                self._roll(int(store_timestamps[done]))
                continue
            part = slice(done, done + room)
            keys = hashes[part], physical_offsets[part], store_timestamps[part]
            table = self._table_of(self._path(self.position.name))
            self.write(self._plan_put(self.position, table, keys))
            done += room

    def put_planner(self, count: int) -> Callable[[KeyColumns], Put] | None:
        """Return a function that computes a put of `count` keys; None if few or if they do not fit.

        It only reads: any thread may call it, until something else is put. `write` is for its
        result; where there is none, `put` does both.
        """
        position = self.position
        if not 0 < count <= self._room() or not availability.is_worth(count, may_load=False):
            return None
        table = self._table_of(self._path(position.name))
        return None if table.mapped(count) is None else partial(self._plan_put, position, table)

    def write(self, put: Put) -> None:
        """Write a put that was computed; nothing may have been put since."""
        assert put.before == self.position, "the index has changed"
        path = self._path(put.before.name)
        start = entry_position(self._slots, put.before.header.entry_count)
        # This order: a crash may leave entries that nothing counts, never a slot without its entry.
        self._handles.write(path, put.chained.entries.data, start)
        self._reach(Failpoint.INDEX_ENTRIES_WRITTEN)
        self._handles.write(path, put.after.encode(), 0)
        self._reach(Failpoint.INDEX_HEADER_WRITTEN)
        put.table.put(put.chained.slots, put.chained.newest)
        self._reach(Failpoint.INDEX_SLOTS_WRITTEN)
        self._position = replace(put.before, header=put.after)

    def drop_empty(self) -> None:
        """Delete the newest file if it is empty: it was made for keys that never came."""
        position = self.position
        if position.name and position.header.entry_count <= FIRST_ENTRY:
            self._handles.delete(self._path(position.name))
            self.forget()

    def rewind(self, position: IndexPosition) -> None:
        """Take back every put after `position`, whatever of it is on disk; repeatable."""
        # Newest first: whenever this stops, the files that are left follow each other.
        for path in reversed(list_index_files(self._directory)):
            if int(path.name) > position.name:
                self._handles.delete(path)
                self._reach(Failpoint.INDEX_DROPPED)
        self._position = position
        if position.name == 0:
            return
        path = self._path(position.name)
        # Slots first, while the entries that lead back are still there; entries last.
        self._rewind_slots(path, position.header.entry_count)
        self._handles.write(path, position.header.encode(), 0)
        start = entry_position(self._slots, position.header.entry_count)
        self._handles.zero(path, start, entry_position(self._slots, self._capacity))
        self._reach(Failpoint.INDEX_REWOUND)

    def _read_position(self) -> IndexPosition:
        paths = list_index_files(self._directory)
        if not paths:
            return IndexPosition()
        header = self._handles.read(paths[-1], HEADER_BYTES, 0)
        return IndexPosition(
            int(paths[-1].name), IndexHeader.decode(header.ljust(HEADER_BYTES, b"\0"))
        )

    def _roll(self, store_ms: int) -> None:
        """Begin a new file, which inherits times and offsets from the one before.

        It is named after its first record, so that its name does not depend on when it is made.
        """
        previous = self.position
        header = inherited(previous.header if previous.name else None)
        name = next_name(store_ms, previous.name)
        path = self._path(name)
        # Under another name until it has its length: an empty index file could not be opened.
        unnamed = self._directory / _UNNAMED
        self._handles.create(unnamed, file_size(self._slots, self._capacity))
        self._handles.rename(unnamed, path)
        self._position = IndexPosition(name, header)
        self._reach(Failpoint.INDEX_CREATED)

    def _room(self) -> int:
        """Return how many keys the newest file still takes."""
        position = self.position
        return self._capacity - position.header.entry_count if position.name else 0

    def _plan_put(self, position: IndexPosition, table: SlotTable, keys: KeyColumns) -> Put:
        """Compute entries and slot updates for keys that fit in the newest file."""
        hashes, physical_offsets, store_timestamps = keys
        before = position.header
        after = grown(before, physical_offsets, store_timestamps)
        seconds = seconds_since(before, after, store_timestamps)
        fields = hashes, physical_offsets, seconds
        chained = chain(fields, table, self._slots, before.entry_count)
        after = replace(after, slot_count=before.slot_count + chained.fresh_slots)
        return Put(table, position, after, chained)

    def _table_of(self, path: Path) -> SlotTable:
        """Return the slots of the file that has this name now, also if another process made it."""
        if self._table is None or not self._table.is_of(path):
            self._table = SlotTable(path, self._handles, self._slots)
        return self._table

    def _rewind_slots(self, path: Path, count: int) -> None:
        """Set every slot back to its newest entry below `count`."""
        if count <= FIRST_ENTRY:
            self._handles.zero(path, HEADER_BYTES, entry_position(self._slots, 0))
            return
        table = self._table_of(path)
        values = table.all().astype(np.int64)
        changed = np.flatnonzero(values >= count)
        if not len(changed):
            return
        last = min(int(values[changed].max()), self._capacity - 1)
        start = entry_position(self._slots, count)
        found = self._handles.read(path, ENTRY_BYTES * (last - count + 1), start)
        previous = np.frombuffer(found, dtype=ENTRY)["previous"].astype(np.int64)
        held = walk_back(values[changed], previous, count)
        if held is None:
            message = (
                f"Index file {path} has slots that lead to entries which do not lead back below "
                f"entry {count}; delete the index directory, the next writer rebuilds it."
            )
            raise CorruptRecordError(message, path)
        table.put(changed, held.astype(np.int32))

    def _path(self, name: int) -> Path:
        return self._directory / f"{name:0{_NAME_DIGITS}d}"


def grown(
    header: IndexHeader,
    physical_offsets: NDArray[np.int64],
    store_timestamps: NDArray[np.int64],
) -> IndexHeader:
    """Return the header after these records' keys were put, but for the count of used slots."""
    is_first = header.entry_count <= FIRST_ENTRY
    return IndexHeader(
        begin_timestamp=int(store_timestamps[0]) if is_first else header.begin_timestamp,
        end_timestamp=int(store_timestamps[-1]),
        begin_physical_offset=(
            int(physical_offsets[0]) if is_first else header.begin_physical_offset
        ),
        end_physical_offset=int(physical_offsets[-1]),
        slot_count=header.slot_count,
        entry_count=header.entry_count + len(physical_offsets),
    )


def inherited(previous: IndexHeader | None) -> IndexHeader:
    """Return the header of an empty file: it begins at the previous file's last offset and time."""
    if previous is None:
        return EMPTY_HEADER
    return IndexHeader(
        begin_timestamp=previous.end_timestamp,
        end_timestamp=previous.end_timestamp,
        begin_physical_offset=previous.end_physical_offset,
        end_physical_offset=previous.end_physical_offset,
    )


def seconds_since(
    before: IndexHeader, after: IndexHeader, store_timestamps: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return whole seconds since the file's begin time, as RocketMQ counts them.

    The first entry of a file is counted from the begin time it inherited, before its own becomes
    the file's: visible only in a comparison of bytes.
    """
    # A batch mostly has one store time: then one division does for all.
    times = store_timestamps[:1] if is_one_number(store_timestamps) else store_timestamps
    seconds = np.clip((times - after.begin_timestamp) // 1000, 0, _MAX_SECONDS)
    if len(times) < len(store_timestamps):
        seconds = np.full(len(store_timestamps), seconds[0])
    if before.entry_count <= FIRST_ENTRY:
        inherited = before.begin_timestamp
        elapsed = (int(store_timestamps[0]) - inherited) // 1000 if inherited > 0 else 0
        seconds[0] = min(max(elapsed, 0), _MAX_SECONDS)
    return seconds


def next_name(store_ms: int, previous: int) -> int:
    """Return the name of an index file: a record's local time in ms, after the previous name.

    >>> next_name(0, 20991231235959999)
    20991231235960000
    """
    local = datetime.fromtimestamp(store_ms / 1000).astimezone()
    name = int(local.strftime("%Y%m%d%H%M%S") + f"{store_ms % 1000:03d}")
    return max(name, previous + 1)
