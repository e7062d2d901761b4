"""Known topics: what the door says of a topic, remembered between sends of a server.

**Problem.** The door looks at files for every request: somebody may have changed the topics. Three
system calls are a quarter of what a lone message costs a server.

**Invariants.** What is remembered was told by the door when no change of topics was under way in
this process, and holds until the next one, or for a second: nobody else may write to the store,
but may edit its files by hand. Only topics with a row of their own are remembered; a refusal never
is. The rows are as fresh as those of a request that was checked just before the change.

**Outline.** The writer counts changes (`note_change`, called in a turn before a file changes). A
look takes a turn, so none is between a count and its file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.broker.topics import TopicConfig
    from broker_core.service.broker_pool import BrokerPool
    from broker_core.store.settings import StoreSettings

HOLDS_S = 1.0


class KnownTopics:
    """The door for queues of a server's topics, as far as a send asks it. Not thread-safe."""

    def __init__(self, pool: BrokerPool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._monotonic = monotonic
        self._rows: dict[str, TopicConfig] = {}
        self._changes = -1
        self._until_s = 0.0

    @property
    def settings(self) -> StoreSettings:
        """The store's."""
        return self._pool.settings

    def require_queues(self, topic: str, *queue_ids: int) -> None:
        """Raise what the door raises unless clients may write to these queues of a topic."""
        if self._changes != self._pool.writer.changes or self._monotonic() >= self._until_s:
            self._rows.clear()
        row = self._rows.get(topic)
        if row is None:
            row = self._look(topic)
        for queue_id in queue_ids:
            row.check_queue(queue_id)

    def _look(self, topic: str) -> TopicConfig:
        writer = self._pool.writer
        with writer.turn("look at a topic", dispatches=False), self._pool.broker() as broker:
            if not self._rows:
                self._changes, self._until_s = writer.changes, self._monotonic() + HOLDS_S
            row = broker.door.topic(topic)
            if topic in broker.catalog.table().topics:
                self._rows[topic] = row
        return row
