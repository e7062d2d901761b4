"""A small store for tests of the Spark source, and ways to fill and age it.

It is an embedded one, or with `is_remote` the same behind gRPC: tests can't tell.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core import open_broker
from tests.kit.served import served

if TYPE_CHECKING:
    from broker_core.api import Broker
    from broker_core.types import SendResult

FILE_BYTES = 1 << 16
SMALL_FILES = {"mappedFileSizeCommitLog": FILE_BYTES, "mappedFileSizeConsumeQueue": 2000}


class SourceStore:
    """A store with small files, held open by a writer."""

    def __init__(self, path: Path, *, is_remote: bool = False) -> None:
        self.path = path
        self._opened = ExitStack()
        self.address = f"file:{path}"
        if is_remote:
            self.address = self._opened.enter_context(served(path)).address
        self.broker: Broker = self._opened.enter_context(
            open_broker(self.address, mode="rw", create=True, config=SMALL_FILES)
        )

    def close(self) -> None:
        self._opened.close()

    def options(self, **more: str) -> dict[str, str]:
        """Options of a read of this store that does not dawdle over retries."""
        return {"broker": self.address, "fetchOffset.retryIntervalMs": "20", **more}

    def create(self, topic: str, queues: int = 2) -> None:
        self.broker.create_topic(topic, queues=queues)

    def send(self, topic: str, *bodies: str, queue: int = 0, size: int = 0) -> list[SendResult]:
        """Append messages to one queue, padded with spaces to at least `size` bytes."""
        return [
            self.broker.send(topic, body.ljust(size).encode(), queue_id=queue) for body in bodies
        ]

    def numbers(self, topic: str, numbers: range, queues: int = 2) -> list[str]:
        """Append one message per number, round the queues; returns the bodies."""
        for number in numbers:
            self.send(topic, f"{topic}-{number}", queue=number % queues)
        return [f"{topic}-{number}" for number in numbers]

    def expire(self, kept: SendResult) -> None:
        """Delete the files before the one that holds a message, as retention does."""
        self.broker.delete_before(kept.physical_offset // FILE_BYTES * FILE_BYTES)
