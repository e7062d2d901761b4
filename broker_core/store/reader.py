"""Store reader: all that can be read of a store, without changing anything in it.

Takes no lock and creates nothing, so it works on a read-only directory and beside any writer, ours
or Apache's. Segments are mapped read-only. A consume-queue entry is trusted only after a look at
the record it points to (queue/view.py). Files that are rolled, added or deleted under a reader are
noticed when an offset leads outside of the listed ones.

Messages that a writer has acknowledged and not yet dispatched are seen as well (pending_tail.py).

A store that was not closed cleanly, and that no process is writing to, is read as recovery would
leave it (recovery/inspect.py). Until it was closed cleanly again, bodies are checked against their
checksums.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.api import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_ROWS
from broker_core.codec.frames import FrameBatch
from broker_core.errors import CorruptRecordError, OffsetRangeError
from broker_core.store.format_check import require_store
from broker_core.store.log.commit_log import CommitLog
from broker_core.store.pending_tail import PendingTail
from broker_core.store.queue.consume_queue import has_entry, list_queue_ids, list_queues
from broker_core.store.queue.deletions import QueueOrigins
from broker_core.store.recovery.inspect import StoreState, examine_store
from broker_core.store.settings import StoreSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from broker_core.codec.dispatch_request import DispatchRequests
    from broker_core.codec.record import Record
    from broker_core.store.frame_reader import FrameReader, Select
    from broker_core.store.index.view import IndexView
    from broker_core.store.queue.view import QueueView
    from broker_core.store.queue.writer import QueueKey
    from broker_core.store.recovery.plan import Progress, RecoveryPlan


class StoreReader:
    """One store, open for reading. Not thread-safe.

    StoreNotFoundError or FormatVersionError if no store that we read lies at `root`. Opening looks
    at a few names, whatever the store's size; the first use of one that was left unclean scans
    part of its log, and calls `progress` with how far that is.
    """

    def __init__(
        self,
        root: Path,
        settings: StoreSettings | None = None,
        *,
        progress: Progress | None = None,
    ) -> None:
        self.settings = settings or StoreSettings()
        log_directories = self.settings.commit_log_directories(root)
        require_store(root, log_directories)
        self.root = root
        # An open directory keeps its inode number, so that no other one can be taken for it.
        self._directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._directory)
        self._progress = progress
        self.log = CommitLog(*log_directories)
        self._views: dict[QueueKey, QueueView] = {}
        self._origins = QueueOrigins(root)
        self._state: StoreState | None = None
        self._index: IndexView | None = None
        self._pending = PendingTail(root, self.log, self.settings)

    def close(self) -> None:
        """Drop all maps; batches handed out stay valid."""
        self.log.close()
        self._forget()

    @cached_property
    def _frame_reader(self) -> FrameReader:
        from broker_core.store.frame_reader import FrameReader

        return FrameReader(self.root, self.log, self.settings.broker_name)

    @property
    def is_in_place(self) -> bool:
        """True if the store is still the one at its path, not deleted nor replaced by another."""
        try:
            return os.path.samestat(os.fstat(self._directory), self.root.stat())
        except OSError:
            return False

    def refresh(self) -> None:
        """List the log's files again, and notice if an unclean store was recovered.

        Queues refresh themselves.
        """
        self.log.refresh()
        if self._state and not self._state.is_clean and not self._state.is_current(self.root):
            self._forget()

    def _forget(self) -> None:
        self._views.clear()
        self._state = None
        self._index = None

    @property
    def state(self) -> StoreState:
        """The store's state as found: clean, in use, or what recovery would do."""
        if self._state is None:
            self._state = examine_store(self.root, self.log, self.settings, self._progress)
        return self._state

    @property
    def recovery(self) -> RecoveryPlan | None:
        """The plan that recovery would carry out; None for a store that was closed or is in use."""
        return self.state.recovery

    @property
    def pending(self) -> PendingTail:
        """What is in the log and not yet in queues and index, as of now."""
        if self.state.is_clean and self._pending.look() and self._pending.is_lost:
            self._forget()
        return self._pending

    # Queues

    def queues(self) -> list[QueueKey]:
        """Return every (topic, queue id) that has a consume queue, or would have one, sorted."""
        # Queues of which something is pending have files.
        missing = self.recovery.queues.keys() if self.recovery else ()
        return sorted({*list_queues(self.root / "consumequeue"), *missing})

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queues of one topic that `queues` has, sorted."""
        missing = self.recovery.queues.keys() if self.recovery else ()
        existing = list_queue_ids(self.root / "consumequeue" / topic)
        return sorted({*existing, *(number for name, number in missing if name == topic)})

    def queue(self, topic: str, queue_id: int) -> QueueView:
        """Return the view of one queue; the topic's name must be a legal one."""
        key = (topic, queue_id)
        _ = self.pending
        view = self._views.get(key)
        if view is None:
            directory = self.root / "consumequeue" / topic / str(queue_id)
            overlay = self.recovery.queues.get(key) if self.recovery else None
            if overlay is not None and self.state.damage and not len(overlay.entries):
                overlay = None  # recovery would cut messages that are still there
            from broker_core.store.queue.view import QueueView

            view = QueueView(
                topic,
                queue_id,
                directory,
                self.log,
                overlay,
                pending=partial(self._pending.queue, key),
                origin=partial(self._origins.of, *key),
                has_entry=partial(has_entry, self.root),
            )
            self._views[key] = view
        return view

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return (min, max) of a queue; for one without messages both are `queue_origin`."""
        return self.queue(topic, queue_id).range()

    def queue_origin(self, topic: str, queue_id: int) -> int:
        """Return where a queue that is not among `queues` begins.

        That is 0, or the end that the queue had when its topic was last deleted.
        """
        return self._origins.of(topic, queue_id)

    def entries(self, topic: str, queue_id: int, start: int, end: int) -> NDArray[np.void]:
        """Return the consume-queue entries [start, end) of a queue.

        OffsetRangeError if the queue does not hold them all.
        """
        view = self.queue(topic, queue_id)
        _require_range(view, start, end)
        return view.entries(start, end)

    # Records

    def frames(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        *,
        select: Select | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        verify: bool | None = None,
    ) -> Iterator[FrameBatch]:
        """Return the records [start, end) of a queue in batches, none of which spans two segments.

        `select` drops entries before the log is touched; `next_offset` counts the dropped ones
        too, so that an empty batch still tells how far the reader came. Batches point into mapped
        segments: no record is copied or checked here. OffsetRangeError if the queue does not hold
        all of the range, or loses part of it while it is read.
        """
        view = self.queue(topic, queue_id)
        _require_range(view, start, end)
        limits = (batch_rows, batch_bytes)
        is_checked = not self.state.is_clean if verify is None else verify
        return self._frame_reader.frames(view, range(start, end), select, limits, is_checked)

    def record_at(self, physical_offset: int) -> Record:
        """Return the record that begins at a physical offset, body checked.

        OffsetRangeError if no file holds the offset, CorruptRecordError if no record begins there.
        Bytes inside a body can look like a record: `begins_record` tells.
        """
        return self.log.record(physical_offset)

    def begins_record(self, record: Record) -> bool:
        """Tell whether a record that was read at an offset is not just bytes inside another.

        Its queue's entry proves it; for a record without one the segment is walked up to it.
        """
        wanted = record.physical_offset
        if has_entry(self.root, record):
            return True
        end = self._told_end()
        if end is not None and wanted >= end:
            return False
        found = self.log.locate(wanted)
        for stretch in self.log.walk(found[0].base) if found else ():
            if stretch.end > wanted or stretch.stop_reason != "more":
                return bool((stretch.starts + stretch.segment.base == wanted).any())
        return False

    def log_range(self) -> tuple[int, int]:
        """Return (min, max) of the commit log: its first byte, and the end of its last record."""
        self.refresh()
        told = self._told_end()
        if told is not None:
            return self.log.start, told
        # Only what lies behind the queues' newest records must be walked.
        end = max(self.log.start, self._reached())
        for stretch in self.log.walk(end):
            end = stretch.next_offset
        return self.log.start, end

    def _told_end(self) -> int | None:
        """Return where recovery or a pending tail ends the log; None if only a look at it tells.

        What lies behind that is part of an append that does not count.
        """
        return self.recovery.log_end if self.recovery else self.pending.log_end

    def _reached(self) -> int:
        """Return the physical offset up to which some consume queue vouches for the log."""
        return max((self.queue(*key).last_record_end() for key in self.queues()), default=0)

    def scan_log(self) -> Iterator[DispatchRequests]:
        """Yield dispatch requests of all records of the log, in order, a stretch at a time.

        CorruptRecordError if the log breaks off before the end that a consume queue vouches for.
        Bytes behind that end are the rest of a crash, or a record that is just being written.
        """
        self.refresh()
        if self.state.damage is not None:
            raise self.state.damage
        from broker_core.store.log.scan import LogScan

        end = self._told_end()
        scan = LogScan(self.log, self.settings, self.log.start, verify=False, stop=end)
        yield from scan.batches()
        if self.recovery is None and scan.end < (self._reached() if end is None else end):
            message = (
                f"The commit log in {self.root} breaks off at physical offset {scan.end}: "
                f"{scan.ending or 'nothing is written there'}. Run `rocketmq-broker check` on the "
                f"store."
            )
            raise CorruptRecordError(message, self.root / "commitlog", scan.end)

    # Searches

    def search_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first offset whose store time is at or after a time, else the max."""
        low, high = self.queue_range(topic, queue_id)
        view = self.queue(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            if self._store_time(view, middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _store_time(self, view: QueueView, offset: int) -> int:
        entries = view.columns(offset, offset + 1)
        physical_offset, size = int(entries.physical_offsets[0]), int(entries.sizes[0])
        time_ms = self.log.store_time(physical_offset, size)
        if time_ms is None:
            self._frame_reader.segment_of(view, offset, physical_offset)
            message = (
                f"Message {offset} of queue {view.topic}/{view.queue_id} is not where its entry "
                f"says: no record of {size} bytes lies at physical offset {physical_offset}. Run "
                f"`rocketmq-broker check` on the store."
            )
            raise CorruptRecordError(message, view.directory, physical_offset)
        return time_ms

    def lookup(self, topic: str, key: str, limit: int, *, is_complete: bool = False) -> list[int]:
        """Return the first of the `candidates` for a key, at most `limit`."""
        return list(islice(self.candidates(topic, key, is_complete=is_complete), limit))

    def candidates(self, topic: str, key: str, *, is_complete: bool = False) -> Iterator[int]:
        """Return the physical offsets of records that may have a key, newest first, as asked for.

        Only hashes were compared. Deleted records are left out. With `is_complete`, parts of
        the log that no index file covers are searched too.
        """
        return self._fresh_index().lookup(topic, key, is_complete=is_complete)

    def topics_with(self, topics: Sequence[str], key: str) -> list[str]:
        """Return those of some topics that the index has candidates for, in their order."""
        return self._fresh_index().topics_with(topics, key)

    def _fresh_index(self) -> IndexView:
        self.refresh()
        if self.state.damage is not None:
            raise self.state.damage
        _ = self.pending
        if self._index is None:
            from broker_core.store.index.view import IndexView

            self._index = IndexView(
                self.root,
                self.log,
                self.settings,
                self.recovery,
                self._pending.keys_under,
                self._told_end,
            )
        return self._index


def _require_range(view: QueueView, start: int, end: int) -> None:
    """Raise OffsetRangeError unless the queue holds all of [start, end)."""
    minimum, maximum = view.range()
    if not minimum <= start <= end <= maximum:
        message = (
            f"Queue {view.topic}/{view.queue_id} holds offsets {minimum} to {maximum}, but {start} "
            f"to {end} was asked for; start at {minimum} or later and end by {maximum}."
        )
        raise OffsetRangeError(message, minimum, maximum)
