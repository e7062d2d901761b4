"""Read your writes: a client that sends and then reads sees its own messages.

Brokers acknowledge a message when it is in the log, some milliseconds before its queue shows it.
So the ends of queues that acknowledgements imply are kept here, and before offsets are told or a
message is looked for, the client waits until the queues reach them, 2 s at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from broker_core.retry import Backoff, Deadline
from broker_core.types import QueueRef

_PATIENCE_MS = 2_000


class ReadYourWrites:
    """The ends of queues that acknowledgements imply, until they have been seen; thread-safe."""

    def __init__(self) -> None:
        self._ends: dict[QueueRef, int] = {}
        self._lock = threading.Lock()

    def note(self, queue: QueueRef, end: int) -> None:
        """Remember that messages up to `end` are stored in a queue."""
        with self._lock:
            self._ends[queue] = max(end, self._ends.get(queue, 0))

    def waiting(self, topic: str) -> set[QueueRef]:
        """Return the queues of a topic that have not been seen to reach their known end."""
        with self._lock:
            return {queue for queue in self._ends if queue.topic == topic}

    def await_visible(self, topic: str, maxima: Callable[[], Mapping[QueueRef, int]]) -> None:
        """Ask for the ends of a topic's queues until they show all that was acknowledged.

        A queue that does not get there within 2 s may have been deleted; it is not waited for
        again.
        """
        deadline, backoff = Deadline.after_ms(_PATIENCE_MS), Backoff(first_s=0.001)
        while waiting := self.waiting(topic):
            self._note_seen(maxima(), waiting if deadline.has_passed else frozenset())
            if self.waiting(topic):
                backoff.pause(deadline)

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted: its queues need not be waited for."""
        for queue in self.waiting(topic):
            self._ends.pop(queue, None)

    def _note_seen(
        self, maxima: Mapping[QueueRef, int], given_up: set[QueueRef] | frozenset[QueueRef]
    ) -> None:
        with self._lock:
            for queue, end in list(self._ends.items()):
                if maxima.get(queue, -1) >= end or queue in given_up:
                    del self._ends[queue]
