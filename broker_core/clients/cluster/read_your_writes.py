"""What this client has sent, and when it can be read.

Brokers acknowledge a message before its queue shows it, usually some milliseconds before. Who sends
and then reads with one client is not to notice: before offsets are told, and before a message is
looked for, we wait until what was acknowledged here is visible.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from broker_core.retry import Backoff, Deadline
from broker_core.types import QueueRef

_PATIENCE_MS = 2_000


class ReadYourWrites:
    """The ends of queues as acknowledgements told them, until they have been seen; thread-safe."""

    def __init__(self) -> None:
        self._ends: dict[QueueRef, int] = {}
        self._lock = threading.Lock()

    def note(self, queue: QueueRef, end: int) -> None:
        """Messages up to `end` are stored in a queue."""
        with self._lock:
            self._ends[queue] = max(end, self._ends.get(queue, 0))

    def waiting(self, topic: str) -> set[QueueRef]:
        """Queues of a topic of which something acknowledged has not been seen."""
        with self._lock:
            return {queue for queue in self._ends if queue.topic == topic}

    def settle(self, topic: str, maxima: Callable[[], Mapping[QueueRef, int]]) -> None:
        """Look at a topic's queues until all that was acknowledged is there, or it takes too long.

        A queue that does not get there may have been deleted; it is not waited for again.
        """
        deadline, backoff = Deadline.after_ms(_PATIENCE_MS), Backoff(first_s=0.001)
        while waiting := self.waiting(topic):
            self._note_seen(maxima(), waiting if deadline.has_passed else frozenset())
            if self.waiting(topic):
                backoff.pause(deadline)

    def forget(self, topic: str) -> None:
        """Wait for nothing of a topic any more: it was deleted."""
        for queue in self.waiting(topic):
            self._ends.pop(queue, None)

    def _note_seen(
        self, maxima: Mapping[QueueRef, int], given_up: set[QueueRef] | frozenset[QueueRef]
    ) -> None:
        with self._lock:
            for queue, end in list(self._ends.items()):
                if maxima.get(queue, -1) >= end or queue in given_up:
                    del self._ends[queue]
