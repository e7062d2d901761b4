"""Store writer: appends batches, flushes, deletes; several processes may write one store in turn.

Problem. A batch must be in the store as a whole or not at all, whichever process dies when, and
one batch touches several files: the log, a consume queue per destination, the index. Their formats
are RocketMQ's, and nothing may be added to them. Embedded writers are separate processes (Spark
tasks), so the next batch is usually another process's.

Invariants.

- Every change is made under the store's lock (lock.py), taken per call by embedded writers and held
  for life by a server. session.py owns the lock, the tail marker and what is known between calls.
- A queue entry or an index key refers only to bytes that are in the log already.
- Offsets are dense: a record's queue offset is its queue's end, its physical offset the log's end.
- Store times never go back, whatever the clock does: searches by time rely on it.

Outline. Few records go the quick way (log_first.py). All others are a batch, encoded outside the
lock (batch.py). Under it, in this order:

    marker APPENDING     written by session.py. From here on a crash takes the batch back
    log                  log/writer.py: one write per segment; with flush="sync" one fsync each.
                         The dispatch plan is computed beside it, in another thread if it is large
    marker DISPATCHING   all records are in the log. From here on a crash finishes the batch
    consume queues       dispatch.py, queue/writer.py: one write per queue and file
    index                index/writer.py: entries, header, slots
    marker CLEAN         the batch can be acknowledged

An error on the way (a full disk, a failing one) undoes this before it is raised, queues and index
first and the log last, under the marker UNDOING once queues may have been written. Nothing of the
batch is left.
Each marker is a write of 156 bytes without an fsync. It survives the death of the process; after
loss of power the boot id differs, the marker is not believed, and the log is scanned
(recovery/plan.py). What is durable when is said in flush.py.

Rejected (docs/decisions/0003-whole-batches-by-a-tail-marker.md).

- A log of intentions in a file of its own: one more file to sync, for the same states.
- File lengths or the last queue entry as the end of the store: wrong after a crash as often as not.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, get_args

import numpy as np

from broker_core.concurrency import compute_beside
from broker_core.errors import ConfigError, StorageError
from broker_core.store import retention
from broker_core.store.batch import Batch
from broker_core.store.few_records import FewRecords
from broker_core.store.flush import make_durable
from broker_core.store.format_check import require_store
from broker_core.store.index.file import IndexHeader
from broker_core.store.index.writer import IndexPosition
from broker_core.store.io.files import Failpoint, OsFiles, make_directory, storage_error
from broker_core.store.log.writer import Placement, plan_placement
from broker_core.store.log_first import LogFirst
from broker_core.store.recovery.tail_marker import TailState
from broker_core.store.session import SessionOptions, StoreSession
from broker_core.store.settings import FlushMode
from broker_core.store.settings_file import save_settings_file
from broker_core.store.topic_removal import empty_trash, remove_queues
from broker_core.types import AppendResult, Closing

if TYPE_CHECKING:
    from broker_core.codec.dispatch_request import DispatchRequests
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.store.components import StoreComponents
    from broker_core.store.io.files import Files
    from broker_core.store.io.segments import Segment
    from broker_core.store.log_first import Placed
    from broker_core.store.recovery.plan import Progress
    from broker_core.store.settings import StoreSettings

FLUSH_MODES: tuple[str, ...] = get_args(FlushMode)
_UNDER_WAY = (TailState.APPENDING, TailState.DISPATCHING)
WORTH_A_THREAD = 10_000
"""Records from which on a log write takes long enough to plan the dispatch in another thread."""
log = logging.getLogger(__name__)


class BeforeDelete(Protocol):
    """Appends again what must not be lost with a part of the log (decisions of batches)."""

    def __call__(self, log_start: int, /, *, is_locked: bool) -> None:
        """Save what is needed of the log before a physical offset, which it will start at.

        Called twice: without the lock, for all that may take long, and under it, just before
        segments go, for what came since.
        """


class StoreWriter(Closing):
    """One store, open for writing; several processes may each have one. See the module.

    Made by `open`. Thread-safe: calls take turns.
    """

    def __init__(self, session: StoreSession, settings: StoreSettings) -> None:
        self._session = session
        self._settings = settings
        self._clock_ms = session.clock_ms
        self._log_first = LogFirst(session, session.clock_ms)
        self._is_closed = False
        self._is_usually_sync = settings.flush == "sync"
        # Kept, for a turn of a single send is as short as making one.
        self._quick_turn = session.turn("append messages", dispatches=False)
        self.before_delete: BeforeDelete | None = None

    @classmethod
    def open(
        cls,
        root: Path,
        settings: StoreSettings,
        *,
        create: bool = False,
        hold: bool = False,
        files: Files | None = None,
        options: SessionOptions | None = None,
        progress: Progress | None = None,
    ) -> StoreWriter:
        """Open the store at `root`, repairing it if it was not closed.

        With `create` a missing store is made, with the file sizes of `settings`; otherwise
        StoreNotFoundError. `hold` keeps the lock until `close`. StoreLockedError if another
        process does not give it back in time. `progress` is called with how far a recovery is.
        """
        files = OsFiles() if files is None else files
        if create:
            _make_store(root, settings, files)
        require_store(root, settings.commit_log_directories(root))
        agreed = settings.agreeing_with(root)
        chosen = options or SessionOptions()
        if progress is not None:
            chosen = replace(chosen, progress=progress)
        session = StoreSession(root, agreed, files, chosen, hold=hold)
        writer = cls(session, agreed)
        try:
            with writer.turn("open the store"):
                empty_trash(files, root)
                save_settings_file(files, root, settings.to_remember())
        except BaseException:
            writer._session.close()
            raise
        return writer

    @property
    def root(self) -> Path:
        """The store's directory."""
        return self._session.root

    @property
    def settings(self) -> StoreSettings:
        """The settings, with the file sizes that the files have."""
        return self._settings

    def turn(
        self, doing: str, *, dispatches: bool = True
    ) -> AbstractContextManager[StoreComponents]:
        """Hold the store's lock over a block of work, such as saving configuration; turns nest.

        `doing` completes "Could not ..." in error messages. What is pending is dispatched first,
        unless the block neither reads nor changes queues and index.
        """
        self._require_open()
        return self._session.turn(doing, dispatches=dispatches)

    def beside(self, doing: str) -> AbstractContextManager[Files]:
        """Keep all others from a block that writes neither log, queues nor index.

        A server's appends go on meanwhile; for embedded writers it is a turn. What is changed in
        such a block must be changed in no turn alone.
        """
        self._require_open()
        return self._session.beside(doing)

    def _require_open(self) -> None:
        if self._is_closed:
            message = f"The writer of store {self.root} is closed; open the store again."
            raise StorageError(message)

    def append(
        self,
        messages: MessageBatch | Batch,
        *,
        flush: str | None = None,
        guard: Callable[[], None] | None = None,
    ) -> AppendResult:
        """Append a batch: all of it or, if anything fails or the process dies, nothing.

        When it returns, the messages are in the log, in their queues and in the index; that
        survives the death of every process, and with flush="sync" loss of power. `flush` is
        "async" or "sync", the store's setting if not given. `guard` is called under the lock
        before anything is written; an error from it is raised on, and nothing is written.

        IllegalMessageError for a message over a limit, DiskFullError and StorageError for what
        the disk refuses, StoreLockedError if another writer does not give the lock back.
        """
        is_sync = self._is_sync(flush)
        batch = self.as_batch(messages)
        few = FewRecords.of(batch) if guard is None else None
        placed = None if few is None else self._append_few(few, is_sync=is_sync)
        if placed is not None and few is not None:
            return _result_of(few, placed)
        return self._append_many(batch, is_sync=is_sync, guard=guard)

    def _append_many(
        self, batch: Batch, *, is_sync: bool, guard: Callable[[], None] | None
    ) -> AppendResult:
        # Encoding, hashing and grouping are the larger part of the work: all of it before the lock.
        batch = batch.make_ready()
        with self.turn("append messages"):
            if guard is not None:
                guard()
            return self._append(batch, is_sync=is_sync)

    def append_few(self, few: FewRecords, *, flush: str | None = None) -> Placed:
        """Append a few records as `append` does, and return where they lie, without arrays."""
        placed = self._append_few(few, is_sync=self._is_sync(flush))
        return self._append_as_batch(few, flush) if placed is None else placed

    def _append_as_batch(self, few: FewRecords, flush: str | None) -> Placed:
        result = self.append(few.as_batch(), flush=flush)
        offsets = result.queue_offsets.tolist()
        return offsets, int(result.physical_offsets[0]), result.store_timestamp_ms

    def look(self) -> int:
        """Return the number of changes so far, to be called in a turn; see `append_unchanged`."""
        return self._log_first.look()

    def append_unchanged(self, few: FewRecords, changes: int) -> Placed | None:
        """Append a few records as `append_few` does if nothing has changed; else None.

        That is, if there were no changes but quick appends of this writer since `look` returned
        `changes`: what was read of the store's configuration then still holds. None, too, if the
        records must go the way of many.
        """
        return self._append_few(few, is_sync=self._is_usually_sync, changes=changes)

    def _append_few(
        self, few: FewRecords, *, is_sync: bool, changes: int | None = None
    ) -> Placed | None:
        """Append records the quick way; None if they must go the way of many."""
        session = self._session
        if self._settings.append_property_crc:
            return None
        self._require_open()
        with self._quick_turn:
            if session.is_nested or (changes is not None and changes != self._log_first.look()):
                return None
            return self._log_first.append(few, is_sync=is_sync)

    def note_change(self) -> None:
        """Let all who write here look at the store's configuration again; in a turn, before it."""
        self._session.note_change()

    def _is_sync(self, flush: str | None) -> bool:
        """Tell what a flush mode says, the store's if none is given; ConfigError for another."""
        mode = self._settings.flush if flush is None else flush
        if mode not in FLUSH_MODES:
            message = f"flush={flush!r} is not a flush mode; give 'async' or 'sync'."
            raise ConfigError(message)
        return mode == "sync"

    def as_batch(self, messages: MessageBatch | Batch) -> Batch:
        """Encode messages as the settings want records; IllegalMessageError for one over a limit.

        A batch that is ready stays as it is.
        """
        batch = messages
        if not isinstance(batch, Batch):
            batch = Batch.of_messages(batch, max_message_bytes=self._settings.max_message_bytes)
        return batch.with_checksums() if self._settings.append_property_crc else batch

    def delete_before(self, physical_offset: int) -> int:
        """Delete whole segments that end at or before an offset; return the log's new start.

        The last segment stays, and consume queues and index files follow, as with retention.
        """

        def chosen(components: StoreComponents) -> list[Segment]:
            return retention.before(components.read_log().segments, physical_offset)

        return self._delete(chosen)

    def delete_expired(self, *, is_on_demand: bool = False, disk_percent: int | None = None) -> int:
        """Delete what retention says must go now (retention.py); return the log's new start.

        To be called periodically; the hour and the disk decide. `is_on_demand` deletes all that is
        expired at once. `disk_percent` replaces the measured use of the disk.
        """

        def chosen(components: StoreComponents) -> list[Segment]:
            return retention.expired(
                retention.dated_segments(components),
                self._settings,
                now_ms=self._clock_ms(),
                disk_percent=self._disk_percent() if disk_percent is None else disk_percent,
                is_on_demand=is_on_demand,
            )

        return self._delete(chosen)

    def delete_queues(self, topic: str) -> None:
        """Remove a topic's consume queues; a topic of that name made later goes on with numbers."""
        with self.turn(f"delete topic {topic}") as components:
            log_start = components.read_log().start
            log_end = self._session.tail.log_end
            remove_queues(components, topic, log_start=log_start, log_end=log_end)
            self._session.mark(self._session.tail.state)

    def flush(self) -> None:
        """Make everything that any process appended so far durable."""
        self._flush(close=False)

    def close(self) -> None:
        """Flush, mark the store closed unless others appended since, release lock and files."""
        if self._is_closed:
            return
        try:
            self._flush(close=True)
        finally:
            self._is_closed = True
            self._session.close()

    # Retention

    def _delete(self, choose: Callable[[StoreComponents], list[Segment]]) -> int:
        """Delete the segments that are chosen, after what must outlive them was saved."""
        with self.turn("delete segments") as components:
            segments = choose(components)
            if not segments:
                return components.read_log().start
        log_start = segments[-1].end
        if self.before_delete is not None:
            self.before_delete(log_start, is_locked=False)
        with self.turn("delete segments") as components:
            # Chosen anew, for others may have deleted meanwhile; and no more than was saved.
            segments = [each for each in choose(components) if each.end <= log_start]
            if not segments:
                return components.read_log().start
            if self.before_delete is not None:
                self.before_delete(log_start, is_locked=True)
            log_start = retention.delete_segments(components, segments)
            # The new generation makes other writers close descriptors of files that are gone.
            self._session.mark(self._session.tail.state)
            return log_start

    def _disk_percent(self) -> int:
        directories = (*self._settings.commit_log_directories(self.root), self.root)
        return max(retention.used_percent(os.statvfs(path)) for path in directories)

    # Append

    def _append(self, batch: Batch, *, is_sync: bool) -> AppendResult:
        session = self._session
        ends = session.queue_ends(batch.groups.queues)
        tail = session.tail
        placement = plan_placement(batch.sizes, tail.log_end, self._settings.commit_log_file_bytes)
        physical_offsets = placement.physical_offsets
        queue_offsets = batch.groups.offsets_from(ends, len(batch))
        # Store times never go back, whatever the clock does: searches by time rely on it.
        store_ms = max(self._clock_ms(), tail.last_store_ms)
        if len(batch):
            levels = self._settings.delay_levels_s
            requests = batch.place(queue_offsets, physical_offsets, store_ms, levels)
            self._write(batch, placement, requests, ends, store_ms, is_sync=is_sync)
        return AppendResult(
            batch.route.queue_ids, queue_offsets, physical_offsets, batch.sizes, store_ms
        )

    def _write(
        self,
        batch: Batch,
        placement: Placement,
        requests: DispatchRequests,
        ends: Sequence[int],
        store_ms: int,
        *,
        is_sync: bool,
    ) -> None:
        session = self._session
        reach = session.files.reach
        session.mark_unclosed()
        try:
            session.mark(TailState.APPENDING, pending_end=placement.end)
            reach(Failpoint.MARKED_APPENDING)
            # Planned before the log is written: the plan depends on offsets alone, which are known.
            plan = session.components.dispatcher.planner(requests, batch.groups)
            with compute_beside(plan, is_worth=len(batch) >= WORTH_A_THREAD) as planned:
                session.components.log.write([part.records for part in batch.parts], placement)
            reach(Failpoint.LOG_WRITTEN)
            durable_end = session.tail.log_durable_end
            if is_sync:
                session.components.log.fsync(durable_end, placement.end)
                durable_end = placement.end
                reach(Failpoint.LOG_SYNCED)
            # Not earlier: from this mark on, recovery reads the records and dispatches them.
            session.mark(TailState.DISPATCHING, log_durable_end=durable_end)
            reach(Failpoint.MARKED_DISPATCHING)
            session.components.dispatcher.write(planned())
            session.mark_clean(placement.end, int(placement.physical_offsets[-1]), store_ms)
            reach(Failpoint.MARKED_CLEAN)
        except BaseException:
            self._undo(batch, ends, placement)
            raise

    def _undo(self, batch: Batch, ends: Sequence[int], placement: Placement) -> None:
        """Take back what was written of a batch: queue entries and index keys first, the log last.

        If that fails too, the marker still tells the state, and the next turn repairs the store.
        """
        session, components, tail = self._session, self._session.components, self._session.tail
        if tail.log_end == placement.end or tail.state not in _UNDER_WAY:
            return  # the error came before the first mark, or after the last one
        try:
            if tail.state is TailState.DISPATCHING:
                # Else a crash in here would finish a batch whose caller gets an error.
                session.mark(TailState.UNDOING)
                for queue, end in zip(batch.groups.queues, ends, strict=True):
                    components.queues.cut(queue, end)
                if components.index is not None:
                    components.index.rewind(
                        IndexPosition(tail.index_name, IndexHeader.decode(tail.index_header))
                    )
            components.log.take_back(tail.log_end, tail.pending_end)
            session.mark_clean(tail.log_end, tail.last_start, tail.last_store_ms)
        except OSError as error:
            session.distrust_memory()
            log.warning("event=append_not_undone repair=next_write error=%s", error)
        except BaseException:
            session.distrust_memory()
            raise

    # Flush

    def _flush(self, *, close: bool) -> None:
        """Fsync outside the lock, so that other writers can append during it."""
        session = self._session
        with self.turn("flush the store"):
            point = session.begin_flush()
        # An fsync takes milliseconds to seconds; appends go on beside it, and count as not durable.
        try:
            make_durable(session.files, point.dirty, self.root)
            session.files.reach(Failpoint.FILES_SYNCED)
        except BaseException as error:
            session.keep_dirty(point)
            if isinstance(error, OSError):
                raise storage_error(error, "flush the store", self.root) from error
            raise
        with self.turn("flush the store"):
            session.end_flush(point, close=close)


def _result_of(few: FewRecords, placed: Placed) -> AppendResult:
    queue_offsets, physical_offset, store_ms = placed
    sizes = np.array(few.sizes, dtype=np.int32)
    return AppendResult(
        np.array([queue_id for _, queue_id in few.queues], dtype=np.int32),
        np.array(queue_offsets, dtype=np.int64),
        physical_offset + np.cumsum(sizes, dtype=np.int64) - sizes,
        sizes,
        store_ms,
    )


def _make_store(root: Path, settings: StoreSettings, files: Files) -> None:
    """Make the directories of a store, durably; existing ones stay."""
    directories = [
        root,
        *settings.commit_log_directories(root),
        root / "consumequeue",
        root / "index",
        root / "config",
    ]
    if all(map(Path.is_dir, directories)):
        return
    try:
        for directory in directories:
            make_directory(files, directory)
        for parent in sorted({directory.parent for directory in directories}, reverse=True):
            files.fsync_dir(parent)
    except OSError as error:
        raise storage_error(error, "create the store", root) from error
