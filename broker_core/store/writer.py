"""Store writer: appends batches, keeps the store whole, takes turns with other writers.

Every change is made under the store's lock (lock.py), taken per call by embedded writers and held
for life by a server. Whoever takes it reads the tail marker (tail.py): if the last change was its
own, it goes on with what it remembers; if not, it looks again, and repairs what a writer that died
left behind (recovery.py, mend.py). A batch is appended in this order:

    marker APPENDING     from here to DISPATCHING a crash takes the batch back
    log                  one write per segment; with flush="sync" an fsync of each. What comes
                         behind it is computed in the meantime (dispatch.py)
    marker DISPATCHING   from here on a crash finishes the batch
    consume queues       one write per queue and file
    index                entries, header, slots
    marker CLEAN         the batch can be acknowledged

An error on the way (a full disk, a failing one) undoes it in the opposite order before it is
raised: nothing of the batch is left. What is durable when is said in flush.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.concurrency import compute_beside
from broker_core.errors import ConfigError, StorageError
from broker_core.store import retention
from broker_core.store.batch import Batch
from broker_core.store.flush import make_durable
from broker_core.store.format_check import require_store
from broker_core.store.index.file import IndexHeader
from broker_core.store.index.writer import IndexPosition
from broker_core.store.io.files import Failpoint, OsFiles, make_directory, storage_error
from broker_core.store.log.writer import Placement, plan_placement
from broker_core.store.recovery.tail import TailState
from broker_core.store.session import SessionOptions, StoreSession
from broker_core.store.settings_file import save_settings_file
from broker_core.store.topic_removal import empty_trash, remove_queues
from broker_core.types import AppendResult, Closing

if TYPE_CHECKING:
    from broker_core.codec.dispatch_request import DispatchRequests
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.store.components import StoreComponents
    from broker_core.store.io.files import Files
    from broker_core.store.io.segments import Segment
    from broker_core.store.recovery.plan import Progress
    from broker_core.store.settings import StoreSettings

FLUSH_MODES = ("async", "sync")
_UNDER_WAY = (TailState.APPENDING, TailState.DISPATCHING)
WORTH_A_THREAD = 10_000
"""So many records take long enough to write that something else is done in the meantime."""
log = logging.getLogger(__name__)


class StoreWriter(Closing):
    """One store, open for writing; several processes may each have one. See the module.

    Use `open`. Safe to use from several threads, which take turns.
    """

    def __init__(self, session: StoreSession, settings: StoreSettings) -> None:
        self._session = session
        self._settings = settings
        self._clock_ms = session.clock_ms
        self._is_closed = False
        self.before_delete: Callable[[int], None] | None = None
        """Called under the lock with the physical offset that the log will start at: the time to
        append again what must not be deleted."""

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
        process does not give it back in time. `progress` is told how far a recovery is.
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
        """The settings, file sizes as the files have them."""
        return self._settings

    def turn(self, doing: str) -> AbstractContextManager[StoreComponents]:
        """Hold the store's lock over a block of work, such as saving configuration; turns nest."""
        if self._is_closed:
            message = f"The writer of store {self.root} is closed; open the store again."
            raise StorageError(message)
        return self._session.turn(doing)

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
        before anything is written; what it raises is raised, and nothing happens.

        IllegalMessageError for a message over a limit, DiskFullError and StorageError for what
        the disk refuses, StoreLockedError if another writer does not give the lock back.
        """
        mode = self._settings.flush if flush is None else flush
        if mode not in FLUSH_MODES:
            message = f"flush={flush!r} is not a flush mode; give 'async' or 'sync'."
            raise ConfigError(message)
        batch = self.as_batch(messages).make_ready()
        with self.turn("append messages"):
            if guard is not None:
                guard()
            return self._append(batch, is_sync=mode == "sync")

    def as_batch(self, messages: MessageBatch | Batch) -> Batch:
        """Encode messages as the settings want records; IllegalMessageError for one over a limit.

        A batch that is ready stays as it is.
        """
        batch = messages
        if not isinstance(batch, Batch):
            batch = Batch.of_messages(batch, max_message_bytes=self._settings.max_message_bytes)
        return batch.with_checksums() if self._settings.append_property_crc else batch

    def delete_before(self, physical_offset: int) -> int:
        """Delete whole segments that end at or before an offset; the log's new start.

        The last segment stays, and consume queues and index files follow, as with retention.
        """
        with self.turn("delete segments") as components:
            segments = components.read_log().segments
            return self._delete(components, retention.before(segments, physical_offset))

    def delete_expired(self, *, is_on_demand: bool = False, disk_percent: int | None = None) -> int:
        """Delete what retention says must go now; the log's new start.

        Meant to be called every so often; the hour and the disk decide. `is_on_demand` deletes
        all that is expired at once. `disk_percent` stands in for how full the disk is.
        """
        with self.turn("delete segments") as components:
            percent = self._disk_percent() if disk_percent is None else disk_percent
            chosen = retention.expired(
                retention.dated_segments(components),
                self._settings,
                now_ms=self._clock_ms(),
                disk_percent=percent,
                is_on_demand=is_on_demand,
            )
            return self._delete(components, chosen)

    def delete_queues(self, topic: str) -> None:
        """Remove a topic's consume queues; a topic of the same name made later starts at 0."""
        with self.turn(f"delete topic {topic}") as components:
            log_start = components.read_log().start
            log_end = self._session.tail.log_end
            remove_queues(components, topic, log_start=log_start, log_end=log_end)
            self._session.mark(self._session.tail.state)

    def flush(self) -> None:
        """Make everything that was appended so far durable, whoever appended it."""
        self._flush(close=False)

    def close(self) -> None:
        """Flush, mark the store closed unless others still write, give everything back."""
        if self._is_closed:
            return
        try:
            self._flush(close=True)
        finally:
            self._is_closed = True
            self._session.close()

    # Retention

    def _delete(self, components: StoreComponents, segments: Sequence[Segment]) -> int:
        if not segments:
            return components.read_log().start
        if self.before_delete is not None:
            self.before_delete(segments[-1].end)
        log_start = retention.delete_segments(components, segments)
        # A new generation: other writers must not go on with files that are gone.
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
            plan = session.components.dispatcher.planner(requests, batch.groups)
            with compute_beside(plan, is_worth=len(batch) >= WORTH_A_THREAD) as planned:
                session.components.log.write([part.records for part in batch.parts], placement)
            reach(Failpoint.LOG_WRITTEN)
            durable_end = session.tail.log_durable_end
            if is_sync:
                session.components.log.fsync(durable_end, placement.end)
                durable_end = placement.end
                reach(Failpoint.LOG_SYNCED)
            session.mark(TailState.DISPATCHING, log_durable_end=durable_end)
            reach(Failpoint.MARKED_DISPATCHING)
            session.components.dispatcher.write(planned())
            session.mark_clean(placement.end, int(placement.physical_offsets[-1]), store_ms)
            reach(Failpoint.MARKED_CLEAN)
        except BaseException:
            self._undo(batch, ends, placement)
            raise

    def _undo(self, batch: Batch, ends: Sequence[int], placement: Placement) -> None:
        """Take back what was written of a batch, in the opposite order.

        If that fails too, the marker still says what was going on, and the next turn repairs.
        """
        session, components, tail = self._session, self._session.components, self._session.tail
        if tail.log_end == placement.end or tail.state not in _UNDER_WAY:
            return
        try:
            if tail.state is TailState.DISPATCHING:
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
            log.warning("append not undone yet, the next write repairs: error=%s", error)
        except BaseException:
            session.distrust_memory()
            raise

    # Flush

    def _flush(self, *, close: bool) -> None:
        """Fsync outside the lock, so that others can append meanwhile."""
        session = self._session
        with self.turn("flush the store"):
            point = session.begin_flush()
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


def _make_store(root: Path, settings: StoreSettings, files: Files) -> None:
    """Make the directories of a store, durably; what is there stays."""
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
