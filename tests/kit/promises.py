"""Promises in a file that two processes map: how many messages of each queue were acknowledged.

A writer notes a promise right after its send returned. A reader that has seen it and looks then
must find the message. Counts are aligned words, which are written and read whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

TOPIC = "promised"
QUEUES = 5


class Promises:
    """The counts of all queues, mapped; see the module."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8 * QUEUES))
        with path.open("r+b") as file:
            self._pages = mmap.mmap(file.fileno(), 8 * QUEUES)
        self._counts = np.frombuffer(self._pages, dtype=np.int64)

    def note(self, queue_id: int, end: int) -> None:
        """Note that all messages of a queue before `end` were acknowledged."""
        self._counts[queue_id] = end

    def all(self) -> Sequence[int]:
        """The counts as of now."""
        return [int(count) for count in self._counts]


def body_of(queue_id: int, offset: int) -> bytes:
    """The body of the message at a place, of some length between 4 and 100 bytes."""
    return b"%d/%d" % (queue_id, offset) + b"." * (offset * 37 % 97)


def key_of(queue_id: int, offset: int) -> str:
    """The key of the message at a place."""
    return f"k{queue_id}-{offset}"
