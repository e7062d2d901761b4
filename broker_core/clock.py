"""The wall clock, as RocketMQ counts time."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000
