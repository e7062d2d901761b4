"""Fates of half messages: which are decided, as far as the op queue was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.transactions.op import OP_QUEUE, decided
from broker_core.codec.property_names import OP_TOPIC

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.reader import StoreReader


class ResolvedHalves:
    """The half messages that op messages from `since` on have decided. Not thread-safe."""

    def __init__(self, reader: StoreReader, since: int) -> None:
        self._reader = reader
        self._end = since
        self._decided = np.zeros(0, dtype=np.int64)
        self.refresh()

    def refresh(self) -> None:
        """Read the op messages that came since the last look."""
        start, end = self._reader.queue_range(OP_TOPIC, OP_QUEUE)
        if end > self._end:
            fresh = decided(self._reader.frames(OP_TOPIC, OP_QUEUE, max(start, self._end), end))
            self._decided = np.union1d(self._decided, fresh)
            self._end = end

    def skip(self, count: int) -> None:
        """Do not read the next `count` op messages: they are the caller's own."""
        self._end += count

    def are_decided(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these half messages are decided, as of the last look."""
        if not len(self._decided):
            return np.zeros(len(offsets), dtype=np.bool_)
        return np.isin(offsets, self._decided)
