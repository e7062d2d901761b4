"""Index view: records by key, from the index files or, where those can't be trusted, from the log.

After an unclean stop an index file may lack entries or hold half of one, and nothing in it would
tell. Only files that were filled and flushed before the checkpoint's index time are certain; what
comes after them is indexed anew, in memory, at the first lookup.

A lookup gives candidates: records with a key of the same hash. Whoever asks compares the texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.dispatch import dispatch_fields
from broker_core.codec.frames import FrameBatch
from broker_core.store.index_file import (
    MAX_TIME_MS,
    IndexFile,
    IndexHeader,
    key_hash,
    list_index_files,
)

if TYPE_CHECKING:
    from broker_core.store.commit_log import CommitLog
    from broker_core.store.settings import StoreSettings


class IndexView:
    """All index files of a store. Not thread-safe.

    `trusted_ms` is the time up to which files are certain, None if all of them are. `log_end` is
    where the log's valid data ends, None if the bytes say so themselves.
    """

    def __init__(
        self,
        root: Path,
        log: CommitLog,
        settings: StoreSettings,
        trusted_ms: int | None = None,
        log_end: int | None = None,
    ) -> None:
        self._directory = root / "index"
        self._log = log
        self._trusted_ms = trusted_ms
        self._log_end = log_end
        self._rebuilt: _RebuiltIndex | None = None
        self._slots: dict[int, int] = {}
        if {"maxHashSlotNum", "maxIndexNum"} <= settings.given:
            self._slots[settings.index_file_bytes] = settings.index_slots

    def lookup(
        self, topic: str, key: str, limit: int, begin_ms: int = 0, end_ms: int = MAX_TIME_MS
    ) -> list[int]:
        """Return physical offsets of at most `limit` candidates, newest first, each once."""
        found: dict[int, None] = {}
        for physical_offset in self._candidates(key_hash(topic, key), begin_ms, end_ms):
            if len(found) >= limit:
                break
            found.setdefault(physical_offset)
        return list(found)

    def _candidates(self, wanted: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        files = self._files()
        if self._trusted_ms is not None:
            files = [file for file in files if file.header.end_timestamp <= self._trusted_ms]
            yield from self._rebuild(files).lookup(wanted, begin_ms, end_ms)
        for file in reversed(files):
            header = file.header
            if header.begin_timestamp <= end_ms and header.end_timestamp >= begin_ms:
                file.slots = self._slots_of(file, files)
                yield from file.lookup(wanted, begin_ms, end_ms)
            if header.begin_timestamp < begin_ms:
                return

    def _files(self) -> list[IndexFile]:
        files = []
        for path in list_index_files(self._directory):
            try:
                files.append(IndexFile(path))
            except FileNotFoundError:
                continue  # retention was faster
        return files

    def _slots_of(self, file: IndexFile, files: list[IndexFile]) -> int:
        """How many slots a file has; any of the same length that has entries tells."""
        length = len(file.data)
        if length not in self._slots:
            telling = (f for f in files if len(f.data) == length and f.header.entry_count > 1)
            self._slots[length] = next(telling, file).slots
        return self._slots[length]

    def _rebuild(self, trusted: list[IndexFile]) -> _RebuiltIndex:
        if self._rebuilt is None:
            header = trusted[-1].header if trusted else IndexHeader()
            start = max(self._log.start, header.end_physical_offset)
            self._rebuilt = _RebuiltIndex(self._log, start, self._log_end)
        return self._rebuilt


class _RebuiltIndex:
    """Keys of the log's records from an offset on, in memory, in the order of the log."""

    def __init__(self, log: CommitLog, start: int, end: int | None) -> None:
        hashes = [np.empty(0, dtype=np.int32)]
        offsets = [np.empty(0, dtype=np.int64)]
        times = [np.empty(0, dtype=np.int64)]
        for stretch in log.walk(start):
            physical = stretch.starts + stretch.segment.base
            kept = slice(0, None if end is None else int(np.searchsorted(physical, end)))
            frames = FrameBatch(
                buffer=stretch.buffer,
                starts=stretch.starts[kept],
                sizes=stretch.sizes[kept],
                offsets=physical[kept],
                origin=stretch.segment.base,
                name=str(stretch.segment.path),
            )
            if not len(frames):
                continue
            fields = dispatch_fields(frames)
            hashes.append(fields.index_hashes)
            offsets.append(fields.physical_offsets[fields.index_rows])
            times.append(fields.store_timestamps[fields.index_rows])
        self._hashes = np.concatenate(hashes)
        self._offsets = np.concatenate(offsets)
        self._times = np.concatenate(times)

    def lookup(self, wanted: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield physical offsets under a hash, newest first; see IndexFile.lookup."""
        rows = np.flatnonzero(self._hashes == wanted)[::-1]
        seconds = self._times[rows] // 1000 * 1000
        is_inside = (seconds >= begin_ms) & (seconds <= end_ms)
        yield from self._offsets[rows[is_inside]].tolist()
