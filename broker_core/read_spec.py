"""ReadSpec: the arguments of `Broker.read`, checked, and applied by every kind of broker alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from broker_core.codec.decode import decode
from broker_core.codec.schema import DEFAULT_COLUMNS, schema_of
from broker_core.filter.pipeline import MessageFilter
from broker_core.types import LogicalOffset, OffsetRange, QueueRef

if TYPE_CHECKING:
    from broker_core.codec.frames import FrameBatch


class ReadSpec(NamedTuple):
    """Columns and filter of a read; arguments are checked before any broker is asked."""

    columns: tuple[str, ...]
    schema: pa.Schema
    message_filter: MessageFilter | None

    @classmethod
    def of(cls, columns: Sequence[str] | None, tags: str | None, sql: str | None) -> ReadSpec:
        """Check the arguments of `read`; RequestError or FilterSyntaxError for a wrong one."""
        names = DEFAULT_COLUMNS if columns is None else tuple(columns)
        return cls(names, schema_of(names), MessageFilter.of(tags, sql))

    def table(self, frames: Iterable[FrameBatch], queue: QueueRef) -> pa.Table:
        """Return the messages of a queue as a table."""
        batches = [decode(batch, self.columns, queue.broker_name) for batch in frames]
        return pa.Table.from_batches(batches, schema=self.schema)


def range_between(
    queue: QueueRef, bounds: tuple[int, int], start: int | None, end: int | None
) -> OffsetRange:
    """Return a range of a queue; None means from the first message of `bounds`, to the last."""
    return OffsetRange(
        queue,
        LogicalOffset(bounds[0] if start is None else start),
        LogicalOffset(bounds[1] if end is None else end),
    )
