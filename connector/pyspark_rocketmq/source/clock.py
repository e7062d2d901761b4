"""Time as an argument, so that tests can turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What planning needs to know of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Let time go by."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        """Let time go by."""
        time.sleep(duration_ms / 1000)
