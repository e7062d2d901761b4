"""Group commit: appends of clients that wait at the same time become one append, with one fsync.

**Problem.** An append to the log takes the store's lock, a write, and with flush="sync" an fsync.
It costs much the same for one request as for many. With one append per request, 64 senders would
wait for 64 fsyncs in a row; with a fixed pause to collect requests, a lone sender would wait for
nothing.

**Invariants.**

- Every request is in exactly one group, whole. Its messages lie in the log one after another, in
  their order. Requests of one group have no order among them: they were under way together.
- Every request gets its own answer. One that is refused (topic, queue, checksum, right) does not
  harm the others of its group: they are appended one by one.
- A group is durable if one of its requests asked for flush="sync".
- A request whose deadline has passed before its group began is refused, and nothing is written.
- Requests in memory take room (room.py). A request that does not go on is ended (call_limits.py;
  core/write.py asks for a pace).
- A caller who lost the right while waiting for room is refused, and nothing is written.

**Outline.** `room` admits a request to memory. `append` checks a request of more than FEW messages,
or with compressed ones, which take time by what they grow to, in the thread that brought it, so
that several are checked at a time while another group is being appended. Then
concurrency.GroupQueue lets one of the waiting threads lead: it takes up to 16 MiB of requests,
checks the small ones together (broker/admission/few.py), and gives each request its slice of the
result. A group of up to 64 plain messages goes the quick way into the log, as plain values from
end to end (store/log_first.py); any other is joined to one batch. While groups have more than one
request, the leader waits up to 2 ms as long as the queue grows: with 16 connections this made
groups 1.1 times and the rate 1.2 times as large.

**Rejected.** *A thread that appends.* It costs a lone sender two switches of threads.
*Checking everything in the leader.* Large requests would be checked one after another, in the only
thread that can append.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.broker.admission.few import FEW, admit_appends, admit_few
from broker_core.concurrency import GroupQueue
from broker_core.errors import BrokerError
from broker_core.service.known_topics import KnownTopics
from broker_core.service.room import Room, busy
from broker_core.store.batch import Batch
from broker_core.store.few_records import MOST_BYTES, FewPlaces, FewRecords
from broker_core.types import AppendResult

if TYPE_CHECKING:
    from broker_core.broker.admission.records import Records
    from broker_core.service.auth.method_rules import Permit
    from broker_core.service.broker_pool import BrokerPool

Appended = AppendResult | FewPlaces
"""Where the messages of a request lie; plain values if they went the quick way."""
GROUP_BYTES = 16 << 20
_PAUSE_S = 0.0005
_PAUSES = 4
"""A group waits for more requests for 4 × 0.5 ms at most, while several come at once."""


@dataclass(eq=False, slots=True)
class Job:
    """One request on its way into the log, and its answer: `result` or `error`."""

    records: Records
    flush: str = "async"
    permit: Permit | None = None
    deadline_s: float | None = None
    batch: Batch | None = None
    result: Appended | None = None
    error: BaseException | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of its records in memory."""
        return len(self.records.data)


class GroupCommit:
    """Appends of clients on their way into the log, in groups. Thread-safe."""

    def __init__(
        self, pool: BrokerPool, max_bytes: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._monotonic = monotonic
        self._room = Room(max_bytes, monotonic)
        self.room = self._room.claim
        self._queue = GroupQueue(
            self._do,
            lambda job: job.size_bytes,
            most_bytes=GROUP_BYTES,
            pause_s=_PAUSE_S,
            pauses=_PAUSES,
        )
        self._topics = KnownTopics(pool)  # for the thread that leads
        self.groups = 0
        self.requests = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all requests under way."""
        return self._room.held_bytes

    def append(self, job: Job) -> Appended:
        """Append a request's messages, together with the other requests that wait.

        To be called within `room` for it. Raise UnavailableError if its deadline passes before its
        group is begun; then nothing was written.
        """
        if len(job.records) > FEW or job.records.has_compressed:
            job.batch = self._as_batch(self._admitted([job])).make_ready()
        self._queue.do(job)
        if job.error is not None:
            raise job.error
        assert job.result is not None
        return job.result

    def _left_s(self, deadline_s: float | None) -> float | None:
        return None if deadline_s is None else max(0.0, deadline_s - self._monotonic())

    # Groups

    def _do(self, group: Sequence[Job]) -> None:
        """Answer every job of a group."""
        live = []
        for job in group:
            if self._left_s(job.deadline_s) == 0:
                job.error = busy(self.held_bytes)
            else:
                live.append(job)
        if not live:
            return
        try:
            messages = self._joined(live)
        except Exception as error:  # noqa: BLE001 - whatever it is, only one request may suffer it
            self._do_one_by_one(live, error)
            return
        try:
            self._append(live, messages)
        except BrokerError as error:  # nothing of the group was written
            self._do_one_by_one(live, error)
        except BaseException as error:  # noqa: BLE001 - raised by the threads that wait for it
            for job in live:
                job.error = error

    def _do_one_by_one(self, group: Sequence[Job], error: Exception) -> None:
        """Append each request by itself, so that the one that spoiled the group is refused alone.

        Joining requests never changes what becomes of each of them.
        """
        if len(group) == 1:
            group[0].error = error
            return
        for job in group:
            self._do([job])

    def _admitted(self, jobs: Sequence[Job]) -> Batch | FewRecords:
        """Return the messages of some requests together, checked, and permitted to each."""
        with self._pool.broker() as broker:
            records = [job.records for job in jobs]
            return admit_appends(broker.door, records, [job.permit for job in jobs])

    def _few(self, jobs: Sequence[Job]) -> FewRecords | None:
        """Return what `_admitted` does, by a shorter way; None if it is for that to decide."""
        if sum(len(job.records) for job in jobs) > FEW:
            return None
        return admit_few(self._topics, [job.records for job in jobs], [job.permit for job in jobs])

    def _as_batch(self, admitted: Batch | FewRecords) -> Batch:
        batch = admitted.as_batch() if isinstance(admitted, FewRecords) else admitted
        return self._pool.writer.as_batch(batch)

    def _joined(self, group: Sequence[Job]) -> Batch | FewRecords:
        """Return the messages of a group in the order of `_in_order`, ready to be written."""
        small = [job for job in group if job.batch is None]
        batches = [job.batch for job in group if job.batch is not None]
        if small:
            admitted = self._few(small) or self._admitted(small)
            is_few = isinstance(admitted, FewRecords) and 0 < len(admitted.data) <= MOST_BYTES
            if is_few and not batches:
                return admitted
            batches.append(self._as_batch(admitted))
        # All that depends on what requests hold is computed here, before anything is written.
        return Batch.join(batches).make_ready()

    def _append(self, group: Sequence[Job], messages: Batch | FewRecords) -> None:
        is_sync = any(job.flush == "sync" for job in group)
        writer = self._pool.writer
        result: Appended | None = None
        if isinstance(messages, FewRecords):
            result = writer.append_quickly(messages, is_sync=is_sync)
        if result is None:
            batch = self._as_batch(messages).make_ready()
            result = writer.append(batch, flush="sync") if is_sync else writer.accept(batch)
        self.groups += 1
        self.requests += len(group)
        if len(group) == 1:
            group[0].result = result
            return
        first = 0
        for job in _in_order(group):
            job.result = result.slice(first, first + len(job.records))
            first += len(job.records)


def _in_order(group: Sequence[Job]) -> list[Job]:
    """Return requests as their batch has them: those checked before, then the small ones."""
    return sorted(group, key=lambda job: job.batch is None)
