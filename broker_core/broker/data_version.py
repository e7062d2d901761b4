"""Data versions: the counter by which RocketMQ's brokers tell that a configuration changed."""

from __future__ import annotations

from typing import Any


def next_version(version: object, now_ms: int) -> dict[str, Any]:
    """Return the version after one that was read; anything that is none counts as never changed.

    >>> next_version({"counter": 3, "stateVersion": 0, "timestamp": 1}, 5)
    {'counter': 4, 'stateVersion': 0, 'timestamp': 5}
    """
    known = version if isinstance(version, dict) else {}
    counter = known.get("counter", 0)
    return {
        "counter": counter + 1 if isinstance(counter, int) else 1,
        "stateVersion": known.get("stateVersion", 0),
        "timestamp": now_ms,
    }
