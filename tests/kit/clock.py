"""A clock that stands still until it is told otherwise."""

from __future__ import annotations


class ManualClock:
    """Time that only `sleep_ms` and `pass_ms` move; remembers how often it was asked to sleep."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self.slept_ms: list[int] = []

    def now_ms(self) -> int:
        return self._now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.slept_ms.append(duration_ms)
        self._now_ms += duration_ms

    def pass_ms(self, duration_ms: int) -> None:
        self._now_ms += duration_ms
