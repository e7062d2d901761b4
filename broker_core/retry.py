"""How long to go on trying, and how long to pause in between."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Deadline:
    """A moment after which there is no point in trying; on the monotonic clock."""

    at_s: float

    @classmethod
    def after_ms(cls, duration_ms: float) -> Deadline:
        """The moment so many milliseconds from now."""
        return cls(time.monotonic() + duration_ms / 1000)

    @property
    def remaining_s(self) -> float:
        """Seconds left, 0 when it has passed."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether it is too late."""
        return time.monotonic() >= self.at_s

    def capped_s(self, duration_s: float) -> float:
        """A duration, cut where it would pass the deadline."""
        return min(duration_s, self.remaining_s)


@dataclass
class Backoff:
    """Pauses that double from try to try, each shortened by up to half so that clients spread."""

    first_s: float = 0.02
    limit_s: float = 2.0
    _next_s: float = field(default=0.0, init=False)

    def next_s(self) -> float:
        """The next pause."""
        self._next_s = min(self.limit_s, self._next_s * 2) if self._next_s else self.first_s
        return self._next_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin with short pauses again."""
        self._next_s = 0.0

    def pause(self, deadline: Deadline) -> None:
        """Sleep for the next pause, not beyond the deadline."""
        time.sleep(deadline.capped_s(self.next_s()))
