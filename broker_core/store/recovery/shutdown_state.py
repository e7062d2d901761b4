"""Shutdown state: how the last writer left a store, by the small files in its root.

    checkpoint   up to when everything is flushed (checkpoint.py), and the tail marker: where the
                 last of our writers left the end of the store (tail_marker.py)
    abort        there while writes may not be flushed: if it is found, the store was not closed
    lock         its modification time changes when an Apache broker starts (lock.py)

Only read here; the writer changes them under the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.store.io.segments import unreadable
from broker_core.store.lock import LOCK_NAME
from broker_core.store.queue.consume_queue import list_queues
from broker_core.store.recovery.checkpoint import Checkpoint, read_checkpoint
from broker_core.store.recovery.tail_marker import TailMarker, TailState, decode_tail

if TYPE_CHECKING:
    from broker_core.store.settings import StoreSettings

ABORT_NAME = "abort"
CHECKPOINT_NAME = "checkpoint"


@dataclass(frozen=True, slots=True)
class ShutdownState:
    """The content of the small files. `tail` is None if no valid marker is there."""

    checkpoint: Checkpoint
    tail: TailMarker | None
    has_abort: bool
    lock_modified_ns: int

    @property
    def is_tail_ours(self) -> bool:
        """True if no foreign broker has started since the marker was written."""
        return self.tail is not None and self.tail.lock_modified_ns == self.lock_modified_ns

    @property
    def is_unclean(self) -> bool:
        """True if the store was not closed: unflushed data may be lost after a stop.

        Losing power can take the name of a new `abort` with it, so a marker of ours that does not
        say CLOSED counts as much.
        """
        if self.tail is None or not self.is_tail_ours:
            return self.has_abort
        return self.has_abort or self.tail.state is not TailState.CLOSED

    def is_tail_believable(self, boot: bytes) -> bool:
        """Return True if the marker describes the files as they are, barring tampering.

        After another boot only a closed store is what its marker says: what the page cache held is
        gone. An unknown boot (zeros) is never the marker's.
        """
        if self.tail is None or not self.is_tail_ours:
            return False
        if self.tail.state is TailState.CLOSED and not self.has_abort:
            return True
        return any(boot) and self.tail.boot == boot


def read_shutdown_state(root: Path) -> ShutdownState:
    """Read the small files of a store; missing ones are those of a store that was never used."""
    path = root / CHECKPOINT_NAME
    checkpoint = read_checkpoint(path)
    try:
        content = path.read_bytes() if path.exists() else b""
        has_abort = (root / ABORT_NAME).exists()
        lock_modified_ns = _modified_ns(root / LOCK_NAME)
    except OSError as error:
        raise unreadable(path, error) from error
    return ShutdownState(checkpoint, decode_tail(content), has_abort, lock_modified_ns)


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def lacks_queues(root: Path, settings: StoreSettings) -> bool:
    """Return True if there is a log but no consume queue: all of them must be rebuilt."""
    if list_queues(root / "consumequeue"):
        return False
    return any(
        next(directory.glob("[0-9]*"), None) is not None
        for directory in settings.commit_log_directories(root)
    )
