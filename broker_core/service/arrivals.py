"""Arrivals: who waits for messages of which queue, and is woken when some come.

Whoever waits looks first and waits then, on a watch that was set up before it looked, so that no
arrival falls in between. An append wakes only those who watch one of its queues; without watchers
it costs a look at an empty table.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.store.queue_writer import QueueKey


class Watch:
    """One waiter. `wake` may be called by anyone, at any time, any number of times."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        """Let `wait` return, now or when it is called next."""
        self._event.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait to be woken since the last time; False if the time was over first."""
        was_woken = self._event.wait(timeout_s)
        self._event.clear()
        return was_woken


class Arrivals:
    """All watches of one broker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[QueueKey, set[Watch]] = {}

    @contextmanager
    def watch(self, queues: Iterable[QueueKey]) -> Iterator[Watch]:
        """Watch some queues over a block."""
        watched = tuple(queues)
        watch = Watch()
        with self._lock:
            for queue in watched:
                self._watches.setdefault(queue, set()).add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                for queue in watched:
                    self._forget(queue, watch)

    def announce(self, queues: Iterable[QueueKey]) -> None:
        """Wake everyone who watches one of these queues."""
        if not self._watches:
            return
        with self._lock:
            woken = {watch for queue in queues for watch in self._watches.get(queue, ())}
        for watch in woken:
            watch.wake()

    def wake_all(self) -> None:
        """Wake everyone: the broker is stopping."""
        with self._lock:
            woken = {watch for watches in self._watches.values() for watch in watches}
        for watch in woken:
            watch.wake()

    def _forget(self, queue: QueueKey, watch: Watch) -> None:
        watches = self._watches.get(queue)
        if watches is not None:
            watches.discard(watch)
            if not watches:
                del self._watches[queue]
