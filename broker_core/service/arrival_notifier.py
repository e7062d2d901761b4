"""Arrival notifier: calls that wait for messages of a queue, woken when some are appended.

**Problem.** Followers, held pulls and Await calls wait for messages that may never come. Polling
costs a look at files per waiter and adds its interval to every message's way. And a message that
was just appended should not be read back from the files by each of its followers.

**Invariants.**

- No arrival is missed: a waiter sets up its watch, looks at the queue, and waits then. An append
  between the look and the wait has set the watch already.
- An append wakes only watches of its own queues. Without watches it costs a look at an empty table.
- Arrived records that are kept in memory are a short cut and no more: a follower that does not find
  records that begin at its own offset reads the files.
- Memory is bounded: 256 arrivals and 1 MiB for each queue that is followed, none for others.

**Outline.** `watch` registers an event under its queues for as long as a block lasts. `follow` also
has the last arrivals of its queue kept, each packed for the wire once for all followers, by the
offset at which it starts. The server's writer (notifying_writer.py) calls `keep` and `announce`
after each append. A follower goes from arrival to arrival by their ends; a gap (dropped, or a topic
that was made anew) leads it back to the files.

**Rejected.** *One condition for all.* Every append would wake every waiter. *A queue per follower.*
A slow follower's queue grows without bound; here it falls behind and reads files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.store.queue.writer import QueueKey


KEPT_ARRIVALS = 256
KEPT_BYTES = 1 << 20
"""Arrivals, and bytes of them, that are kept of each queue that is followed."""


@dataclass(frozen=True, slots=True)
class ArrivedRecords:
    """Messages [start, end) of a queue, appended together, packed as one chunk of the wire."""

    start: int
    end: int
    packed: bytes


@dataclass(slots=True)
class _Followed:
    """The last arrivals of a queue, by their start, and the end of the last one."""

    followers: int = 0
    end: int | None = None
    arrived: dict[int, ArrivedRecords] = field(default_factory=dict)
    held_bytes: int = 0

    def keep(self, records: ArrivedRecords) -> None:
        """Keep an arrival, and drop the oldest ones beyond the limits."""
        self.end = records.end
        # A start can come again, after messages were taken back: the later arrival counts.
        self._drop(records.start)
        self.arrived[records.start] = records
        self.held_bytes += len(records.packed)
        while len(self.arrived) > KEPT_ARRIVALS or self.held_bytes > KEPT_BYTES:
            self._drop(next(iter(self.arrived)))

    def _drop(self, start: int) -> None:
        dropped = self.arrived.pop(start, None)
        self.held_bytes -= len(dropped.packed) if dropped else 0


class Watch:
    """One waiter. `wake` may be called by any thread, at any time, any number of times."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        """Let `wait` return, now or when it is called next."""
        self._event.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a `wake` since the last `wait`; return False if the time was over first."""
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
        """Watch a queue over a block, and have its last arrivals kept."""
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
        """Tell whether arrivals of a queue are to be kept."""
        return queue in self._followed

    def keep(self, queue: QueueKey, records: ArrivedRecords) -> None:
        """Keep an arrival of a queue, if it is followed; to be called before `announce`."""
        with self._lock:
            followed = self._followed.get(queue)
            if followed is not None:
                followed.keep(records)

    def arrived(self, queue: QueueKey, start: int, most_bytes: int) -> list[ArrivedRecords]:
        """Return the kept arrivals of a followed queue that go on at `start`, up to a limit.

        Empty if none is kept that begins there; then the files have them, or nothing came.
        """
        # No lock: a dict of CPython may be read while another thread changes it, and an arrival
        # that is missed now is found after the next `announce`.
        kept = self._followed[queue].arrived
        found: list[ArrivedRecords] = []
        records = kept.get(start)
        while records is not None and len(records.packed) <= most_bytes:
            most_bytes -= len(records.packed)
            found.append(records)
            records = kept.get(records.end)
        return found

    def is_at_end(self, queue: QueueKey, offset: int) -> bool:
        """Tell whether the last arrival in a followed queue ended at an offset."""
        return self._followed[queue].end == offset

    def announce(self, queues: Iterable[QueueKey]) -> None:
        """Wake all watches of these queues."""
        # Before the lock is taken: on a server without waiting calls every append ends here.
        if not self._watches:
            return
        with self._lock:
            woken = {watch for queue in queues for watch in self._watches.get(queue, ())}
        for watch in woken:
            watch.wake()

    def wake_all(self) -> None:
        """Wake all watches: the broker is stopping."""
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
