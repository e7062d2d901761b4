"""Check of one index file: its chains by themselves, its entries against the log.

Which entry follows which in a slot's chain, and what each slot holds, is decided by the entries'
hashes alone, so all of it is computed again and compared (index/chains.py). Whether an entry's hash
is that of a key of the record it points to is compared stretch by stretch, as the log is walked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.store.index.chains import group_by_slot, link
from broker_core.store.index.file import FIRST_ENTRY, IndexFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.dispatch_request import DispatchRequests
    from broker_core.store.settings import StoreSettings

_HASH_BITS = 31


class IndexCheck:
    """One index file under examination; each finding is a sentence with entry and numbers."""

    def __init__(self, path: Path, settings: StoreSettings) -> None:
        self.path = path
        self._file = IndexFile(path, settings.index_slots)
        self._size = settings.index_file_bytes
        self._capacity = settings.index_entries
        entries = self._file.entries()[FIRST_ENTRY:] if self._is_sized else np.zeros(0, np.void)
        self._hashes = _column(entries, "key_hash")
        self._offsets = _column(entries, "physical_offset")
        self._seconds = _column(entries, "seconds")
        self._previous = _column(entries, "previous")

    @property
    def _is_sized(self) -> bool:
        return len(self._file.data) == self._size

    def structure(self) -> Iterator[str]:
        """Yield contradictions of the file with itself, whatever the log says."""
        header = self._file.header
        if not self._is_sized:
            yield f"it is {len(self._file.data)} bytes long, expected {self._size}"
            return
        if header.entry_count > self._capacity:
            yield f"its header counts {header.entry_count} entries, {self._capacity} fit"
            return
        if not len(self._hashes):
            return
        if int(self._hashes.min()) < 0:
            yield f"entry {int(self._hashes.argmin()) + FIRST_ENTRY} has a negative hash"
            return
        yield from self._chains(header.slot_count)
        if int(self._offsets[0]) != header.begin_physical_offset:
            yield (
                f"its header begins at physical offset {header.begin_physical_offset}, its first "
                f"entry at {int(self._offsets[0])}"
            )
        if int(self._offsets[-1]) != header.end_physical_offset:
            yield (
                f"its header ends at physical offset {header.end_physical_offset}, its last entry "
                f"at {int(self._offsets[-1])}"
            )
        back = np.flatnonzero(np.diff(self._offsets) < 0)
        if len(back):
            yield f"entry {int(back[0]) + 1 + FIRST_ENTRY} lies before the entry in front of it"

    def _chains(self, slot_count: int) -> Iterator[str]:
        """Yield entries, slots and counts that differ from chains computed from the hashes."""
        slots = (self._hashes % self._file.slots).astype(np.int32)
        groups = group_by_slot(slots)
        used = groups.slots
        expected = link(groups, np.zeros(len(used), dtype=np.int32), FIRST_ENTRY)
        wrong = np.flatnonzero(expected.previous != self._previous)
        if len(wrong):
            row = int(wrong[0])
            yield (
                f"entry {row + FIRST_ENTRY} follows entry {int(self._previous[row])}, expected "
                f"{int(expected.previous[row])}"
            )
        table = np.zeros(self._file.slots, dtype=np.int32)
        table[used] = expected.newest
        found = self._file.slot_values().astype(np.int32)
        wrong = np.flatnonzero(table != found)
        if len(wrong):
            slot = int(wrong[0])
            yield f"slot {slot} holds entry {int(found[slot])}, expected {int(table[slot])}"
        if slot_count != len(used):
            yield f"its header counts {slot_count} slots in use, {len(used)} are"

    def against(self, requests: DispatchRequests) -> Iterator[str]:
        """Yield contradictions with a stretch of the log: entries that lead to no such key."""
        starts = requests.physical_offsets
        low = int(starts[0])
        high = int(starts[-1]) + int(requests.sizes[-1])
        rows = np.flatnonzero((self._offsets >= low) & (self._offsets < high))
        if not len(rows):
            return
        at = np.minimum(np.searchsorted(starts, self._offsets[rows]), len(starts) - 1)
        is_record = starts[at] == self._offsets[rows]
        known = _packed(requests.index_rows, requests.index_hashes.astype(np.int64))
        is_key = np.isin(_packed(at, self._hashes[rows]), known)
        wrong = np.flatnonzero(~(is_record & is_key))
        if len(wrong):
            row = int(rows[int(wrong[0])])
            yield (
                f"entry {row + FIRST_ENTRY} has hash {int(self._hashes[row])} and physical offset "
                f"{int(self._offsets[row])}, where no record with such a key begins"
            )
        yield from self._times(requests, rows, at, is_record)

    def _times(
        self,
        requests: DispatchRequests,
        rows: NDArray[np.intp],
        at: NDArray[np.intp],
        is_record: NDArray[np.bool_],
    ) -> Iterator[str]:
        """Yield contradictions with the store times of the records that entries `rows` point to."""
        header = self._file.header
        begin = header.begin_timestamp
        for name, row, said in (
            ("begins", 0, begin),
            ("ends", len(self._offsets) - 1, header.end_timestamp),
        ):
            found = np.flatnonzero((rows == row) & is_record)
            if len(found) and int(requests.store_timestamps[at[found[0]]]) != said:
                stored = int(requests.store_timestamps[at[found[0]]])
                yield f"its header {name} at time {said}, its record at {stored}"
        # Not the first entry: RocketMQ counts its seconds from the begin time the file inherited.
        elapsed = np.maximum((requests.store_timestamps[at] - begin) // 1000, 0)
        late = np.flatnonzero(is_record & (elapsed != self._seconds[rows]) & (rows > 0))
        if len(late):
            row = int(rows[int(late[0])])
            yield (
                f"entry {row + FIRST_ENTRY} has time {int(self._seconds[row])} s, its record "
                f"{int(elapsed[int(late[0])])} s"
            )

    def beyond(self, log_end: int) -> Iterator[str]:
        """Yield the first entry that points behind the log's end."""
        if len(self._offsets) and int(self._offsets.max()) >= log_end:
            row = int((self._offsets >= log_end).argmax())
            yield (
                f"entry {row + FIRST_ENTRY} points to physical offset {int(self._offsets[row])}, "
                f"the log ends at {log_end}"
            )


def _column(entries: NDArray[np.void], name: str) -> NDArray[np.int64]:
    if not len(entries):
        return np.zeros(0, dtype=np.int64)
    return entries[name].astype(np.int64)


def _packed(rows: NDArray[np.int64], hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pack a record's row in its stretch and a hash into one number, to compare both at once."""
    return (rows.astype(np.int64) << _HASH_BITS) | hashes
