"""Repeats: an append that is asked for again, because its answer got lost, is done once.

A client names each append and numbers its attempts. What holds:

- While this server runs, an append that it has done within the window, or is just doing, is not
  done again; the repeat gets the first one's answer.
- After a restart the window is gone, but the log is not: a batch is in it as a whole or not at
  all, so its first message's unique key, looked up in the index, tells whether it was done.
- What can't be told (another server's append, without a unique key or without an index) is refused
  with UnavailableError, which says so, instead of being done twice.

The window is bounded: the oldest names are forgotten. Answers are not kept, only where each batch
begins; the rest is read from the log.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.codec.fields import locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.property_names import UNIQ_KEY
from broker_core.codec.record import Record, decode_record
from broker_core.errors import CorruptRecordError, OffsetRangeError, UnavailableError
from broker_core.types import AppendResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.service.admission import Records
    from broker_core.service.broker_pool import BrokerPool
    from broker_core.store.reader import StoreReader

WINDOW = 100_000
"""How many appends are remembered; each takes a few hundred bytes."""
_CANDIDATES = 8


class RequestName(NamedTuple):
    """What a client calls one append."""

    client: bytes
    sequence: int


class AppendAttempt(NamedTuple):
    """One time that an append is asked for."""

    name: RequestName
    number: int
    instance: bytes

    @property
    def is_repeat(self) -> bool:
        """Whether it may have been done already."""
        return self.number > 1


class _Place(NamedTuple):
    physical_offset: int
    records: int


class AppendDedup:
    """The appends that were done lately, and those that are being done. Thread-safe."""

    def __init__(self, pool: BrokerPool, window: int = WINDOW) -> None:
        self._pool = pool
        self._window = window
        self._lock = threading.Lock()
        self._done: OrderedDict[RequestName, _Place] = OrderedDict()
        self._doing: dict[RequestName, threading.Event] = {}

    def once(
        self,
        attempt: AppendAttempt,
        records: Records,
        append: Callable[[], AppendResult],
        wait_s: float | None = None,
    ) -> AppendResult:
        """Do an append unless it was done; `wait_s` is how long to wait for one under way."""
        while True:
            with self._lock:
                place = self._done.get(attempt.name)
                under_way = self._doing.get(attempt.name)
                if place is None and under_way is None:
                    self._doing[attempt.name] = threading.Event()
                    break
            if place is not None:
                return self._read(place)
            if under_way is not None and not under_way.wait(wait_s):
                message = "The same append is still under way; ask again for its outcome."
                raise UnavailableError(message)
        try:
            found = self._found(attempt, records) if attempt.is_repeat else None
            placed = append() if found is None else found
            self._remember(attempt.name, placed)
            return placed
        finally:
            with self._lock:
                self._doing.pop(attempt.name).set()

    def _remember(self, name: RequestName, placed: AppendResult) -> None:
        if not len(placed.sizes):
            return
        with self._lock:
            self._done[name] = _Place(int(placed.physical_offsets[0]), len(placed.sizes))
            while len(self._done) > self._window:
                self._done.popitem(last=False)

    def _read(self, place: _Place) -> AppendResult:
        self._pool.writer.commit()
        with self._pool.broker() as broker:
            return read_append_result(broker.reader, place.physical_offset, place.records)

    def _found(self, attempt: AppendAttempt, records: Records) -> AppendResult | None:
        """Where an append lies that another server may have done; None if nobody did it."""
        if attempt.instance == self._pool.instance or not len(records):
            return None
        first = decode_record(records.data[: int(records.sizes[0])].data, verify=False)
        unique_key = first.property_map.get(UNIQ_KEY)
        if unique_key is None or not self._pool.settings.index_enabled:
            message = (
                "The connection broke while messages were appended, and whether they were can't "
                "be told: they have no unique keys, or the store has no index. Look for them "
                "before sending them again."
            )
            raise UnavailableError(message)
        with self._pool.broker() as broker:
            reader = broker.reader
            for place in reader.lookup(first.topic, unique_key, _CANDIDATES, is_complete=True):
                if _is_same(reader, place, first, unique_key):
                    return read_append_result(reader, place, len(records))
        return None


def read_append_result(reader: StoreReader, physical_offset: int, count: int) -> AppendResult:
    """Read where `count` records lie of which the first begins at `physical_offset`."""
    parts = []
    left = count
    for stretch in reader.log.walk(physical_offset):
        taken = min(left, len(stretch.starts))
        rows = slice(0, taken)
        frames = FrameBatch(
            buffer=stretch.buffer,
            starts=stretch.starts[rows],
            sizes=stretch.sizes[rows],
            offsets=np.zeros(taken, dtype=np.int64),
            name=str(stretch.segment.path),
        )
        parts.append(locate(frames))
        left -= taken
        if not left:
            break
    if left:
        message = f"{left} of {count} messages appended at {physical_offset} are gone."
        raise OffsetRangeError(message)

    def column(name: str) -> NDArray[np.int64]:
        return np.concatenate([part.integer(name) for part in parts]).astype(np.int64)

    return AppendResult(
        queue_ids=column("queueId").astype(np.int32),
        queue_offsets=column("queueOffset"),
        physical_offsets=column("physicalOffset"),
        sizes=column("size").astype(np.int32),
        store_timestamp_ms=int(parts[0].integer("storeTimestamp")[0]),
    )


def _is_same(reader: StoreReader, place: int, first: Record, unique_key: str) -> bool:
    """Whether the record at a place is the one that was sent."""
    try:
        record = reader.record_at(place)
    except (CorruptRecordError, OffsetRangeError):
        return False
    return (
        record.topic == first.topic
        and record.queue_id == first.queue_id
        and record.property_map.get(UNIQ_KEY) == unique_key
        and record.crc == first.crc
        and record.born_timestamp == first.born_timestamp
    )
