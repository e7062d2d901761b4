"""The writer of a server: a StoreWriter that announces what it appends (arrival_notifier.py).

All appends of a server go through it: clients' messages, commits of transactions, delayed messages
that are delivered. So no way into the log can forget the calls that wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.frames import FrameBatch
from broker_core.service.arrival_notifier import ArrivedRecords
from broker_core.store.writer import StoreWriter
from broker_core.types import QueueRef
from broker_core.wire.core.frames import pack_frames

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.encode import EncodedRecords
    from broker_core.service.arrival_notifier import ArrivalNotifier
    from broker_core.store.batch import Batch
    from broker_core.store.few_records import FewPlaces, FewRecords
    from broker_core.store.log_first import Placed
    from broker_core.types import AppendResult


class NotifyingWriter(StoreWriter):
    """A writer that wakes calls that wait for the messages it appends.

    `accept`, `commit` and `held_bytes` are the seam for transient_pool.py; here an accepted batch
    is in the log at once.
    """

    arrivals: ArrivalNotifier
    changes = 0
    """Changes of the store's configuration so far."""
    on_pending: Callable[[], None] | None = None
    """Called after each append that left records pending (tail_dispatch.py)."""

    def append_quickly(self, few: FewRecords, *, is_sync: bool) -> FewPlaces | None:
        """Append a few records the quick way; None if they must go as a batch.

        Raise what `append` raises if the disk refuses; then nothing was written.
        """
        placed = self._append_few(few, is_sync=is_sync)
        return None if placed is None else few.places(placed)

    def note_change(self) -> None:
        """Count a change of the store's configuration; in a turn, before it (known_topics.py)."""
        self.changes += 1
        super().note_change()

    # The two ways into the log, which every append takes one of.

    def _append_few(
        self, few: FewRecords, *, is_sync: bool, changes: int | None = None
    ) -> Placed | None:
        placed = super()._append_few(few, is_sync=is_sync, changes=changes)
        if placed is None:
            return None
        if any(self.arrivals.is_followed(queue) for queue in few.queues):
            self.announce(few.as_batch(), np.array(placed[0], dtype=np.int64))
        else:
            self.arrivals.announce(few.queues)
        self._tell_pending()
        return placed

    def _append_many(
        self, batch: Batch, *, is_sync: bool, guard: Callable[[], None] | None
    ) -> AppendResult:
        result = super()._append_many(batch, is_sync=is_sync, guard=guard)
        self.announce(batch, result.queue_offsets)
        return result

    def _tell_pending(self) -> None:
        # Looked at without a turn: if nothing is pending any more, another thread dispatched it.
        if self.on_pending is not None and self._session.tail.has_pending:
            self.on_pending()

    def dispatch_pending(self) -> None:
        """Give queues and index what is pending; nothing if nothing is."""
        with self.turn("dispatch pending messages"):
            pass

    def announce(self, batch: Batch, queue_offsets: NDArray[np.int64]) -> None:
        """Wake calls that wait for messages of this batch, which can be read now."""
        groups = batch.groups
        for number, queue in enumerate(groups.queues):
            # A batch of several parts has no one buffer: its followers read the files.
            if self.arrivals.is_followed(queue) and len(batch.parts) == 1:
                rows = groups.rows[groups.bounds[number] : groups.bounds[number + 1]]
                self.arrivals.keep(queue, _arrived(batch.parts[0].records, rows, queue_offsets))
        self.arrivals.announce(groups.queues)

    def accept(self, batch: Batch) -> AppendResult:
        """Append a batch of clients' messages; it need not be durable when this returns."""
        return self.append(batch, flush="async")

    def commit(self) -> int:
        """Make accepted messages readable; return their number, here 0: they are at once."""
        return 0

    @property
    def held_bytes(self) -> int:
        """Bytes that were accepted and are not in the log yet."""
        return 0

    @property
    def log_end(self) -> int:
        """The physical offset at which the log ends."""
        return self._session.log_end

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that queues and index do not have yet."""
        tail = self._session.tail
        return tail.end - tail.dispatched_end if tail.has_pending else 0

    @property
    def durable_lag_bytes(self) -> int:
        """Bytes of the log that have not been flushed yet."""
        tail = self._session.tail
        return max(0, tail.end - tail.durable_end)


def _arrived(
    records: EncodedRecords, rows: NDArray[np.int64], queue_offsets: NDArray[np.int64]
) -> ArrivedRecords:
    """Return some records of one queue, packed for the wire."""
    offsets = queue_offsets[rows]
    end = int(offsets[-1]) + 1
    frames = FrameBatch(
        buffer=records.buffer,
        starts=records.starts[rows],
        sizes=records.sizes[rows],
        offsets=offsets,
        queue=_ANY_QUEUE,
        next_offset=end,
    )
    return ArrivedRecords(int(offsets[0]), end, pack_frames(frames))


_ANY_QUEUE = QueueRef("", "", 0)
"""Stands for the queue: a chunk has no field for it, only the flag MIXED for "several"."""
