"""Which brokers to leave alone for a while: those that were slow or failed to take a message.

A send that took so long keeps its broker out of the choice for a time that grows with it; a failure
counts as ten seconds. It is only a preference: when no broker is left, all are.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable

_LATENCIES_MS = (0, 550, 1800, 3000, 5000, 15000)
_AVOIDED_MS = (0, 2000, 5000, 6000, 10000, 30000)
_FAILURE_MS = 10_000


class FaultTolerance:
    """What is remembered of brokers' behaviour. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._avoided_until: dict[str, float] = {}

    def note(self, broker_name: str, latency_ms: float) -> None:
        """Remember how long a send took that succeeded."""
        avoided_ms = _AVOIDED_MS[bisect_right(_LATENCIES_MS, latency_ms) - 1]
        self._avoided_until[broker_name] = self._clock() + avoided_ms / 1000

    def note_failure(self, broker_name: str) -> None:
        """Remember that a send failed."""
        self.note(broker_name, _FAILURE_MS)

    def preferred(self, broker_names: Iterable[str]) -> list[str]:
        """Those that are not to be left alone, in order; all of them if none is left."""
        names = list(broker_names)
        now = self._clock()
        free = [name for name in names if self._avoided_until.get(name, 0.0) <= now]
        return free or names
