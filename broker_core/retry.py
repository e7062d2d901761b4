"""Retries: deadlines, and pauses that grow from try to try."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock after which trying ends."""

    at_s: float

    @classmethod
    def after_ms(cls, duration_ms: float) -> Deadline:
        """Return the moment `duration_ms` from now."""
        return cls(time.monotonic() + duration_ms / 1000)

    @property
    def remaining_s(self) -> float:
        """Seconds left; 0 when it has passed."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def has_passed(self) -> bool:
        """True once the moment has come."""
        return time.monotonic() >= self.at_s

    def capped_s(self, duration_s: float) -> float:
        """Return a duration, shortened so that it does not pass the deadline."""
        return min(duration_s, self.remaining_s)


@dataclass
class Backoff:
    """Pauses that double from try to try, each cut by a random part, up to half.

    The cut keeps clients that failed together from trying again together.
    """

    first_s: float = 0.02
    limit_s: float = 2.0
    _next_s: float = field(default=0.0, init=False)

    def next_s(self) -> float:
        """Return the next pause, in seconds."""
        self._next_s = min(self.limit_s, self._next_s * 2) if self._next_s else self.first_s
        return self._next_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._next_s = 0.0

    def pause(self, deadline: Deadline) -> None:
        """Sleep for the next pause, but not beyond the deadline."""
        time.sleep(deadline.capped_s(self.next_s()))
