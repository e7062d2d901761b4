"""Sending: appends with a name, repeated after a break and done once.

Single messages of several threads share the way: whoever finds nobody sending sends all that waits,
as one append, so that a busy connection carries large batches and an idle one adds no delay.

What holds after a break: the same append is asked for again under the same name, and the broker
does it once (service/repeats.py says what it can tell). If the time is over before that is known,
UnavailableError says so; then it may or may not have been done.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from broker_core.clients.remoting.retry import Backoff, Deadline
from broker_core.codec.layout import MAGIC_V1, MAGIC_V2, MAX_PROPERTIES_BYTES, MAX_TOPIC_V1
from broker_core.codec.record import encode_record
from broker_core.errors import IllegalMessageError, UnavailableError
from broker_core.types import AppendResult
from broker_core.wire import broker_pb2 as pb
from broker_core.wire.frames import pack_records
from broker_core.wire.methods import APPEND, APPEND_CHUNKS
from broker_core.wire.placement import unpack_placement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.clients.remote.connection import Connection, Greeting
    from broker_core.codec.record import Record

_SHARED_BYTES = 1 << 20


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


def single_parcel(record: Record, greeting: Greeting) -> Parcel:
    """Return one message, encoded by itself; IllegalMessageError for one over a limit."""
    for what, held, limit in (
        ("a body", len(record.body), greeting.limits.message_bytes),
        ("properties", len(record.properties), MAX_PROPERTIES_BYTES),
    ):
        if held > limit:
            message = (
                f"The message for topic {record.topic} has {what} of {held} bytes, the limit is "
                f"{limit}. Nothing was written."
            )
            raise IllegalMessageError(message)
    is_wide = len(record.topic.encode()) > MAX_TOPIC_V1
    version = MAGIC_V2 if is_wide else MAGIC_V1
    raw = encode_record(replace(record, store_host=greeting.store_host, version=version))
    return Parcel(raw, np.array([len(raw)], dtype=np.int32))


@dataclass
class _Waiting:
    parcel: Parcel
    placed: AppendResult | None = None
    error: BaseException | None = None
    is_leader: bool = False
    turn: threading.Event = field(default_factory=threading.Event)


class Sender:
    """Appends of one client. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client = uuid.uuid4().bytes
        self._sequence = 0
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._is_led = False

    def append(self, parcel: Parcel, flush: str | None = None) -> AppendResult:
        """Append records, all of them or none, in one or several chunks."""
        total = len(parcel.records)
        limit = self._connection.greeting().limits.append_bytes
        if total > limit:
            message = (
                f"{total} bytes are too many for one append, {limit} is the broker's limit "
                f"(grpcMaxAppendBytes); send them in parts."
            )
            raise IllegalMessageError(message)
        head = pb.AppendHead(flush=flush or "", total_bytes=total)
        with self._lock:
            self._sequence += 1
            head.request.sequence = self._sequence
        head.request.client = self._client
        head.request.instance = self._connection.greeting().instance
        return self._repeated(head, parcel)

    def append_shared(self, parcel: Parcel) -> AppendResult:
        """Append a single message, together with those of other threads."""
        mine = _Waiting(parcel)
        with self._lock:
            self._waiting.append(mine)
            if not self._is_led:
                self._is_led = mine.is_leader = True
        if not mine.is_leader:
            mine.turn.wait()
        if mine.is_leader and mine.placed is None and mine.error is None:
            self._lead()
        if mine.error is not None:
            raise mine.error
        assert mine.placed is not None
        return mine.placed

    def _lead(self) -> None:
        """Send one group, the leader's message first, and pass the lead on."""
        group: list[_Waiting] = []
        with self._lock:
            size_bytes = 0
            while self._waiting and size_bytes < _SHARED_BYTES:
                group.append(self._waiting.popleft())
                size_bytes += len(group[-1].parcel.records)
        try:
            self._send_group(group)
        finally:
            with self._lock:
                self._is_led = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].is_leader = True
                    self._waiting[0].turn.set()
            for each in group[1:]:
                each.turn.set()

    def _send_group(self, group: Sequence[_Waiting]) -> None:
        try:
            placed = self.append(_joined([each.parcel for each in group]))
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
            for row, each in enumerate(group):
                each.placed = _row(placed, row)

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
            return unpack_placement(connection.ask(APPEND, packed))
        chunks = packed_chunks(head.SerializeToString(), parcel, chunk_bytes)
        return unpack_placement(connection.ask(APPEND_CHUNKS, chunks))


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


def _joined(parcels: Sequence[Parcel]) -> Parcel:
    if len(parcels) == 1:
        return parcels[0]
    return Parcel(
        b"".join(parcel.records for parcel in parcels),
        np.concatenate([parcel.sizes for parcel in parcels]),
    )


def _row(placed: AppendResult, row: int) -> AppendResult:
    rows = slice(row, row + 1)
    return AppendResult(
        queue_ids=placed.queue_ids[rows],
        queue_offsets=placed.queue_offsets[rows],
        physical_offsets=placed.physical_offsets[rows],
        sizes=placed.sizes[rows],
        store_timestamp_ms=placed.store_timestamp_ms,
    )
