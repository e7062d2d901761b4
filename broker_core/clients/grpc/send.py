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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.codec.layout import MAX_PROPERTIES_BYTES
from broker_core.codec.record import encode_record
from broker_core.concurrency import GroupQueue
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
            pause_s=_GATHERING_S,
            pauses=_MOST_GATHERINGS,
        )

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
        single = _Single(raw)
        self._singles.do(single)
        if single.error is not None:
            raise single.error
        assert single.appended is not None
        return single.appended

    def _send_group(self, group: Sequence[_Single]) -> None:
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
                each.appended = AppendedMessage(*row)

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
