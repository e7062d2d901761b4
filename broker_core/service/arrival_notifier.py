"""Arrivals: who waits for messages of which queue, and is woken when some come.

Whoever waits looks first and waits then, on a watch that was set up before it looked, so that no
arrival falls in between. An append wakes only those who watch one of its queues; without watchers
it costs a look at an empty table.

Who follows a queue at its end is given what arrives without reading it back from the files: the
last pieces of each followed queue are kept, each made ready for the wire once for all followers.
They are a short cut and no more: whoever does not find the piece that goes on where it is looks at
the files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.store.queue.writer import QueueKey


KEPT_PIECES = 256
KEPT_BYTES = 1 << 20
"""How much is kept of each queue that is followed."""


@dataclass(frozen=True, slots=True)
class ArrivedRecords:
    """Messages [start, end) of a queue, as they travel."""

    start: int
    end: int
    packed: bytes


@dataclass(slots=True)
class _Followed:
    """The last pieces of a queue, by where they start, and where the last of them ended."""

    followers: int = 0
    end: int | None = None
    pieces: dict[int, ArrivedRecords] = field(default_factory=dict)
    held_bytes: int = 0

    def keep(self, piece: ArrivedRecords) -> None:
        """Keep a piece, and let go of the oldest beyond the limits."""
        self.end = piece.end
        self._drop(piece.start)
        self.pieces[piece.start] = piece
        self.held_bytes += len(piece.packed)
        while len(self.pieces) > KEPT_PIECES or self.held_bytes > KEPT_BYTES:
            self._drop(next(iter(self.pieces)))

    def _drop(self, start: int) -> None:
        dropped = self.pieces.pop(start, None)
        self.held_bytes -= len(dropped.packed) if dropped else 0


class Watch:
    """One waiter. `wake` may be called by anyone, at any time, any number of times."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        """Let `wait` return, now or when it is called next."""
        self._event.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait to be woken since the last time; False if the time was over first."""
        was_woken = self._event.wait(timeout_s)
        self._event.clear()
        return was_woken


class ArrivalNotifier:
    """All watches of one broker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[QueueKey, set[Watch]] = {}
        self._followed: dict[QueueKey, _Followed] = {}

    @contextmanager
    def watch(self, queues: Iterable[QueueKey]) -> Iterator[Watch]:
        """Watch some queues over a block."""
        watched = tuple(queues)
        watch = Watch()
        with self._lock:
            for queue in watched:
                self._watches.setdefault(queue, set()).add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                for queue in watched:
                    self._forget(queue, watch)

    @contextmanager
    def follow(self, queue: QueueKey) -> Iterator[Watch]:
        """Watch a queue over a block, and have its last pieces kept."""
        with self._lock:
            self._followed.setdefault(queue, _Followed()).followers += 1
        try:
            with self.watch([queue]) as watch:
                yield watch
        finally:
            with self._lock:
                self._followed[queue].followers -= 1
                if not self._followed[queue].followers:
                    del self._followed[queue]

    def is_followed(self, queue: QueueKey) -> bool:
        """Whether pieces of a queue are wanted."""
        return queue in self._followed

    def keep(self, queue: QueueKey, piece: ArrivedRecords) -> None:
        """Keep what has arrived in a queue, if it is followed; to be announced then."""
        with self._lock:
            followed = self._followed.get(queue)
            if followed is not None:
                followed.keep(piece)

    def pieces(self, queue: QueueKey, start: int, most_bytes: int) -> list[ArrivedRecords]:
        """Return the pieces of a followed queue from `start` on that are kept, up to a limit."""
        kept = self._followed[queue].pieces
        found: list[ArrivedRecords] = []
        piece = kept.get(start)
        while piece is not None and len(piece.packed) <= most_bytes:
            most_bytes -= len(piece.packed)
            found.append(piece)
            piece = kept.get(piece.end)
        return found

    def is_at_end(self, queue: QueueKey, offset: int) -> bool:
        """Whether what arrived last in a followed queue ended there."""
        return self._followed[queue].end == offset

    def announce(self, queues: Iterable[QueueKey]) -> None:
        """Wake everyone who watches one of these queues."""
        if not self._watches:
            return
        with self._lock:
            woken = {watch for queue in queues for watch in self._watches.get(queue, ())}
        for watch in woken:
            watch.wake()

    def wake_all(self) -> None:
        """Wake everyone: the broker is stopping."""
        with self._lock:
            woken = {watch for watches in self._watches.values() for watch in watches}
        for watch in woken:
            watch.wake()

    def _forget(self, queue: QueueKey, watch: Watch) -> None:
        watches = self._watches.get(queue)
        if watches is not None:
            watches.discard(watch)
            if not watches:
                del self._watches[queue]
