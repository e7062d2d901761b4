"""Slot table: the hash slots of one index file, read and set by number.

The layout is file.py's: the table lies behind the header. A few slots are read and written by
calls. Once more than 2,048 were asked for (a quarter of a smaller table), at once or one after
another, the table is mapped and every slot is read and set in place, which costs what the slots
cost and not what the table of 20 MB does (decision 0007).

Nothing else in a store is written through a map. A page of a sparse file that has no space on the
disk yet can't refuse a byte: on a full disk the process gets SIGBUS, which it can't catch. So space
for the whole table is reserved before it is mapped, or else all of it is written once by a call;
after that no byte of it needs space. A process that dies while it sets slots has set any part of
them, as one that dies in a write has; the next writer rewinds them (writer.py).

Not thread-safe; only the holder of the store's lock may use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.errors import CorruptRecordError
from broker_core.store.index.file import HEADER_BYTES, SLOT, SLOT_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from broker_core.store.io.file_handles import FileHandles
    from broker_core.store.io.files import SharedMap

# Up to this many slots, single reads and writes are cheaper than those of the whole table.
_FEW = 2048


class SlotTable:
    """The slots of one index file. Valid as long as the file has its name (`is_of`)."""

    def __init__(self, path: Path, handles: FileHandles, slots: int) -> None:
        self._path = path
        self._handles = handles
        self._slots = slots
        self._few = min(_FEW, slots // 4)
        self._asked = 0
        self._map: SharedMap | None = None

    def is_of(self, path: Path) -> bool:
        """Return True if this is the table of the file that has this name now."""
        if path != self._path:
            return False
        return self._map is None or self._map.is_of(path)

    def mapped(self, count: int) -> NDArray[np.uint8] | None:
        """Return the mapped table as bytes, to read `count` slots; None if calls are cheaper."""
        shared = self._shared(count)
        return None if shared is None else shared.items.view(np.uint8)

    def held(self, wanted: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the values of some slots."""
        shared = self._shared(len(wanted))
        if shared is not None:
            return shared.items[wanted].astype(np.int32)
        single = [
            self._handles.read(self._path, SLOT_BYTES, HEADER_BYTES + SLOT_BYTES * slot)
            for slot in wanted.tolist()
        ]
        return np.frombuffer(b"".join(single), dtype=SLOT).astype(np.int32)

    def all(self) -> NDArray[np.int32]:
        """Return the values of all slots, read by one call."""
        data = self._handles.read(self._path, SLOT_BYTES * self._slots, HEADER_BYTES)
        return np.frombuffer(data, dtype=SLOT).astype(np.int32)

    def put(self, slots: NDArray[np.int64], values: NDArray[np.int32]) -> None:
        """Set some slots."""
        encoded = values.astype(SLOT)
        if self._map is not None:
            self._handles.scatter(self._path, self._map, slots, encoded)
            return
        single = encoded.tobytes()
        for row, slot in enumerate(slots.tolist()):
            value = single[SLOT_BYTES * row : SLOT_BYTES * (row + 1)]
            self._handles.write(self._path, value, HEADER_BYTES + SLOT_BYTES * slot)

    def _shared(self, count: int) -> SharedMap | None:
        """Return the map, to use `count` slots; None as long as few were ever asked for."""
        self._asked += count
        if self._map is None and self._asked > self._few:
            self._map = self._mapped()
        return self._map

    def _mapped(self) -> SharedMap:
        """Map the table, after all of it has its space on the disk."""
        size = SLOT_BYTES * self._slots
        found = max(0, self._path.stat().st_size - HEADER_BYTES)
        if found < size:
            message = (
                f"Index file {self._path} ends in its slot table, after {found} of {size} "
                "bytes; delete the index directory, the next writer rebuilds it."
            )
            raise CorruptRecordError(message, self._path)
        # Not every file system can reserve. Writing the table back as it is does it everywhere.
        if not self._handles.reserve(self._path, HEADER_BYTES, size):
            table = self._handles.read(self._path, size, HEADER_BYTES)
            self._handles.write(self._path, table, HEADER_BYTES)
        return self._handles.map(self._path, SLOT, HEADER_BYTES, self._slots)
