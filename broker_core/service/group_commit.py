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
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker_core.concurrency import let_come
from broker_core.errors import BrokerError, UnavailableError
from broker_core.service.admission_few import FEW, admit_appends
from broker_core.store.batch import Batch
from broker_core.types import AppendResult

if TYPE_CHECKING:
    from broker_core.service.admission import Admitted, Records
    from broker_core.service.broker_pool import BrokerPool

GROUP_BYTES = 16 << 20
_GATHERING_S = 0.0005
_MOST_GATHERINGS = 4
"""How long a group waits at most for more requests, while several come at once."""

Permit = Callable[[Collection[str]], None]
"""Raises PermissionDeniedError unless the sender may write to all of these topics."""


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False, slots=True)
class Job:
    """One request on its way into the log; `turn` is released when it is done or is to lead."""

    records: Records
    flush: str = "async"
    permit: Permit | None = None
    deadline_s: float | None = None
    batch: Batch | None = None
    placed: AppendResult | None = None
    error: BaseException | None = None
    is_leader: bool = False
    turn: threading.Lock = field(default_factory=_locked)

    @property
    def size_bytes(self) -> int:
        """The bytes that it holds in memory."""
        return len(self.records.data)

    @property
    def is_done(self) -> bool:
        """Whether there is an answer."""
        return self.placed is not None or self.error is not None


class GroupCommit:
    """The one way of clients' messages into the log. Thread-safe."""

    def __init__(
        self, pool: BrokerPool, max_bytes: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._held_bytes = 0
        self._is_led = False
        self._is_busy = False
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
        with self._changed:
            self._waiting.append(job)
            if not self._is_led:
                self._is_led = job.is_leader = True
        if not job.is_leader:
            job.turn.acquire()
        if job.is_leader and not job.is_done:
            self._lead(job)
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

    # Leading

    def _lead(self, leader: Job) -> None:
        """Do one group, which has the leader's own job in it, and pass the lead on."""
        try:
            while not leader.is_done:
                if self._is_busy:
                    # An append costs much the same for one request as for many.
                    let_come(self._waiting, pause_s=_GATHERING_S, most=_MOST_GATHERINGS)
                group = self._take()
                self._do(group)
                for job in group:
                    if job is not leader:
                        job.turn.release()
        finally:
            self._pass_on()

    def _take(self) -> list[Job]:
        taken: list[Job] = []
        size_bytes = 0
        with self._changed:
            while self._waiting:
                size_bytes += self._waiting[0].size_bytes
                if taken and size_bytes > GROUP_BYTES:
                    break
                taken.append(self._waiting.popleft())
        self._is_busy = len(taken) > 1
        return taken

    def _pass_on(self) -> None:
        with self._changed:
            self._is_led = bool(self._waiting)
            if self._waiting:
                self._waiting[0].is_leader = True
                self._waiting[0].turn.release()

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
        _require_permits(jobs, admitted)
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


def _require_permits(group: Sequence[Job], admitted: Admitted) -> None:
    for number, job in enumerate(group):
        if job.permit is not None:
            job.permit(admitted.topics(number))


def _busy(held_bytes: int) -> UnavailableError:
    message = (
        f"The broker could not append in time: {held_bytes} bytes of requests are being served. "
        f"Nothing was written; try again later, or with a longer timeout."
    )
    return UnavailableError(message)
