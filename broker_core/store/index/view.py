"""Index view: records by key, from the index files or, where those can't be trusted, from the log.

After an unclean stop an index file may lack entries or hold half of one, and nothing in it would
tell. Then only the files that recovery would keep are used; what comes after them is indexed in
memory at the first lookup (recovery/index_plan.py says from where).

A lookup gives candidates: records with a key of the same hash. The caller compares the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.dispatch_request import dispatch_requests
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hashing.index_keys import hashes_of
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.record import decode_record
from broker_core.store.index.file import IndexFile, key_hash, list_index_files

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.log.commit_log import CommitLog, Stretch
    from broker_core.store.recovery.index_plan import IndexPlan
    from broker_core.store.recovery.plan import RecoveryPlan
    from broker_core.store.settings import StoreSettings

    Keys = tuple[NDArray[np.int32], NDArray[np.int64]]
    """Of each key its hash and its record's physical offset."""

_FEW = 16
_NO_KEYS: Keys = (np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64))


class IndexView:
    """All index files of a store. Not thread-safe.

    `recovery` is the plan for a store that was left unclean. `pending` yields the candidates under
    a hash that no file has yet. `told_end` returns where the log ends, if that is told.
    """

    def __init__(
        self,
        root: Path,
        log: CommitLog,
        settings: StoreSettings,
        recovery: RecoveryPlan | None = None,
        pending: Callable[[int], Iterator[int]] = lambda _wanted: iter(()),
        told_end: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._directory = root / "index"
        self._log = log
        self._recovery = recovery
        self._pending = pending
        self._told_end = told_end
        self._rebuilt: _RebuiltIndex | None = None
        self._slots: dict[int, int] = {}
        if {"maxHashSlotNum", "maxIndexNum"} <= settings.given:
            self._slots[settings.index_file_bytes] = settings.index_slots

    def lookup(self, topic: str, key: str, *, is_complete: bool = False) -> Iterator[int]:
        """Yield physical offsets of candidates, newest first, each once; deleted ones left out.

        With `is_complete` the parts of the log that no file covers are searched as well, last.
        """
        known: set[int] = set()
        wanted = key_hash(topic, key)
        files = self._files()
        candidates = [self._indexed(files, wanted)]
        if is_complete:
            candidates.append(self._unindexed(files, wanted))
        for physical_offset in chain(*candidates):
            if physical_offset >= self._log.start and physical_offset not in known:
                known.add(physical_offset)
                yield physical_offset

    def topics_with(self, topics: Sequence[str], key: str) -> list[str]:
        """Return those of some topics that files have candidates for; each file is opened once."""
        files = self._files()
        found = (next(self._indexed(files, key_hash(topic, key)), None) for topic in topics)
        return [topic for topic, first in zip(topics, found, strict=True) if first is not None]

    def _unindexed(self, files: list[IndexFile], wanted: int) -> Iterator[int]:
        """Yield candidates from the parts of the log that no file covers."""
        at, told = self._log.start, self._told_end()
        for header in [file.header for file in files if not file.is_empty]:
            if header.begin_physical_offset > at:
                gap = _RebuiltIndex(self._log, at, header.begin_physical_offset)
                yield from gap.lookup(wanted)
            at = max(at, header.end_physical_offset)
        end = self._log.capacity if told is None else told
        yield from _RebuiltIndex(self._log, at, end).lookup(wanted)

    def _indexed(self, files: list[IndexFile], wanted: int) -> Iterator[int]:
        """Yield candidates from the files, newest first, and from what replaces unusable ones."""
        if self._recovery is not None and self._recovery.index is not None:
            last = _last_kept(self._recovery.index)
            files = [file for file in files if last is None or int(file.path.name) <= last]
            yield from self._rebuild(self._recovery).lookup(wanted)
        yield from self._pending(wanted)
        for file in reversed(files):
            if not file.is_empty:  # its bytes do not even tell how many slots it has
                file.slots = self._slots_of(file)
                yield from file.lookup(wanted)

    def _files(self) -> list[IndexFile]:
        files = []
        for path in list_index_files(self._directory):
            try:
                files.append(IndexFile(path))
            except FileNotFoundError:
                continue  # retention was faster
        return files

    def _slots_of(self, file: IndexFile) -> int:
        """Return the slot count of a file with entries; files of one length have one count."""
        length = len(file.data)
        if length not in self._slots:
            self._slots[length] = file.slots
        return self._slots[length]

    def _rebuild(self, recovery: RecoveryPlan) -> _RebuiltIndex:
        if self._rebuilt is None:
            assert recovery.index is not None, "asked only where the index changes"
            start = max(self._log.start, recovery.index.from_offset)
            self._rebuilt = _RebuiltIndex(self._log, start, recovery.log_end)
        return self._rebuilt


def _last_kept(plan: IndexPlan) -> int | None:
    """Return the name, as a number, of the newest file that recovery keeps; None: all files."""
    if plan.rewind_to is None:
        return None
    is_emptied = plan.rewind_to.header.entry_count <= 1
    return plan.rewind_to.name - 1 if is_emptied else plan.rewind_to.name


class _RebuiltIndex:
    """Keys of the log's records from an offset on, in memory, in the order of the log."""

    def __init__(self, log: CommitLog, start: int, end: int) -> None:
        found = [_NO_KEYS]
        for stretch in log.walk(start):
            count = int(np.searchsorted(stretch.starts, end - stretch.segment.base))
            if count:
                found.append((_keys_of_few if count <= _FEW else _keys)(stretch, count))
            if stretch.end >= end:
                break
        self._hashes, self._offsets = map(np.concatenate, zip(*found, strict=True))

    def lookup(self, wanted: int) -> Iterator[int]:
        """Yield physical offsets under a hash, newest first; see IndexFile.lookup."""
        yield from self._offsets[np.flatnonzero(self._hashes == wanted)[::-1]].tolist()


def _keys_of_few(stretch: Stretch, count: int) -> Keys:
    """Return the keys of a stretch's first records, one by one; `_keys` is for more than 16."""
    rows = []
    for start, size in zip(stretch.starts[:count].tolist(), stretch.sizes.tolist(), strict=False):
        record = decode_record(stretch.buffer[start : start + size].tobytes(), verify=False)
        if record.sys_flag & TRANSACTION_MASK != SysFlag.ROLLBACK:
            hashes = hashes_of(record.topic, record.property_map)
            rows += [(each, record.physical_offset) for each in hashes]
    found = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return found[:, 0].astype(np.int32), found[:, 1]


def _keys(stretch: Stretch, count: int) -> Keys:
    """Return the keys of a stretch's first records, by columns; `_keys_of_few` for at most 16."""
    frames = FrameBatch(
        buffer=stretch.buffer,
        starts=stretch.starts[:count],
        sizes=stretch.sizes[:count],
        offsets=np.zeros(count, dtype=np.int64),
        origin=stretch.segment.base,
        name=str(stretch.segment.path),
    )
    fields = dispatch_requests(frames)
    rows = fields.index_rows
    return fields.index_hashes, fields.physical_offsets[rows]
