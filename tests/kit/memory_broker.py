"""A broker in memory, for tests of planning and reading: real records, no files.

It offers what the Spark source needs of the Broker protocol, and ways to make it misbehave: expire
messages, shorten queues, fail the next calls. It is not one of the product's brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa

from broker_core.codec.encode import encode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from broker_core.errors import (
    BrokerError,
    CorruptRecordError,
    OffsetRangeError,
    TopicNotFoundError,
)
from broker_core.filter.pipeline import MessageFilter, Pipeline
from broker_core.types import LogicalOffset, OffsetRange, QueueRef

BROKER_NAME = "broker-a"


@dataclass
class MemoryQueue:
    """Records of one queue; `minimum` moves when messages expire."""

    records: list[bytes] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    minimum: int = 0


class MemoryBroker:
    """Topics in a dict."""

    def __init__(self) -> None:
        self.address = "memory:"
        self.queues: dict[QueueRef, MemoryQueue] = {}
        self.groups: dict[tuple[str, QueueRef], LogicalOffset] = {}
        self.failures: list[BrokerError] = []
        self.calls: list[str] = []
        self.expire_while_reading: dict[QueueRef, int] = {}
        self.damaged: set[tuple[QueueRef, int]] = set()

    def close(self) -> None:
        self.calls.append("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Making it so

    def create_topic(self, topic: str, queues: int = 4, broker_name: str = BROKER_NAME) -> None:
        for number in range(queues):
            self.queues.setdefault(QueueRef(topic, broker_name, number), MemoryQueue())

    def delete_topic(self, topic: str) -> None:
        for queue in [known for known in self.queues if known.topic == topic]:
            del self.queues[queue]

    def put(
        self,
        queue: QueueRef,
        *bodies: bytes,
        time_ms: int = 0,
        tags: str | None = None,
        **properties: str,
    ) -> None:
        """Append messages to a queue that exists."""
        held = self.queues[queue]
        pairs: list[tuple[str, Any]] = [("TAGS", tags), *properties.items()]
        outgoing = MessageBatch(
            topics=[queue.topic],
            topic_codes=np.zeros(len(bodies), dtype=np.int32),
            queue_ids=np.full(len(bodies), queue.queue_id, dtype=np.int32),
            bodies=pa.array(bodies, type=pa.binary()),
            properties=join_properties(pairs, len(bodies)),
        )
        encoded = encode(outgoing)
        first = len(held.records)
        numbers = np.arange(first, first + len(bodies), dtype=np.int64)
        encoded.patch(numbers, numbers * 1000, time_ms)
        for start, size in zip(encoded.starts.tolist(), encoded.sizes.tolist(), strict=True):
            held.records.append(encoded.buffer[start : start + size].tobytes())
            held.times_ms.append(time_ms)

    def expire(self, queue: QueueRef, minimum: int) -> None:
        self.queues[queue].minimum = minimum

    def cut(self, queue: QueueRef, maximum: int) -> None:
        del self.queues[queue].records[maximum:]

    # The protocol

    def topics(self) -> list[str]:
        self._call("topics")
        return sorted({queue.topic for queue in self.queues})

    def offsets(self, topic: str) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        self._call("offsets")
        found = {
            queue: (LogicalOffset(held.minimum), LogicalOffset(len(held.records)))
            for queue, held in self.queues.items()
            if queue.topic == topic
        }
        if not found:
            message = f"Topic '{topic}' does not exist."
            raise TopicNotFoundError(message)
        return found

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, *, broker_name: str | None = None
    ) -> LogicalOffset:
        self._call("offset_at")
        held = self.queues[QueueRef(topic, broker_name or BROKER_NAME, queue_id)]
        late = [n for n, time_ms in enumerate(held.times_ms) if time_ms >= timestamp_ms]
        return LogicalOffset(max(min(late, default=len(held.records)), held.minimum))

    def consumer_offsets(self, group: str, topic: str) -> dict[QueueRef, LogicalOffset]:
        return {
            queue: offset
            for (name, queue), offset in self.groups.items()
            if name == group and queue.topic == topic
        }

    def commit_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        broker_name: str | None = None,
    ) -> None:
        self._call("commit_offset")
        queue = QueueRef(topic, broker_name or BROKER_NAME, queue_id)
        self.groups[group, queue] = LogicalOffset(offset)

    def pull(
        self,
        wanted: OffsetRange,
        *,
        message_filter: MessageFilter | None = None,
        batch_rows: int = 100_000,
        batch_bytes: int = 64 << 20,
        verify: bool | None = None,
    ) -> Iterator[FrameBatch]:
        del verify
        self._call("pull")
        start = int(wanted.start)
        while start < wanted.end:
            frames = self._batch(wanted, start, batch_rows, batch_bytes)
            start = frames.next_offset
            yield Pipeline(message_filter).select_frames(frames) if message_filter else frames
            if wanted.queue in self.expire_while_reading:
                self.expire(wanted.queue, self.expire_while_reading.pop(wanted.queue))

    def _batch(
        self, wanted: OffsetRange, start: int, batch_rows: int, batch_bytes: int
    ) -> FrameBatch:
        held = self.queues.get(wanted.queue)
        if held is None:
            message = f"Queue {wanted.queue} does not exist."
            raise TopicNotFoundError(message)
        if start < held.minimum or wanted.end > len(held.records):
            message = f"Queue {wanted.queue} does not hold {start} to {wanted.end}."
            raise OffsetRangeError(message, held.minimum, len(held.records))
        for offset in range(start, min(start + batch_rows, wanted.end)):
            if (wanted.queue, offset) in self.damaged:
                message = f"Entry {offset} of queue {wanted.queue} is damaged."
                raise CorruptRecordError(message)
        records = held.records[start : min(start + batch_rows, wanted.end)]
        sizes = np.array([len(record) for record in records], dtype=np.int32)
        fitting = max(1, int((sizes.cumsum(dtype=np.int64) <= batch_bytes).sum()))
        sizes = sizes[:fitting]
        starts = np.concatenate([[0], sizes.cumsum(dtype=np.int64)[:-1]]).astype(np.int64)
        return FrameBatch(
            buffer=np.frombuffer(b"".join(records[:fitting]), dtype=np.uint8),
            starts=starts,
            sizes=sizes,
            offsets=np.arange(start, start + fitting, dtype=np.int64),
            queue=wanted.queue,
            next_offset=start + fitting,
            name="memory",
        )

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.failures:
            raise self.failures.pop(0)
