"""A few records on their way into the log, as plain Python values: no arrays, no dataclasses.

For one message, NumPy and its like cost more than all the rest of an append (log_first.py). What is
known here is what an append needs; queue entries and index keys are read out of the log later.

Next in an append: log_first.py, or batch.py if the records must go the way of many.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.codec import layout
from broker_core.codec.encode import EncodedRecords
from broker_core.codec.message_batch import Destinations
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.codec.message import SingleMessage
    from broker_core.store.log_first import Placed
    from broker_core.store.queue.writer import QueueKey

MOST_RECORDS = 64
"""Beyond, columns are as quick."""
MOST_BYTES = 256 << 10

_OFFSETS = struct.Struct(">qq")  # QUEUEOFFSET, PHYSICALOFFSET
_TIME = struct.Struct(">q")
_SPACE = 0x20


class FewRecords:
    """Encoded records, each with a queue entry; offsets and store time are filled in when placed.

    `queues` has each record's queue. `keys` is not less than the number of their index keys.
    """

    __slots__ = ("_store_time_at", "data", "keys", "queues", "sizes")

    def __init__(
        self,
        data: bytearray | memoryview,
        sizes: list[int],
        queues: list[QueueKey],
        keys: int,
        store_time_at: int = layout.STORE_TIMESTAMP,
    ) -> None:
        self.data = data
        self.sizes = sizes
        self.queues = queues
        self.keys = keys
        self._store_time_at = store_time_at

    @classmethod
    def of_one(cls, message: SingleMessage) -> FewRecords:
        """Return one message's record."""
        topic, queue_id, encoded = message
        data = bytearray(encoded)
        return cls(data, [len(data)], [(topic, queue_id)], most_keys(1, data.count(_SPACE)))

    @classmethod
    def of(cls, batch: Batch) -> FewRecords | None:
        """Return a batch's records, which share its bytes; None if it must go the way of many."""
        if not 0 < len(batch) <= MOST_RECORDS or len(batch.parts) != 1:
            return None
        part, route = batch.parts[0], batch.route
        records = part.records
        sizes = records.sizes.tolist()
        is_plain = (
            len(records.buffer) == sum(sizes) <= MOST_BYTES
            and isinstance(records.store_timestamp_at, int)
            and not part.has_checksums
            and bool(batch.in_queue.all())
        )
        if not is_plain:
            return None
        names = [route.topics[code] for code in route.topic_codes.tolist()]
        queues = list(zip(names, route.queue_ids.tolist(), strict=True))
        keys = most_keys(len(sizes), int(np.count_nonzero(records.buffer == _SPACE)))
        return cls(records.buffer.data, sizes, queues, keys)

    def __len__(self) -> int:
        return len(self.sizes)

    def place(self, queue_offsets: Sequence[int], physical_offset: int, store_ms: int) -> None:
        """Fill in where the records will lie: the first at a physical offset, the others behind."""
        data, at = self.data, 0
        for size, queue_offset in zip(self.sizes, queue_offsets, strict=True):
            _OFFSETS.pack_into(data, at + layout.QUEUE_OFFSET, queue_offset, physical_offset + at)
            _TIME.pack_into(data, at + self._store_time_at, store_ms)
            at += size

    def places(self, placed: Placed) -> FewPlaces:
        """Return where each record lies, of what an append the quick way returned."""
        queue_offsets, at, store_ms = placed
        physical_offsets = list(accumulate(self.sizes[:-1], initial=at))
        queue_ids = [queue_id for _, queue_id in self.queues]
        return FewPlaces(queue_ids, queue_offsets, physical_offsets, self.sizes, store_ms)

    def as_batch(self) -> Batch:
        """Return the records as a batch, which shares their bytes."""
        sizes = np.array(self.sizes, dtype=np.int32)
        starts = np.cumsum(sizes, dtype=np.int64) - sizes
        buffer = np.frombuffer(self.data, dtype=np.uint8)
        topics = list(dict.fromkeys(topic for topic, _ in self.queues))
        codes = {topic: code for code, topic in enumerate(topics)}
        route = Destinations(
            topics,
            np.array([codes[topic] for topic, _ in self.queues], dtype=np.int32),
            np.array([queue_id for _, queue_id in self.queues], dtype=np.int32),
        )
        return Batch.of_copies(EncodedRecords(buffer, starts, sizes, self._store_time_at), route)


class FewPlaces(NamedTuple):
    """Where a few records lie, as plain values: the twin of types.AppendResult."""

    queue_ids: list[int]
    queue_offsets: list[int]
    physical_offsets: list[int]
    sizes: list[int]
    store_timestamp_ms: int

    def slice(self, start: int, stop: int) -> FewPlaces:
        """Return the places of records [start, stop)."""
        return FewPlaces(
            self.queue_ids[start:stop],
            self.queue_offsets[start:stop],
            self.physical_offsets[start:stop],
            self.sizes[start:stop],
            self.store_timestamp_ms,
        )


def most_keys(count: int, spaces: int) -> int:
    """Return a number not less than that of the index keys of `count` records with so many spaces.

    Each has a unique key, a tag, and one key more than there are spaces in KEYS.
    """
    return 3 * count + spaces
