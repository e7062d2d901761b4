"""Transient pool: messages are acknowledged in memory and written to the log in batches.

Apache's `transientStorePoolEnable`. An append places its records behind everything placed before,
fills in their offsets and store time, and is answered; `commit` writes all that is held as one
batch (store/writer.py), and only then can anybody read it. What holds:

- If the process is killed, what was acknowledged and not committed is gone: the last messages of
  each queue, never one from between. What was committed is there as a whole, as after any append.
- Nothing is placed twice: whatever else changes queues or the log (a transaction, an append with
  flush="sync", the removal of a topic, flush, close) commits first.
- Memory is bounded by `pool_bytes`; an append beyond it commits. While a commit fails, on a full
  disk for one, appends go to the log themselves, and so their senders are told.
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
    from broker_core.store.queue.writer import QueueKey

_LOG = logging.getLogger(__name__)


class _Held:
    """Batches that were placed and not written. Only touched in a turn at the store's lock."""

    def __init__(self, log_end: int, last_store_ms: int) -> None:
        self.start = self.end = log_end
        self.store_ms = last_store_ms
        self.batches: list[Batch] = []
        self.fields: list[DispatchRequests] = []
        self.first_ends: dict[QueueKey, int] = {}
        self.ends: dict[QueueKey, int] = {}

    def add(self, batch: Batch, fields: DispatchRequests, ends: list[int], end: int) -> None:
        """Hold a batch whose queues went on at `ends`, and the log up to `end`."""
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
        """How much of the log it will take."""
        return self.end - self.start


class PooledWriter(NotifyingWriter):
    """A server's writer with a pool in front of the log. Thread-safe, as StoreWriter is."""

    pool_bytes = 256 << 20
    on_held: Callable[[int], None] | None = None
    """Told how many bytes are held, after each batch that was accepted."""
    _held: _Held | None = None
    _has_failed = False

    @property
    def held_bytes(self) -> int:
        """The bytes that were accepted and are not in the log yet."""
        held = self._held
        return 0 if held is None else held.size_bytes

    def accept(self, batch: Batch) -> AppendResult:
        """Place a batch in memory; `commit` will write it."""
        batch = self.as_batch(batch).make_ready()
        with self.turn("append messages"):
            size_bytes = int(batch.sizes.sum())
            if self._has_failed or self.held_bytes + size_bytes > self.pool_bytes:
                return self.append(batch, flush="async")
            placed = self._place(batch)
        if self.on_held is not None:
            self.on_held(self.held_bytes)
        return placed

    def _place(self, batch: Batch) -> AppendResult:
        tail = self._session.tail
        held = self._held or _Held(tail.log_end, tail.last_store_ms)
        queues = batch.groups.queues
        unknown = [queue for queue in queues if queue not in held.ends]
        known = dict(zip(unknown, self._session.queue_ends(unknown), strict=True)) | held.ends
        ends = [known[queue] for queue in queues]
        placement = plan_placement(batch.sizes, held.end, self.settings.commit_log_file_bytes)
        places, offsets = placement.physical_offsets, batch.groups.offsets_from(ends, len(batch))
        held.store_ms = max(self._clock_ms(), held.store_ms)
        fields = batch.place(offsets, places, held.store_ms, self.settings.delay_levels_s)
        held.add(batch, fields, ends, placement.end)
        self._held = held
        return AppendResult(batch.route.queue_ids, offsets, places, batch.sizes, held.store_ms)

    def commit(self) -> int:
        """Write all that is held to the log, as one batch; how many messages that were.

        If it fails, all of it is still held, and nothing is in the log.
        """
        with self.turn("commit messages to the log"):
            held = self._held
            if held is None:
                return 0
            batch, fields = Batch.join(held.batches), join_requests(held.fields)
            if self._session.tail.log_end != held.end:  # else a failed commit got there after all
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
        placement = plan_placement(batch.sizes, log_end, self.settings.commit_log_file_bytes)
        ends = [held.first_ends[queue] for queue in batch.groups.queues]
        try:
            self._write(batch, placement, fields, ends, held.store_ms, is_sync=False)
        except BaseException:
            self._has_failed = True
            raise

    # What must find nothing held

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
                _LOG.warning("event=commit_failed held=%d error=%s", self._writer.held_bytes, error)
