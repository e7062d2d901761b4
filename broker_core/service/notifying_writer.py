"""The writer of a server: wakes those who wait for what is appended, whoever made it append."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_core.codec.frames import FrameBatch
from broker_core.service.arrival_notifier import ArrivedRecords
from broker_core.store.writer import StoreWriter
from broker_core.types import QueueRef
from broker_core.wire.core.frames import pack_frames

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from broker_core.codec.encode import EncodedRecords
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.service.arrival_notifier import ArrivalNotifier
    from broker_core.store.batch import Batch
    from broker_core.types import AppendResult


class NotifyingWriter(StoreWriter):
    """A writer that wakes those who wait for what it appends, whoever made it append."""

    arrivals: ArrivalNotifier

    def append(
        self,
        messages: MessageBatch | Batch,
        *,
        flush: str | None = None,
        guard: Callable[[], None] | None = None,
    ) -> AppendResult:
        """Append a batch, as StoreWriter does, and announce it."""
        batch = self.as_batch(messages)
        placed = super().append(batch, flush=flush, guard=guard)
        self.announce(batch, placed.queue_offsets)
        return placed

    def announce(self, batch: Batch, queue_offsets: NDArray[np.int64]) -> None:
        """Wake those who wait for one of these messages, which lie there now."""
        groups = batch.groups
        for number, queue in enumerate(groups.queues):
            if self.arrivals.is_followed(queue) and len(batch.parts) == 1:
                rows = groups.rows[groups.bounds[number] : groups.bounds[number + 1]]
                self.arrivals.keep(queue, _piece(batch.parts[0].records, rows, queue_offsets))
        self.arrivals.announce(groups.queues)

    def accept(self, batch: Batch) -> AppendResult:
        """Take a batch of clients' messages that need not be durable when this returns."""
        return self.append(batch, flush="async")

    def commit(self) -> int:
        """Make readable what was accepted; how many messages that were. Here all are, at once."""
        return 0

    @property
    def held_bytes(self) -> int:
        """The bytes that were accepted and are not in the log yet."""
        return 0

    @property
    def log_end(self) -> int:
        """The physical offset at which the log ends."""
        return self._session.tail.log_end

    @property
    def durable_lag_bytes(self) -> int:
        """How much of the log has not been flushed yet."""
        return max(0, self._session.tail.log_end - self._session.tail.durable_end)


def _piece(
    records: EncodedRecords, rows: NDArray[np.int64], queue_offsets: NDArray[np.int64]
) -> ArrivedRecords:
    """Return these records, of one queue, as they travel."""
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
"""A chunk does not say which queue it is of, only that it is of one."""
