"""Transient pool: messages are acknowledged in memory and written to the log in batches.

Apache's `transientStorePoolEnable`.

**Problem.** Where losing the last moment in a crash is acceptable, a sender should not wait for the
log's files. But it is told its offsets at once, so offsets must be final before anything is
written, and everything else that numbers messages must agree with them.

**Invariants.**

- Batches that are held lie, in their senders' eyes, behind the end of the log, in the order in
  which they were accepted: physical offsets, queue offsets and store times are filled in.
- Nothing is placed twice: all else that changes queues or the log (a transaction, an append with
  flush="sync", the removal of a topic, flush, close) commits first.
- No tail is pending (store/log_first.py): offsets are given by the ends of log and queues, so every
  append here goes as a batch, which dispatches what another process left.
- A message can be read after its commit and not before.
- Memory is bounded by `pool_bytes`; an append beyond it commits first and goes to the log itself.
- If the process is killed, the messages that were acknowledged and not committed are gone: the last
  ones of each queue, never one from between. A commit is in the log as a whole or not at all, as
  any append (store/writer.py).
- While commits fail, on a full disk for one, appends go to the log themselves, so that their
  senders get the error.

**Outline.** `accept` places a batch behind all that is held (`_Held`) and answers. `commit` joins
the held batches and writes them where they were placed, as one batch. `Committer` commits every
`commitIntervalCommitLog` (200 ms), and sooner once `commitCommitLogLeastPages` pages are held.

**Rejected.** *A pool of direct buffers, as Apache has.* They mirror mapped files; here
batches are kept as they came and are written as any batch. *Letting readers see the
pool.* Other processes read the files, and would see less than this one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_core.codec.dispatch_request import join_requests
from broker_core.errors import BrokerError, StorageError
from broker_core.service.notifying_writer import NotifyingWriter
from broker_core.store.batch import Batch
from broker_core.store.log.writer import plan_placement
from broker_core.types import AppendResult

if TYPE_CHECKING:
    from broker_core.codec.dispatch_request import DispatchRequests
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.store.few_records import FewRecords
    from broker_core.store.log_first import Placed
    from broker_core.store.queue.writer import QueueKey

log = logging.getLogger(__name__)


class _Held:
    """Batches with final offsets that are not in the log. Used in a turn at the lock only.

    `first_ends` and `ends` are the logical ends of their queues before the first held message and
    behind the last one.
    """

    def __init__(self, log_end: int, last_store_ms: int) -> None:
        self.start = self.end = log_end
        self.store_ms = last_store_ms
        self.batches: list[Batch] = []
        self.fields: list[DispatchRequests] = []
        self.first_ends: dict[QueueKey, int] = {}
        self.ends: dict[QueueKey, int] = {}

    def add(self, batch: Batch, fields: DispatchRequests, ends: list[int], end: int) -> None:
        """Hold a batch whose queues ended at `ends` before it; the log will end at `end`."""
        groups = batch.groups
        lengths = (groups.bounds[1:] - groups.bounds[:-1]).tolist()
        for queue, before, length in zip(groups.queues, ends, lengths, strict=True):
            self.first_ends.setdefault(queue, before)
            self.ends[queue] = before + length
        self.batches.append(batch)
        self.fields.append(fields)
        self.end = end

    @property
    def size_bytes(self) -> int:
        """Bytes of the log that the batches will take, padding of segments included."""
        return self.end - self.start


class PooledWriter(NotifyingWriter):
    """A server's writer with a pool in front of the log. Thread-safe, as StoreWriter is."""

    pool_bytes = 256 << 20
    on_held: Callable[[int], None] | None = None
    """Called with the bytes that are held, after each batch that was accepted."""
    _held: _Held | None = None
    _has_failed = False

    @property
    def held_bytes(self) -> int:
        """Bytes that were accepted and are not in the log yet."""
        held = self._held
        return 0 if held is None else held.size_bytes

    def accept(self, batch: Batch) -> AppendResult:
        """Give a batch its offsets and hold it; `commit` will write it."""
        batch = self.as_batch(batch).make_ready()
        # The turn makes offsets of several threads follow one another; files are not touched in it.
        with self.turn("append messages"):
            size_bytes = int(batch.sizes.sum())
            if self._has_failed or self.held_bytes + size_bytes > self.pool_bytes:
                return self.append(batch, flush="async")
            result = self._place(batch)
        if self.on_held is not None:
            self.on_held(self.held_bytes)
        return result

    def _append_few(
        self, few: FewRecords, *, is_sync: bool, changes: int | None = None
    ) -> Placed | None:
        """Leave everything to the way of many: few records would lie where held ones are to lie."""
        return None

    def _place(self, batch: Batch) -> AppendResult:
        tail = self._session.tail
        held = self._held or _Held(tail.log_end, tail.last_store_ms)
        queues = batch.groups.queues
        unknown = [queue for queue in queues if queue not in held.ends]
        known = dict(zip(unknown, self._session.queue_ends(unknown), strict=True)) | held.ends
        ends = [known[queue] for queue in queues]
        placement = plan_placement(batch.sizes, held.end, self.settings.commit_log_file_bytes)
        physical_offsets = placement.physical_offsets
        offsets = batch.groups.offsets_from(ends, len(batch))
        # Store times in a log never go back, not even where the clock does.
        held.store_ms = max(self._clock_ms(), held.store_ms)
        fields = batch.place(offsets, physical_offsets, held.store_ms, self.settings.delay_levels_s)
        held.add(batch, fields, ends, placement.end)
        self._held = held
        return AppendResult(
            batch.route.queue_ids, offsets, physical_offsets, batch.sizes, held.store_ms
        )

    def commit(self) -> int:
        """Write all that is held to the log, as one batch; return the number of messages.

        If it fails, all of it is still held, and nothing is in the log.
        """
        with self.turn("commit messages to the log"):
            held = self._held
            if held is None:
                return 0
            batch, fields = Batch.join(held.batches), join_requests(held.fields)
            # A log that ends there already: an earlier commit raised, but got there after all.
            if self._session.tail.log_end != held.end:
                self._commit(held, batch, fields)
            self._held, self._has_failed = None, False
        self.announce(batch, fields.queue_offsets)
        return len(batch)

    def _commit(self, held: _Held, batch: Batch, fields: DispatchRequests) -> None:
        log_end = self._session.tail.log_end
        if log_end != held.start:
            self._held = None
            message = (
                f"The log of {self.root} ends at {log_end}, not at {held.start}, where "
                f"{len(batch)} acknowledged messages were to be written: another process changed "
                f"it. They are lost; transientStorePoolEnable needs a store of its own."
            )
            raise StorageError(message)
        # Planned anew for the joined batch: from the same start, so with the same offsets.
        placement = plan_placement(batch.sizes, log_end, self.settings.commit_log_file_bytes)
        ends = [held.first_ends[queue] for queue in batch.groups.queues]
        try:
            self._write(batch, placement, fields, ends, held.store_ms, is_sync=False)
        except BaseException:
            self._has_failed = True
            raise

    # Each of these numbers messages or ends a log, and must find nothing held.

    def append(
        self,
        messages: MessageBatch | Batch,
        *,
        flush: str | None = None,
        guard: Callable[[], None] | None = None,
    ) -> AppendResult:
        """Commit, then append a batch to the log itself."""
        with self.turn("append messages"):
            self.commit()
            return super().append(messages, flush=flush, guard=guard)

    def delete_queues(self, topic: str) -> None:
        """Commit, then remove a topic's consume queues."""
        with self.turn(f"delete topic {topic}"):
            self.commit()
            super().delete_queues(topic)

    def flush(self) -> None:
        """Commit, then make everything durable."""
        self.commit()
        super().flush()

    def close(self) -> None:
        """Commit, flush, and give everything back."""
        if self._is_closed:
            return
        try:
            self.commit()
        finally:
            super().close()


class Committer:
    """Commits every so often, and sooner when much is held, in a thread of its own."""

    def __init__(self, writer: PooledWriter, interval_ms: int, least_bytes: int) -> None:
        self._writer = writer
        self._interval_s = interval_ms / 1000
        self._least_bytes = least_bytes
        self._woken = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._loop, name="commit", daemon=True)
        writer.on_held = self._look

    def start(self) -> None:
        """Commit from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Commit what is held, and no more."""
        self._is_stopped = True
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _look(self, held_bytes: int) -> None:
        if held_bytes >= self._least_bytes:
            self._woken.set()

    def _loop(self) -> None:
        while not self._is_stopped:
            self._woken.wait(self._interval_s)
            self._woken.clear()
            try:
                self._writer.commit()
            except BrokerError as error:
                log.warning("event=commit_failed held=%d error=%s", self._writer.held_bytes, error)
