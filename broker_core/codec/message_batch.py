"""MessageBatch: messages to append, as columns.

The unit of every write of more than one message: Spark's sink, producers and the broker's own
copies all hand over columns. encode.py makes records of them; message.py makes a batch of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from broker_core.codec import layout
from broker_core.codec.properties.columns import PropertyParts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Item = TypeVar("_Item", "np.int32", "np.int64")

LOOPBACK = bytes((127, 0, 0, 1, 0, 0, 0, 0))
"""127.0.0.1 and port 0, as records store a host."""


@dataclass(frozen=True)
class MessageBatch:
    """Messages to append; row i of every column is message i.

    `bodies` and `properties` are in their stored form (compressed, joined text or what it is joined
    from). Integer columns may be one number for all. `queue_ids` are chosen by the caller.
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

    @cached_property
    def property_texts(self) -> pa.Array:
        """The properties, joined."""
        return self.property_parts.joined()

    @cached_property
    def property_parts(self) -> PropertyParts:
        """What the properties are joined from."""
        return PropertyParts.of(self.properties)

    @property
    def size_bytes(self) -> int:
        """About how many bytes the encoded batch will take."""
        data = int(self.bodies.nbytes) + int(self.properties.nbytes)
        return data + len(self) * (layout.MIN_RECORD_BYTES + layout.MAX_TOPIC_V1)

    def slice(self, start: int, stop: int) -> MessageBatch:
        """Messages start..stop."""

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
        """The batch in pieces of about `max_bytes` encoded bytes each, in order."""
        pieces = max(1, -(-self.size_bytes // max_bytes))
        step = max(1, -(-len(self) // pieces))
        for start in range(0, len(self), step):
            yield self.slice(start, min(start + step, len(self)))
