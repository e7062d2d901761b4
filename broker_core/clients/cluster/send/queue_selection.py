"""Queue selection: which queue of which broker each send unit goes to.

The write queues of a topic are all its writable queues, sorted by broker and number; a unit that
names one goes there and nowhere else. A unit with ANY_WRITE_QUEUE goes to the next queue in turn,
brokers alternating, and avoids brokers that were slow or failed lately.

A send that took long keeps its broker out of the choice for a time that grows with its latency (the
table of RocketMQ 5.1.4 and later); a failure counts as 10 s. Avoiding is a preference only: when no
broker is left, all are.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle

from broker_core.clients.cluster.route.route_cache import RouteCache
from broker_core.clients.cluster.send.plan import ANY_WRITE_QUEUE, SendUnit
from broker_core.errors import PermissionDeniedError, RequestError
from broker_core.types import QueueRef

_LATENCIES_MS = (0, 550, 1800, 3000, 5000, 15000)
_AVOIDED_MS = (0, 2000, 5000, 6000, 10000, 30000)
_FAILURE_MS = 10_000

Assigned = list[tuple[SendUnit, QueueRef]]
"""Send units in order, each with its queue."""


class FaultTolerance:
    """A memory of brokers' latencies and failures. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._avoided_until: dict[str, float] = {}

    def note(self, broker_name: str, latency_ms: float) -> None:
        """Remember how long a successful send took."""
        avoided_ms = _AVOIDED_MS[bisect_right(_LATENCIES_MS, latency_ms) - 1]
        self._avoided_until[broker_name] = self._clock() + avoided_ms / 1000

    def note_failure(self, broker_name: str) -> None:
        """Remember that a send failed."""
        self.note(broker_name, _FAILURE_MS)

    def preferred(self, broker_names: Iterable[str]) -> list[str]:
        """Return the brokers that need not be avoided, in order; all of them if none is left."""
        names = list(broker_names)
        now = self._clock()
        free = [name for name in names if self._avoided_until.get(name, 0.0) <= now]
        return free or names


class QueueSelector:
    """The choice of queues for one client."""

    def __init__(self, routes: RouteCache, faults: FaultTolerance) -> None:
        self._routes = routes
        self._faults = faults
        self._turns: dict[str, int] = {}

    def assign(self, units: Sequence[SendUnit], failing: set[str]) -> dict[str, Assigned]:
        """Return each broker's units with their queues, in order, by the broker's name.

        Brokers in `failing` get units for any queue only if there is no other.
        """
        shares: dict[str, Assigned] = {}
        queues = {topic: self._write_queues(topic) for topic in {unit.topic for unit in units}}
        choices = {topic: cycle(self._in_turn(found, failing)) for topic, found in queues.items()}
        for unit in units:
            found = queues[unit.topic]
            if unit.write_queue == ANY_WRITE_QUEUE:
                queue = next(choices[unit.topic])
            elif 0 <= unit.write_queue < len(found):
                queue = found[unit.write_queue]
            else:
                raise RequestError(
                    f"Topic '{unit.topic}' has queues 0 to {len(found) - 1} to write to, not"
                    f" {unit.write_queue}."
                )
            shares.setdefault(queue.broker_name, []).append((unit, queue))
        return shares

    def _write_queues(self, topic: str) -> list[QueueRef]:
        found = self._routes.find(topic).writable()
        if not found:
            raise PermissionDeniedError(
                f"Topic '{topic}' has no queue that can be written: its permission forbids it, or"
                f" no master of its brokers is there."
            )
        return found

    def _in_turn(self, queues: Sequence[QueueRef], failing: set[str]) -> list[QueueRef]:
        """Return the queues to fill in turn, one further than at the last call for this topic."""
        names = sorted({queue.broker_name for queue in queues})
        wanted = self._faults.preferred([name for name in names if name not in failing] or names)
        chosen = [queue for queue in queues if queue.broker_name in wanted]
        # By number first, so that neighbours in the turn lie on different brokers.
        chosen.sort(key=lambda queue: (queue.queue_id, queue.broker_name))
        turn = self._turns.get(queues[0].topic, 0)
        self._turns[queues[0].topic] = turn + 1
        turn %= len(chosen)
        return chosen[turn:] + chosen[:turn]
