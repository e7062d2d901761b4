"""Sending: appends with a name, repeated after a break and done once.

Single messages of several threads share the way: whoever finds nobody sending sends all that waits,
as one append, so that a busy connection carries large batches and an idle one adds no delay. While
groups have more than one message, the next one waits while it grows, for a millisecond at most.

What holds after a break: the same append is asked for again under the same name, and the broker
does it once (service/repeats.py says what it can tell). If the time is over before that is known,
UnavailableError says so; then it may or may not have been done.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.codec.layout import MAX_PROPERTIES_BYTES
from broker_core.codec.record import encode_record
from broker_core.concurrency import let_come
from broker_core.errors import IllegalMessageError, UnavailableError
from broker_core.retry import Backoff, Deadline
from broker_core.types import AppendResult
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.append_result import unpack_append_result
from broker_core.wire.core.frames import pack_records
from broker_core.wire.core.methods import APPEND, APPEND_CHUNKS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.clients.grpc.connection import Connection, Greeting
    from broker_core.codec.record import Record

_SHARED_BYTES = 1 << 20
_GATHERING_S = 0.0002
_MOST_GATHERINGS = 5
"""How long a busy connection waits at most for more to send: no longer than an answer takes."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Records to append, one after another, complete but for what the broker fills in."""

    records: bytes | memoryview
    sizes: NDArray[np.int32]

    def chunks(self, chunk_bytes: int) -> Iterator[tuple[int, int, int, int]]:
        """(first row, row after the last, first byte, byte after the last) of each chunk."""
        ends = np.cumsum(self.sizes, dtype=np.int64)
        row, at = 0, 0
        while row < len(self.sizes):
            stop = max(row + 1, int(np.searchsorted(ends, at + chunk_bytes, side="right")))
            yield row, stop, at, int(ends[stop - 1])
            row, at = stop, int(ends[stop - 1])


class AppendedMessage(NamedTuple):
    """Where one message lies."""

    queue_id: int
    queue_offset: int
    physical_offset: int


def single_bytes(record: Record, greeting: Greeting) -> bytes:
    """Return one message, encoded by itself; IllegalMessageError for one over a limit."""
    body_bytes, properties_bytes = len(record.body), len(record.properties)
    if body_bytes > greeting.limits.message_bytes:
        raise _too_long(record, "a body", body_bytes, greeting.limits.message_bytes)
    if properties_bytes > MAX_PROPERTIES_BYTES:
        raise _too_long(record, "properties", properties_bytes, MAX_PROPERTIES_BYTES)
    return encode_record(record)


def _too_long(record: Record, what: str, held: int, limit: int) -> IllegalMessageError:
    message = (
        f"The message for topic {record.topic} has {what} of {held} bytes, the limit is {limit}. "
        f"Nothing was written."
    )
    return IllegalMessageError(message)


class _Waiting:
    """One message on its way, and the thread that waits for it: `turn` is locked until then."""

    __slots__ = ("error", "is_leader", "raw", "spot", "turn")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.spot: AppendedMessage | None = None
        self.error: BaseException | None = None
        self.is_leader = False
        # A bare lock: an Event is made of three objects, and made anew for every message.
        self.turn = threading.Lock()
        self.turn.acquire()


class Appender:
    """Appends of one client. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client = uuid.uuid4().bytes
        self._sequence = 0
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._is_led = False
        self._is_busy = False

    def append(
        self, parcel: Parcel, flush: str | None = None, *, wants_places: bool = True
    ) -> AppendResult:
        """Append records, all of them or none, in one or several chunks."""
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
        return self._repeated(head, parcel)

    def append_shared(self, raw: bytes) -> AppendedMessage:
        """Append a single message, together with those of other threads."""
        mine = _Waiting(raw)
        with self._lock:
            self._waiting.append(mine)
            if not self._is_led:
                self._is_led = mine.is_leader = True
        if not mine.is_leader:
            mine.turn.acquire()
        if mine.is_leader and mine.spot is None and mine.error is None:
            self._lead()
        if mine.error is not None:
            raise mine.error
        assert mine.spot is not None
        return mine.spot

    def _lead(self) -> None:
        """Send one group, the leader's message first, and pass the lead on."""
        if self._is_busy:
            # Senders that were just answered tend to send again at once.
            let_come(self._waiting, pause_s=_GATHERING_S, most=_MOST_GATHERINGS)
        group: list[_Waiting] = []
        with self._lock:
            size_bytes = 0
            while self._waiting and size_bytes < _SHARED_BYTES:
                group.append(self._waiting.popleft())
                size_bytes += len(group[-1].raw)
        self._is_busy = len(group) > 1
        try:
            self._send_group(group)
        finally:
            with self._lock:
                self._is_led = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].is_leader = True
                    self._waiting[0].turn.release()
            for each in group[1:]:
                each.turn.release()

    def _send_group(self, group: Sequence[_Waiting]) -> None:
        try:
            placed = self.append(_joined([each.raw for each in group]))
        except UnavailableError as error:
            for each in group:
                each.error = error
        except Exception as error:  # noqa: BLE001 - raised by those who wait for it
            if len(group) == 1:
                group[0].error = error
                return
            for each in group:  # one of them spoiled it: let each have its own answer
                self._send_group([each])
        else:
            rows = zip(
                placed.queue_ids.tolist(),
                placed.queue_offsets.tolist(),
                placed.physical_offsets.tolist(),
                strict=True,
            )
            for each, row in zip(group, rows, strict=True):
                each.spot = AppendedMessage(*row)

    def _repeated(self, head: pb.AppendHead, parcel: Parcel) -> AppendResult:
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
    """Return a parcel in chunks, the first with the head."""
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
