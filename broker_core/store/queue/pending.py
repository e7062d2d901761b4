"""Pending queue: what is in the log of one queue and not yet in its files, entry by entry.

It grows with each look at the store (store/pending_tail.py), by one entry or by thousands, and is
laid behind the entries of the files (view.py). Entries are kept as the bytes of a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.store.queue.consume_queue import ENTRY, ENTRY_BYTES, as_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PendingQueue:
    """Entries that follow one another, the first with the offset `start`."""

    __slots__ = ("_data", "_entries", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self._data = bytearray()
        self._entries: NDArray[np.void] | None = None

    @property
    def keep(self) -> int:
        """The end of the entries that are in the files."""
        return self.start

    @property
    def end(self) -> int:
        """The offset after the last entry."""
        return self.start + len(self._data) // ENTRY_BYTES

    @property
    def entries(self) -> NDArray[np.void]:
        """All entries."""
        if self._entries is None:
            # Of a copy: an array over the bytes themselves would keep them from growing.
            self._entries = np.frombuffer(bytes(self._data), dtype=ENTRY)
        return self._entries

    def part(self, start: int, stop: int) -> bytes:
        """Return the bytes of the entries [start, stop), which must be among them."""
        first = self.start
        return bytes(self._data[(start - first) * ENTRY_BYTES : (stop - first) * ENTRY_BYTES])

    def add(self, entry: bytes) -> None:
        """Lay one entry behind the others."""
        self._data += entry
        self._entries = None

    def extend(self, entries: NDArray[np.void]) -> None:
        """Lay entries behind the others."""
        self._data += as_bytes(entries).data
        self._entries = None
