"""Index view: records by key, from the index files or, where those can't be trusted, from the log.

After an unclean stop an index file may lack entries or hold half of one, and nothing in it would
tell. Then only the files that recovery would keep are used; what comes after them is indexed in
memory at the first lookup (recovery/index_plan.py says from where).

A lookup gives candidates: records with a key of the same hash. The caller compares the texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.dispatch_request import dispatch_requests
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hashing.index_keys import hashes_of
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.record import decode_record
from broker_core.store.index.file import (
    MAX_TIME_MS,
    IndexFile,
    key_hash,
    list_index_files,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.log.commit_log import CommitLog, Stretch
    from broker_core.store.recovery.index_plan import IndexPlan
    from broker_core.store.recovery.plan import RecoveryPlan
    from broker_core.store.settings import StoreSettings

    Keys = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]
    """Of each key its hash, its record's physical offset and its record's store time."""

ALL_TIMES = (0, MAX_TIME_MS)
_FEW = 16
_NO_KEYS: Keys = (
    np.empty(0, dtype=np.int32),
    np.empty(0, dtype=np.int64),
    np.empty(0, dtype=np.int64),
)


class IndexView:
    """All index files of a store. Not thread-safe.

    `recovery` is the plan for a store that was left unclean.
    """

    def __init__(
        self,
        root: Path,
        log: CommitLog,
        settings: StoreSettings,
        recovery: RecoveryPlan | None = None,
    ) -> None:
        self._directory = root / "index"
        self._log = log
        self._recovery = recovery
        self._rebuilt: _RebuiltIndex | None = None
        self._slots: dict[int, int] = {}
        if {"maxHashSlotNum", "maxIndexNum"} <= settings.given:
            self._slots[settings.index_file_bytes] = settings.index_slots

    def lookup(
        self,
        topic: str,
        key: str,
        limit: int,
        bounds: tuple[int, int] = ALL_TIMES,
        *,
        is_complete: bool = False,
    ) -> list[int]:
        """Return physical offsets of at most `limit` candidates, newest first, each once.

        `bounds` are the earliest and latest store time, to the second. With `is_complete` the
        parts of the log that no file covers are searched as well, last, and records that were
        deleted do not count.
        """
        found: dict[int, None] = {}
        wanted = key_hash(topic, key)
        files = self._files()
        candidates = [self._indexed(files, wanted, *bounds)]
        if is_complete:
            candidates.append(self._unindexed(files, wanted, *bounds))
        for physical_offset in chain(*candidates):
            if len(found) >= limit:
                break
            if not is_complete or physical_offset >= self._log.start:
                found.setdefault(physical_offset)
        return list(found)

    def _unindexed(
        self, files: list[IndexFile], wanted: int, begin_ms: int, end_ms: int
    ) -> Iterator[int]:
        """Yield candidates from the parts of the log that no file covers."""
        at = self._log.start
        for header in [file.header for file in files if not file.is_empty]:
            if header.begin_physical_offset > at:
                gap = _RebuiltIndex(self._log, at, header.begin_physical_offset)
                yield from gap.lookup(wanted, begin_ms, end_ms)
            at = max(at, header.end_physical_offset)
        yield from _RebuiltIndex(self._log, at, self._log.capacity).lookup(wanted, begin_ms, end_ms)

    def _indexed(
        self, files: list[IndexFile], wanted: int, begin_ms: int, end_ms: int
    ) -> Iterator[int]:
        """Yield candidates from the files, newest first, and from what replaces unusable ones."""
        if self._recovery is not None and self._recovery.index is not None:
            last = _last_kept(self._recovery.index)
            files = [file for file in files if last is None or int(file.path.name) <= last]
            yield from self._rebuild(self._recovery).lookup(wanted, begin_ms, end_ms)
        is_bounded = (begin_ms, end_ms) != ALL_TIMES
        for file in reversed(files):
            header = file.header
            if file.is_empty:
                continue  # its bytes do not even tell how many slots it has
            is_inside = header.begin_timestamp <= end_ms and header.end_timestamp >= begin_ms
            if is_inside or not is_bounded:
                file.slots = self._slots_of(file)
                yield from file.lookup(wanted, begin_ms, end_ms)
            if is_bounded and header.begin_timestamp < begin_ms:
                return

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
        self._hashes, self._offsets, self._times = map(np.concatenate, zip(*found, strict=True))

    def lookup(self, wanted: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield physical offsets under a hash, newest first; see IndexFile.lookup."""
        rows = np.flatnonzero(self._hashes == wanted)[::-1]
        seconds = self._times[rows] // 1000 * 1000
        is_inside = (seconds >= begin_ms) & (seconds <= end_ms)
        yield from self._offsets[rows[is_inside]].tolist()


def _keys_of_few(stretch: Stretch, count: int) -> Keys:
    """Return the keys of a stretch's first records, one by one; `_keys` is for more than 16."""
    rows = []
    for start, size in zip(stretch.starts[:count].tolist(), stretch.sizes.tolist(), strict=False):
        record = decode_record(stretch.buffer[start : start + size].tobytes(), verify=False)
        if record.sys_flag & TRANSACTION_MASK != SysFlag.ROLLBACK:
            at = record.physical_offset, record.store_timestamp
            rows += [(each, *at) for each in hashes_of(record.topic, record.property_map)]
    found = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return found[:, 0].astype(np.int32), found[:, 1], found[:, 2]


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
    return fields.index_hashes, fields.physical_offsets[rows], fields.store_timestamps[rows]
