"""Group commit: appends that wait at the same time become one append, with one fsync.

Whoever finds nobody at it leads: takes all that waits, up to a limit, checks and appends it as one
batch, wakes those it did it for, and hands the lead to the next who came meanwhile. So a lone
sender pays no detour, and the more senders there are, the larger the groups; while groups have more
than one request, the next one waits while it grows, two milliseconds at most. Each request stays
whole, in order, and gets its own answer; one that is refused does not harm the others. A request of
many messages is checked before it waits, by who brings it: several are checked at a time, while
another is being appended.

Memory is bounded: requests beyond `max_bytes` in flight wait for room before they are read, and are
refused when their time is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.concurrency import GroupQueue
from broker_core.errors import BrokerError, UnavailableError
from broker_core.service.admission_few import FEW, admit_appends
from broker_core.store.batch import Batch
from broker_core.types import AppendResult

if TYPE_CHECKING:
    from broker_core.service.admission import Records
    from broker_core.service.auth.rights import Permit
    from broker_core.service.broker_pool import BrokerPool

GROUP_BYTES = 16 << 20
_GATHERING_S = 0.0005
_MOST_GATHERINGS = 4
"""How long a group waits at most for more requests, while several come at once."""


@dataclass(eq=False, slots=True)
class Job:
    """One request on its way into the log, and its answer: `placed` or `error`."""

    records: Records
    flush: str = "async"
    permit: Permit | None = None
    deadline_s: float | None = None
    batch: Batch | None = None
    placed: AppendResult | None = None
    error: BaseException | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes that it holds in memory."""
        return len(self.records.data)


class GroupCommit:
    """The one way of clients' messages into the log. Thread-safe."""

    def __init__(
        self, pool: BrokerPool, max_bytes: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._held_bytes = 0
        self._queue = GroupQueue(
            self._do,
            lambda job: job.size_bytes,
            most_bytes=GROUP_BYTES,
            pause_s=_GATHERING_S,
            pauses=_MOST_GATHERINGS,
        )
        self.groups = 0
        self.requests = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of all requests under way."""
        return self._held_bytes

    def append(self, job: Job) -> AppendResult:
        """Append a request's messages, together with whatever else waits.

        To be called within `room` for it. UnavailableError if its deadline passes before it was
        begun; then nothing was written.
        """
        if len(job.records) > FEW:
            job.batch = self._pool.writer.as_batch(self._admitted([job])).make_ready()
        self._queue.do(job)
        if job.error is not None:
            raise job.error
        assert job.placed is not None
        return job.placed

    # Room

    @contextmanager
    def room(self, size_bytes: int, deadline_s: float | None) -> Iterator[None]:
        """Hold room for a request over a block; UnavailableError if there is none in time."""
        with self._changed:
            while self._held_bytes and self._held_bytes + size_bytes > self._max_bytes:
                if not self._changed.wait(self._left_s(deadline_s)):
                    raise _busy(self._held_bytes)
            self._held_bytes += size_bytes
        try:
            yield
        finally:
            with self._changed:
                self._held_bytes -= size_bytes
                self._changed.notify_all()

    def _left_s(self, deadline_s: float | None) -> float | None:
        return None if deadline_s is None else max(0.0, deadline_s - self._monotonic())

    # Groups

    def _do(self, group: Sequence[Job]) -> None:
        """Answer every job of a group."""
        live = []
        for job in group:
            if self._left_s(job.deadline_s) == 0:
                job.error = _busy(self._held_bytes)
            else:
                live.append(job)
        if not live:
            return
        try:
            self._append(live)
        except BrokerError as error:
            if len(live) == 1:
                live[0].error = error
                return
            for job in live:  # one of them spoiled it: let each have its own answer
                self._do([job])
        except BaseException as error:  # noqa: BLE001 - raised by those who wait for it
            for job in live:
                job.error = error

    def _admitted(self, jobs: Sequence[Job]) -> Batch:
        """The messages of some requests, checked."""
        with self._pool.broker() as broker:
            admitted = admit_appends(broker, [job.records for job in jobs])
        for number, job in enumerate(jobs):
            admitted.require(number, job.permit)
        return admitted.batch

    def _append(self, group: Sequence[Job]) -> None:
        ready = [job for job in group if job.batch is not None]
        small = [job for job in group if job.batch is None]
        batches = [job.batch for job in ready if job.batch is not None]
        if small:
            batches.append(self._admitted(small))
        batch = Batch.join(batches)
        if any(job.flush == "sync" for job in group):
            placed = self._pool.writer.append(batch, flush="sync")
        else:
            placed = self._pool.writer.accept(batch)
        self.groups += 1
        self.requests += len(group)
        first = 0
        for job in (*ready, *small):
            job.placed = placed.slice(first, first + len(job.records))
            first += len(job.records)


def _busy(held_bytes: int) -> UnavailableError:
    message = (
        f"The broker could not append in time: {held_bytes} bytes of requests are being served. "
        f"Nothing was written; try again later, or with a longer timeout."
    )
    return UnavailableError(message)
