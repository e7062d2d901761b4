"""Sending over gRPC: named appends, retried after a break and done once.

**Problem.** A call costs far more than the message that it carries. And when a connection breaks,
a client can't tell whether its append was done.

**Invariants.**

- Every append has a name: this client's 16 random bytes and a sequence. All attempts at it carry
  the same name and records, and the attempt's number; the broker does it once
  (service/append_dedup.py says what it can tell after a restart).
- If `retry_ms` is over before the outcome is known, UnavailableError says so. Then the append may
  or may not have been done.
- An append is done as a whole or not at all, also one that takes several chunks.
- Single messages that share an append each get their own answer. If the broker refuses the group,
  each is sent by itself, and only the one at fault is refused. If it can't be reached, all fail:
  sending them apart would give each a new name, and could double them.

**Outline.** `append` is for batches: one named append each. `append_shared` is for single messages
of many threads: concurrency.GroupQueue lets one of the waiting threads send all that wait, up to
1 MiB, as one append. An idle connection adds no delay; a busy one carries large groups, since its
leader waits up to 1 ms as long as the queue grows.

**Rejected.** *A thread that sends.* It costs a lone sender two switches of threads.
*gRPC's own retries.* They do not number attempts, so the broker could not tell a retry from a
first attempt; they are off.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.concurrency import GroupQueue
from broker_core.errors import IllegalMessageError, UnavailableError
from broker_core.retry import Backoff, Deadline
from broker_core.types import AppendResult, LogicalOffset, PhysicalOffset
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.append_result import unpack_append_result
from broker_core.wire.core.frames import pack_records
from broker_core.wire.core.methods import APPEND, APPEND_CHUNKS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.clients.grpc.connection import Connection

_SHARED_BYTES = 1 << 20
_PAUSE_S = 0.0002
_PAUSES = 5
"""A busy connection waits for more to send for 5 × 0.2 ms at most, as long as an answer takes."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Records to append, one after another, complete but for the fields that the broker fills in.

    Those are physical offset, queue offset, store time and both hosts.
    """

    records: bytes | memoryview
    sizes: NDArray[np.int32]

    def chunks(self, chunk_bytes: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (first row, row after the last, first byte, byte after the last) of each chunk.

        A record that is larger than `chunk_bytes` is a chunk by itself.
        """
        ends = np.cumsum(self.sizes, dtype=np.int64)
        row, at = 0, 0
        while row < len(self.sizes):
            stop = max(row + 1, int(np.searchsorted(ends, at + chunk_bytes, side="right")))
            yield row, stop, at, int(ends[stop - 1])
            row, at = stop, int(ends[stop - 1])


class AppendedMessage(NamedTuple):
    """Queue and offsets of one message that was appended."""

    queue_id: int
    queue_offset: LogicalOffset
    physical_offset: PhysicalOffset


@dataclass(eq=False, slots=True)
class _Single:
    """One message on its way, and its answer: `appended` or `error`."""

    raw: bytes
    appended: AppendedMessage | None = None
    error: BaseException | None = None


class Appender:
    """Appends of one client. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client = uuid.uuid4().bytes
        self._sequence = 0
        self._lock = threading.Lock()
        self._singles = GroupQueue(
            self._send_group,
            lambda single: len(single.raw),
            most_bytes=_SHARED_BYTES,
            pause_s=_PAUSE_S,
            pauses=_PAUSES,
        )

    def append(
        self, parcel: Parcel, flush: str | None = None, *, wants_places: bool = True
    ) -> AppendResult:
        """Append records, all of them or none, in one or several chunks.

        The result is empty without `wants_places`: offsets do not travel then.
        """
        total = len(parcel.records)
        limit = self._connection.greeting().limits.append_bytes
        if total > limit:
            message = (
                f"{total} bytes are too many for one append, {limit} is the broker's limit "
                f"(grpcMaxAppendBytes); send them in parts."
            )
            raise IllegalMessageError(message)
        head = pb.AppendHead(flush=flush or "", total_bytes=total, without_places=not wants_places)
        with self._lock:
            self._sequence += 1
            head.request.sequence = self._sequence
        head.request.client = self._client
        head.request.instance = self._connection.greeting().instance
        return self._retried(head, parcel)

    def append_shared(self, raw: bytes) -> AppendedMessage:
        """Append a single message, in one append with those of other threads that wait."""
        single = _Single(raw)
        self._singles.do(single)
        if single.error is not None:
            raise single.error
        assert single.appended is not None
        return single.appended

    def _send_group(self, group: Sequence[_Single]) -> None:
        try:
            result = self.append(_joined([each.raw for each in group]))
        except UnavailableError as error:
            # The outcome is unknown. Under new names each could be appended a second time.
            for each in group:
                each.error = error
        except Exception as error:  # noqa: BLE001 - raised by the threads that wait for it
            if len(group) == 1:
                group[0].error = error
                return
            # The broker refused the group and wrote nothing: only one of them may be at fault.
            for each in group:
                self._send_group([each])
        else:
            rows = zip(
                result.queue_ids.tolist(),
                result.queue_offsets.tolist(),
                result.physical_offsets.tolist(),
                strict=True,
            )
            for each, row in zip(group, rows, strict=True):
                each.appended = AppendedMessage(*row)

    def _retried(self, head: pb.AppendHead, parcel: Parcel) -> AppendResult:
        deadline = Deadline.after_ms(self._connection.options.retry_ms)
        backoff = Backoff()
        while True:
            head.request.attempt += 1
            try:
                return self._once(head, parcel)
            except UnavailableError:
                self._connection.forget()
                if deadline.has_passed:
                    raise
                backoff.pause(deadline)

    def _once(self, head: pb.AppendHead, parcel: Parcel) -> AppendResult:
        connection = self._connection
        chunk_bytes = connection.greeting().limits.chunk_bytes
        if len(parcel.records) <= chunk_bytes or len(parcel.sizes) == 1:
            packed = pack_records(head.SerializeToString(), parcel.sizes, parcel.records)
            return unpack_append_result(connection.ask(APPEND, packed))
        chunks = packed_chunks(head.SerializeToString(), parcel, chunk_bytes)
        return unpack_append_result(connection.ask(APPEND_CHUNKS, chunks))


def packed_chunks(head: bytes, parcel: Parcel, chunk_bytes: int) -> Iterator[bytes]:
    """Yield a parcel in chunks, the first with the head."""
    view = memoryview(parcel.records)
    for row, stop, start, end in parcel.chunks(chunk_bytes):
        yield pack_records(
            head if row == 0 else b"",
            parcel.sizes[row:stop],
            view[start:end],
            has_more=stop < len(parcel.sizes),
        )


def _joined(messages: Sequence[bytes]) -> Parcel:
    return Parcel(b"".join(messages), np.fromiter(map(len, messages), np.int32, len(messages)))
