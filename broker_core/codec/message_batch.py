"""MessageBatch: messages to append, as columns; Destinations: topic and queue of each.

Every write of more than one message is such a batch: rows of Spark's sink, messages that a producer
collects, decisions and op messages of transactions. encode.py makes commit-log records of it,
message.py makes a batch of one message. There is no object per message on this path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from broker_core.codec import layout
from broker_core.codec.properties.join import PropertyParts

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_Item = TypeVar("_Item", np.int32, np.int64)

LOOPBACK = bytes((127, 0, 0, 1, 0, 0, 0, 0))
"""127.0.0.1, port 0, in the form of a record's host fields."""


@dataclass(frozen=True)
class Destinations:
    """Topic and queue of each of many records: topics[topic_codes[i]], queue queue_ids[i]."""

    topics: Sequence[str]
    topic_codes: NDArray[np.int32]
    queue_ids: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.queue_ids)

    @classmethod
    def to_queue(cls, topic: str, queue_id: int, count: int) -> Destinations:
        """Return one queue as the destination of `count` records."""
        first = np.zeros(count, dtype=np.int32)
        return cls((topic,), first, first + np.int32(queue_id))


@dataclass(frozen=True)
class MessageBatch:
    """Messages to append; row i of every column is message i.

    `bodies` are stored as they are: the caller has compressed them if `sys_flags` says so.
    `properties` are texts, or the parts that texts are joined from. Message i goes to
    topics[topic_codes[i]], queue queue_ids[i]. An integer column may be one number for all rows.
    """

    topics: Sequence[str]
    topic_codes: NDArray[np.int32]
    queue_ids: NDArray[np.int32]
    bodies: pa.Array
    properties: pa.Array | PropertyParts
    born_timestamps: NDArray[np.int64] | int = 0
    sys_flags: NDArray[np.int32] | int = 0
    flags: NDArray[np.int32] | int = 0
    reconsume_times: NDArray[np.int32] | int = 0
    prepared_offsets: NDArray[np.int64] | int = 0
    born_host: bytes = LOOPBACK
    store_host: bytes = LOOPBACK

    def __len__(self) -> int:
        return len(self.queue_ids)

    @property
    def destinations(self) -> Destinations:
        """Topic and queue of each message."""
        return Destinations(self.topics, self.topic_codes, self.queue_ids)

    @cached_property
    def property_texts(self) -> pa.Array:
        """The properties as joined texts."""
        return self.property_parts.joined()

    @cached_property
    def property_parts(self) -> PropertyParts:
        """The parts that the properties texts are joined from."""
        return PropertyParts.of(self.properties)

    @property
    def size_bytes(self) -> int:
        """An upper estimate of the encoded batch in bytes, without looking at any row."""
        data = int(self.bodies.nbytes) + int(self.properties.nbytes)
        return data + len(self) * (layout.MIN_RECORD_BYTES + layout.MAX_TOPIC_V1)

    def slice(self, start: int, stop: int) -> MessageBatch:
        """Return messages [start, stop), over the same buffers."""

        def cut(column: NDArray[_Item] | int) -> NDArray[_Item] | int:
            return column if isinstance(column, int) else column[start:stop]

        return replace(
            self,
            topic_codes=self.topic_codes[start:stop],
            queue_ids=self.queue_ids[start:stop],
            bodies=self.bodies.slice(start, stop - start),
            properties=self.properties.slice(start, stop - start),
            born_timestamps=cut(self.born_timestamps),
            sys_flags=cut(self.sys_flags),
            flags=cut(self.flags),
            reconsume_times=cut(self.reconsume_times),
            prepared_offsets=cut(self.prepared_offsets),
        )

    def parts(self, max_bytes: int) -> Iterator[MessageBatch]:
        """Yield the batch in slices of about `max_bytes` encoded bytes each, in order."""
        # Equal numbers of rows: cutting by bytes would need the size of every record.
        slices = max(1, -(-self.size_bytes // max_bytes))
        step = max(1, -(-len(self) // slices))
        for start in range(0, len(self), step):
            yield self.slice(start, min(start + step, len(self)))
