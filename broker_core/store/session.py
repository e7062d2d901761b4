"""Writer session: one writer's turns at the store's lock, and what it knows in between.

Problem. Embedded writers take the lock for each batch. On taking it a writer must know the ends of
the log and of its queues, and whether the last writer finished. Reading that from the files costs
more than the append; remembering it is wrong as soon as another process has written.

Invariants.

- The tail marker (recovery/tail_marker.py), in the unused half of the `checkpoint` file, names the
  end of the store, the state of the last change and a generation that grows with every mark.
- What a session remembers (queue ends, index position, open descriptors, dirty files) holds exactly
  as long as the marker is the one it wrote last and no foreign broker has started. Apache's broker
  writes to `lock` when it starts, which changes the file's modification time.
- Whoever takes the lock dispatches the pending tail (log_first.py) before anything else is done,
  but for a quick append that goes on behind its own.
- Only the holder of the lock marks. A recovery does so before it changes anything: what others
  remember holds no more, however it ends. A turn that ends in an error leaves the marker of the
  change that failed; the next turn, here or in another process, repairs before it does anything.
- `abort` exists, durably, before the first change, as Apache's broker expects of an open store.

Outline of a turn: take the lock; read the marker; if it is our own and nothing was under way, go
on; else forget everything, plan recovery from the files (recovery/plan.py) and carry it out
(recovery/recover.py); dispatch what is pending; run the block; release the lock. A server holds the
lock for life and need not read the marker again. Turns nest within a thread, and threads take turns
as processes do. Long writes of a server that are not the log's, such as consumer offsets, need no
turn (`beside`).

A flush takes two turns, with the fsyncs between them and outside the lock: the first notes which
files are dirty and where the log ends, the second marks that end durable.

Rejected.

- Holding the lock for the life of every embedded writer: Spark tasks would exclude each other.
- Trusting file lengths or the last queue entry: files are created at their full size, and after a
  crash the last entry may lead to nothing.

Next in an append: writer.py marks and writes through `components`, first log/writer.py.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_core.clock import now_ms
from broker_core.codec import layout
from broker_core.codec.legal_names import is_legal_topic
from broker_core.errors import CorruptRecordError, RequestError, StorageError
from broker_core.store import flush
from broker_core.store.components import StoreComponents, open_components
from broker_core.store.format_check import batch_recovery_error, batch_topics
from broker_core.store.io.file_handles import Dirty
from broker_core.store.io.files import Failpoint, storage_error, write_new
from broker_core.store.io.segments import is_path_part
from broker_core.store.lock import DEFAULT_WAIT_S, StoreLock
from broker_core.store.log.scan import LogScan
from broker_core.store.queue.consume_queue import FILLER_SIZE
from broker_core.store.recovery import checkpoint
from broker_core.store.recovery.checkpoint import Checkpoint, read_checkpoint
from broker_core.store.recovery.plan import Progress, RecoveryKind, plan
from broker_core.store.recovery.recover import recover
from broker_core.store.recovery.shutdown_state import ABORT_NAME, CHECKPOINT_NAME
from broker_core.store.recovery.tail_marker import (
    BOOT_BYTES,
    PAGE_BYTES,
    PAGE_START,
    TailMarker,
    TailState,
    boot_id,
    decode_page,
)

if TYPE_CHECKING:
    from types import TracebackType

    from broker_core.store.io.file_handles import OpenFile
    from broker_core.store.io.files import Files
    from broker_core.store.queue.writer import QueueKey
    from broker_core.store.settings import StoreSettings

_RECORD_HEAD = struct.Struct(">iI4xi4xq")  # TOTALSIZE, MAGICCODE, QUEUEID, QUEUEOFFSET
_UNREAD = TailMarker(TailState.CLEAN, generation=-1)
_FINISHED = (TailState.CLEAN, TailState.CLOSED, TailState.PENDING)


@dataclass(frozen=True, slots=True)
class FlushPoint:
    """A flush under way: it makes the store durable as it was at `tail`."""

    tail: TailMarker
    dirty: Dirty
    filled_index_ms: int


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """A session's surroundings: the clock, how long to wait for the lock, the machine's boot id.

    `boot` None asks the machine. `progress` is called with how far a recovery is.
    """

    clock_ms: Callable[[], int] = now_ms
    lock_wait_s: float = DEFAULT_WAIT_S
    boot: bytes | None = None
    progress: Progress | None = None


class Turn:
    """A block of work under a store's lock; see StoreSession.turn.

    A class, for a generator takes twice as long, and every single send has a turn.
    """

    __slots__ = ("_dispatches", "_doing", "_session")

    def __init__(self, session: StoreSession, doing: str, *, dispatches: bool) -> None:
        self._session = session
        self._doing = doing
        self._dispatches = dispatches

    def __enter__(self) -> StoreComponents:
        self._session.begin(self._doing, dispatches=self._dispatches)
        return self._session.components

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.end()
        if isinstance(error, OSError):
            raise storage_error(error, self._doing, self._session.root) from error


class StoreSession:
    """One writer's session; see the module. Thread-safe: threads take turns as processes do."""

    def __init__(
        self,
        root: Path,
        settings: StoreSettings,
        files: Files,
        options: SessionOptions,
        *,
        hold: bool,
    ) -> None:
        self.root = root
        self.files = files
        self.components: StoreComponents = open_components(root, settings, files)
        self.clock_ms = options.clock_ms
        self._options = options
        self._hold = hold
        self._boot = boot_id() if options.boot is None else options.boot
        self._lock = StoreLock(root, files)
        self._turns = threading.RLock()
        self._beside = threading.RLock()
        self._pid = os.getpid()
        self._depth = 0
        self.tail = _UNREAD
        """The marker as of this turn; valid only while the lock is held. To be read only."""
        # The marker's page as this session left it.
        self._page = bytearray(PAGE_BYTES)
        # True if other processes wrote files that are not noted as dirty here.
        self._others_wrote = True
        self._checkpoint_path = root / CHECKPOINT_NAME
        self._marker_file: OpenFile | None = None
        self._abort_path = root / ABORT_NAME

    @property
    def is_nested(self) -> bool:
        """True in a turn within another."""
        return self._depth > 1

    @property
    def log_end(self) -> int:
        """Where the log ends, the pending tail included; between turns as of the last one."""
        return self.tail.end

    def turn(self, doing: str, *, dispatches: bool = True) -> Turn:
        """Hold the lock over a block of work; turns nest. `doing` completes "Could not ...".

        What is pending is dispatched first; without `dispatches` it stays pending if it is this
        session's own: for a block that neither reads nor changes queues and index.
        """
        return Turn(self, doing, dispatches=dispatches)

    def begin(self, doing: str, *, dispatches: bool) -> None:
        """Begin a turn, or one within it; see `turn`."""
        self._turns.acquire()
        try:
            if self._depth == 0:
                self._begin(doing, dispatches=dispatches)
            self._depth += 1
        except BaseException:
            self._turns.release()
            raise

    def end(self) -> None:
        """End what `begin` began."""
        self._depth -= 1
        if self._depth == 0 and not self._hold:
            self._lock.release()
        self._turns.release()

    @contextlib.contextmanager
    def beside(self, doing: str) -> Iterator[Files]:
        """Keep all others from a block of work that touches neither log, queues nor index.

        With the lock held for life that is a lock of its own, and appends go on meanwhile: what
        is written may be long. Else it is a turn. A thread in the block must not wait for a turn.
        """
        with self.turn(doing, dispatches=False) as components:
            if not self._hold:
                yield components.files
                return
        with self._beside:
            if not self._lock.is_held:
                message = f"The writer of store {self.root} was closed; open the store again."
                raise StorageError(message)
            try:
                yield self.files
            except OSError as error:
                raise storage_error(error, doing, self.root) from error

    def mark(self, state: TailState, **changes: Any) -> None:
        """Write the marker: `state`, and the fields that changed; the generation grows by one."""
        fields = {
            "generation": self.tail.generation + 1,
            "boot": self._boot,
            "lock_modified_ns": self._lock.modified_ns,
            "pid": os.getpid(),
            **changes,
        }
        self.write_marker(self.tail._replace(state=state, **fields))

    def mark_pending(
        self, log_end: int, last_start: int, last_store_ms: int, pending_end: int, crc: int
    ) -> None:
        """Write the marker of a quick append as `mark` would, but for its time.

        Every single message has one.
        """
        tail = self.tail
        self.write_marker(
            TailMarker(
                TailState.PENDING,
                tail.generation + 1,
                log_end,
                last_start,
                last_store_ms,
                pending_end,
                tail.durable_end,
                tail.log_durable_end,
                tail.index_name,
                tail.index_header,
                self._boot,
                self._lock.modified_ns,
                self._pid,
                tail.dispatched_end,
                crc,
            )
        )

    def write_marker(self, marker: TailMarker) -> None:
        """Write a marker that follows this turn's."""
        # Written without an fsync: the page cache survives the process, and after loss of power the
        # boot id differs, so the marker is not believed anyway.
        slot, at = marker.encode(), marker.slot_offset
        file = self._marker_file or self._checkpoint()
        place = slice(at - PAGE_START, at - PAGE_START + len(slot))
        try:
            file.write(slot, at)
        except OSError:
            # Half of it may be there, and a slot that is not valid makes both worthless.
            with contextlib.suppress(OSError):
                file.write(self._page[place], at)
            raise
        self._page[place] = slot
        self.tail = marker

    def note_change(self) -> None:
        """Mark the store as it is, so that no other session takes the marker for its own."""
        self.mark(self.tail.state)

    def mark_clean(self, log_end: int, last_start: int, last_store_ms: int) -> None:
        """Mark the store whole up to `log_end`, and all of it dispatched.

        The end may have gone back; durable ends go back with it.
        """
        position = self.components.index_position
        self.mark(
            TailState.CLEAN,
            durable_end=min(self.tail.durable_end, log_end),
            log_durable_end=min(self.tail.log_durable_end, log_end),
            log_end=log_end,
            pending_end=log_end,
            last_start=last_start,
            last_store_ms=last_store_ms,
            index_name=position.name,
            index_header=position.header.encode(),
            dispatched_end=log_end,
            pending_crc=0,
        )

    def dispatch(self) -> None:
        """Give queues and index what the pending tail has; to be called in a turn."""
        tail = self.tail
        if not tail.has_pending:
            return
        try:
            scan = LogScan(
                self.components.read_log(),
                self.components.settings,
                tail.dispatched_end,
                verify=False,
                stop=tail.end,
            )
            for requests in scan.batches():
                self.components.dispatcher.dispatch(requests)
            self._require_end(scan, tail.end)
            self.files.reach(Failpoint.PENDING_DISPATCHED)
            self.mark_clean(scan.end, scan.last_start, scan.last_store_ms)
        except BaseException:
            # Queues and index may have part of it, or all and the marker does not say so: to do it
            # again would put the keys in twice. Recovery knows how to begin again.
            self.distrust_memory()
            raise
        self.files.reach(Failpoint.MARKED_CLEAN)

    def _require_end(self, scan: LogScan, end: int) -> None:
        """Raise CorruptRecordError unless the scan found all that was acknowledged."""
        if scan.end == end:
            return
        path = self.components.log.path_of(scan.end)
        message = (
            f"The log in {path} breaks off at physical offset {scan.end} "
            f"({scan.ending or 'nothing is written there'}), but messages up to {end} "
            "were acknowledged. Restore the file, or open the store again to cut the log there."
        )
        raise CorruptRecordError(message, path, scan.end)

    def note_durable(self, log_end: int) -> None:
        """Note how far the log was fsynced; the next marker says it."""
        self.tail = self.tail._replace(log_durable_end=log_end)

    def mark_unclosed(self) -> None:
        """Create `abort`, durably, if it is missing; to be called before anything changes."""
        if not self._abort_path.exists():
            write_new(self.files, self._abort_path, str(os.getpid()).encode())

    def distrust_memory(self) -> None:
        """Make the next turn recover: an error left files in an unknown state."""
        self.tail = _UNREAD

    def queue_ends(self, queues: Sequence[QueueKey]) -> list[int]:
        """Return the offset that the next message of each queue gets.

        An end that is not remembered is checked against the log. If the last entry does not lead
        to its record, the whole store is recovered as if there were no marker.
        """
        self._require_paths(queues)
        if not all(self._is_sound(queue) for queue in queues):
            self._recover(distrust_tail=True)
            bad = [queue for queue in queues if not self._is_sound(queue)]
            if bad:
                topic, queue_id = bad[0]
                directory = self.components.queues.directory_of(bad[0])
                message = (
                    f"The last entry of queue {topic}/{queue_id} does not lead to its message, and "
                    f"recovery did not help. Remove {directory} and open the store again to "
                    "rebuild it."
                )
                raise CorruptRecordError(message, directory)
        return [self.components.queues.end(queue) for queue in queues]

    def _require_paths(self, queues: Sequence[QueueKey]) -> None:
        """Raise RequestError if a queue's name is no legal topic, or no number: it becomes a path.

        The last line: whatever asked for the append should have refused it. A topic that the store
        has already may have another name: brokers make one of their own name, with dots.
        """
        for queue in queues:
            topic, queue_id = queue
            is_legal = self.components.queues.is_known(queue) or (
                is_legal_topic(topic)
                or (is_path_part(topic) and (self.root / "consumequeue" / topic).is_dir())
            )
            if not is_legal or queue_id < 0:
                message = (
                    f"Queue {queue_id} of topic {topic[:64]!r} can't be: topics have letters, "
                    "digits and % | - _ only, and queues are numbered from 0. Nothing was written."
                )
                raise RequestError(message)

    # Flush

    def begin_flush(self) -> FlushPoint:
        """Collect all files that are not durable; to be called in a turn."""
        if self._others_wrote:
            self.components.handles.add_dirty(
                flush.dirty_since(self.components, self.tail.durable_end)
            )
            self._others_wrote = False
        dirty = self.components.handles.take_dirty()
        return FlushPoint(self.tail, dirty, flush.filled_index_time(self.components))

    def keep_dirty(self, point: FlushPoint) -> None:
        """Note the files of a flush that failed as dirty again."""
        self.components.handles.add_dirty(point.dirty)

    def end_flush(self, point: FlushPoint, *, close: bool) -> None:
        """Record in checkpoint and marker what is durable now; to be called in a turn.

        With `close`, the store is marked CLOSED unless a batch was appended since.
        """
        was = point.tail
        is_unchanged = self.tail.generation == was.generation
        known = read_checkpoint(self._checkpoint_path)
        self._write_checkpoint(
            replace(
                known,
                physic_msg_timestamp=max(known.physic_msg_timestamp, was.last_store_ms),
                logics_msg_timestamp=max(known.logics_msg_timestamp, was.last_store_ms),
                index_msg_timestamp=max(known.index_msg_timestamp, point.filled_index_ms),
                logics_physical_offset=max(known.logics_physical_offset, was.log_end),
            )
        )
        # max: another process may have flushed further since the first turn of this flush.
        durable = {
            "durable_end": max(self.tail.durable_end, was.log_end),
            "log_durable_end": max(self.tail.log_durable_end, was.log_end),
        }
        if not (close and is_unchanged):
            self.mark(self.tail.state, **durable)
            return
        # CLOSED is durable before `abort` goes: power lost in between leaves a store that is
        # scanned, never an unsynced one that claims to be closed.
        self.mark(TailState.CLOSED, **durable)
        self.components.handles.fsync(self._checkpoint_path)
        if (self.root / ABORT_NAME).exists():
            self.files.unlink(self.root / ABORT_NAME)
            self.files.fsync_dir(self.root)
        self.files.reach(Failpoint.ABORT_REMOVED)

    def close(self) -> None:
        """Release lock and files; flushes nothing."""
        with self._beside:
            self.components.handles.close_all()
            self._lock.close()

    # Turns

    def _begin(self, doing: str, *, dispatches: bool) -> None:
        if os.getpid() != self._pid:
            # A forked process shares the open file and so the lock: the two would not exclude
            # each other.
            message = (
                f"The writer of store {self.root} was opened by process {self._pid} and can't be "
                f"used in process {os.getpid()}, its child; open the store there."
            )
            raise StorageError(message)
        has_kept_lock = self._lock.is_held
        if not has_kept_lock:
            self._lock.acquire(self._options.lock_wait_s, for_life=self._hold)
        try:
            # With the lock kept since the last turn no other process can have written.
            if not (self._has_finished if has_kept_lock else self._is_own_tail()):
                self._recover()
            if dispatches and self.tail.has_pending:
                self.dispatch()
        except OSError as error:
            self.distrust_memory()
            self._lock.release()
            raise storage_error(error, doing, self.root) from error
        except BaseException:
            self.distrust_memory()
            self._lock.release()
            raise

    @property
    def _has_finished(self) -> bool:
        """True if this session left no change unfinished but what it may dispatch later."""
        return self.tail is not _UNREAD and self.tail.state in _FINISHED

    def _is_own_tail(self) -> bool:
        """Tell whether nothing has happened since this session wrote the marker."""
        tail = self.tail
        if tail is _UNREAD or tail.state not in _FINISHED:
            return False
        if self._lock.modified_ns != tail.lock_modified_ns:
            return False
        try:
            page = (self._marker_file or self._checkpoint()).read(PAGE_BYTES, PAGE_START)
        except FileNotFoundError:
            return False
        return page == self._page

    def _checkpoint(self) -> OpenFile:
        if self._marker_file is None:
            self._marker_file = self.components.handles.file(self._checkpoint_path)
        return self._marker_file

    def _recover(self, *, distrust_tail: bool = False) -> None:
        """Forget everything, plan recovery from the files, carry it out, mark the result."""
        self.components.forget()
        self._ensure_checkpoint()
        found = plan(
            self.root,
            self.components.settings,
            boot=self._boot,
            distrust_tail=distrust_tail,
            progress=self._options.progress,
        )
        # Other processes' notes of dirty files died with them; the next flush asks the log instead.
        self._others_wrote = True
        page = self.components.handles.read(self._checkpoint_path, PAGE_BYTES, PAGE_START)
        self._page = bytearray(page)
        if found.kind is RecoveryKind.NONE and found.tail is not None:
            self.tail = found.tail
            self._others_wrote = found.tail.state is not TailState.CLOSED
            return
        if found.kind is RecoveryKind.ABNORMAL and (foreign := batch_topics(self.root)):
            raise batch_recovery_error(self.root, foreign)
        # Also a marker that is not believed hands on its generation: the next mark must be the
        # newer of the two slots.
        before = found.tail or decode_page(page) or TailMarker(TailState.CLEAN)
        is_scan = found.tail is None
        if is_scan:
            # Nothing says how much of what the scan found is on the disk.
            before = before._replace(durable_end=0, log_durable_end=0)
        self.tail = before
        self.mark_unclosed()
        # Before anything changes: if this process dies in it, no other session may take the marker
        # for its own and go on as if nothing had happened. One that is not believed has no boot.
        self.mark(before.state, boot=bytes(BOOT_BYTES) if is_scan else self._boot)
        recover(found, self.components)
        self.mark_clean(found.log_end, found.last_start, found.last_store_ms)
        if is_scan:
            known = read_checkpoint(self._checkpoint_path)
            confirmed = max(found.last_start, 0)
            self._write_checkpoint(replace(known, confirm_physical_offset=confirmed))

    def _ensure_checkpoint(self) -> None:
        """Bring the checkpoint file to its full size: the marker lies in its second half.

        A damaged slot makes the other one useless, which may be the older; both are cleared, so
        that the next mark counts.
        """
        path = self._checkpoint_path
        size = path.stat().st_size if path.exists() else 0
        if size < checkpoint.FILE_SIZE:
            content = path.read_bytes() if size else b""
            write_new(self.files, path, content.ljust(checkpoint.FILE_SIZE, b"\0"))
        page = self.components.handles.read(path, checkpoint.FILE_SIZE, 0)
        if decode_page(page[PAGE_START:]) is None and page[checkpoint.LAYOUT.size :].strip(b"\0"):
            blank = bytes(checkpoint.FILE_SIZE - checkpoint.LAYOUT.size)
            self.components.handles.write(path, blank, checkpoint.LAYOUT.size)

    def _write_checkpoint(self, content: Checkpoint) -> None:
        self.components.handles.write(self._checkpoint_path, content.encode(), 0)
        self.components.handles.fsync(self._checkpoint_path)
        self.files.reach(Failpoint.CHECKPOINT_WRITTEN)

    def _is_sound(self, queue: QueueKey) -> bool:
        """Tell whether a queue's last entry leads to its message; remembered ends are sound."""
        queues = self.components.queues
        if queues.is_known(queue) or self._leads_to_message(queue, queues.last_entry(queue)):
            return True
        queues.forget(queue)  # recovery may move the end
        return False

    def _leads_to_message(self, queue: QueueKey, entry: tuple[int, int] | None) -> bool:
        """Tell whether (physical offset, size) is the record of the queue's last message."""
        if entry is None or entry[1] == FILLER_SIZE:
            return True
        physical_offset, size = entry
        if physical_offset < 0 or physical_offset + size > self.tail.log_end:
            return False
        path = self.components.log.path_of(physical_offset)
        position = physical_offset % self.components.log.file_bytes
        try:
            head = self.components.handles.read(path, _RECORD_HEAD.size, position)
        except FileNotFoundError:
            return True  # retention deleted the record with its segment; the numbering stays
        if len(head) < _RECORD_HEAD.size:
            return False
        found_size, magic, queue_id, queue_offset = _RECORD_HEAD.unpack(head)
        is_record = found_size == size and magic in (layout.MAGIC_V1, layout.MAGIC_V2)
        last = self.components.queues.end(queue) - 1
        return is_record and (queue_id, queue_offset) == (queue[1], last)
