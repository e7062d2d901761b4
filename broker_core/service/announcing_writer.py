"""The writer of a server: wakes those who wait for what is appended, whoever made it append."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_core.store.batch import Batch
from broker_core.store.writer import StoreWriter

if TYPE_CHECKING:
    from broker_core.codec.outgoing import Outgoing
    from broker_core.service.arrivals import Arrivals
    from broker_core.types import AppendResult


class AnnouncingWriter(StoreWriter):
    """A writer that wakes those who wait for what it appends, whoever made it append."""

    arrivals: Arrivals

    def append(
        self,
        messages: Outgoing | Batch,
        *,
        flush: str | None = None,
        guard: Callable[[], None] | None = None,
    ) -> AppendResult:
        """Append a batch, as StoreWriter does, and announce it."""
        batch = messages
        if not isinstance(batch, Batch):
            limit = self.settings.max_message_bytes
            batch = Batch.of_messages(batch, max_message_bytes=limit)
        placed = super().append(batch, flush=flush, guard=guard)
        self.arrivals.announce(batch.groups.queues)
        return placed

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
