"""Spark's batch reader: plans pieces of queues once, reads them in tasks.

With `filterPushdown` the reader takes filters from Spark. It is a class of its own, because Spark
refuses any reader that could take filters while its own switch is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition, Not

from broker_core.filter.pipeline import MessageFilter
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.plan.bounded import QueueRange, narrow, plan_queue_ranges, split_queue_ranges
from pyspark_rocketmq.plan.offsets import Bounds
from pyspark_rocketmq.plan.pushdown import Predicate, Pushed, classify
from pyspark_rocketmq.plan.starting_offsets import late_bound_end, late_bound_start
from pyspark_rocketmq.source.lookup import read_lookup
from pyspark_rocketmq.source.offset_reader import OffsetReader, SystemClock
from pyspark_rocketmq.source.partition import LookupPartition, QueuePartition
from pyspark_rocketmq.source.partition_reader import read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.types import LogicalOffset, QueueRef
    from pyspark_rocketmq.options.options import SourceOptions


class RocketMQReader(DataSourceReader):
    """Reads a bounded part of topics."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """The tasks, planned once per DataFrame; open ends are resolved in the task."""
        client = self._options.client
        # Kept by this process for the next query, unless it fails.
        queues = OffsetReader(
            lambda: client_cache.cached_reader(client),
            client.address,
            self._options.retry,
            SystemClock(),
            let_go=lambda _: client_cache.forget(client),
        )
        return self._plan(queues)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a task; a read without any queue has one task with nothing in it."""
        if isinstance(partition, LookupPartition):
            return read_lookup(self._options, partition, self._filter())
        if isinstance(partition, QueuePartition):
            return read_partition(self._options, partition.piece, self._filter())
        return iter(())

    def _plan(self, queues: OffsetReader) -> list[InputPartition]:
        options = self._options
        assert options.starting is not None, "options were not prepared for a batch"
        assert options.ending is not None, "options were not prepared for a batch"
        bounds = queues.bounds(options.subscription)
        starts = late_bound_start(
            options.starting,
            bounds,
            queues.answers(options.starting, bounds.keys()),
            late_is_latest=options.late_is_latest,
        )
        ends = late_bound_end(options.ending, bounds, queues.answers(options.ending, bounds.keys()))
        pieces = plan_queue_ranges(starts, ends, bounds, self._pushed)
        pieces = narrow_by_time(pieces, self._pushed, bounds, queues)
        if self._pushed.lookup is not None:
            return self._lookups(pieces)
        cut = split_queue_ranges(
            pieces,
            bounds,
            min_tasks=options.min_partitions,
            max_messages=options.max_records_per_partition,
        )
        return [QueuePartition.of_piece(piece) for piece in cut]

    def _lookups(self, pieces: list[QueueRange]) -> list[InputPartition]:
        assert self._pushed.lookup is not None
        topics = sorted({piece.queue.topic for piece in pieces})
        return [
            LookupPartition(
                topic,
                self._pushed.lookup,
                tuple(piece for piece in pieces if piece.queue.topic == topic),
            )
            for topic in topics
        ]

    def _filter(self) -> MessageFilter | None:
        """The query's own filter, or what Spark's predicates on tags left of it."""
        own, tags = self._options.message_filter, self._pushed.tag_filter
        return own if tags is None else MessageFilter(tags=tags)


class RocketMQPushdownReader(RocketMQReader):
    """The same, taking filters from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what can be answered here, and give back what Spark must evaluate."""
        own = self._options.message_filter
        self._pushed = classify(
            [as_predicate(each) for each in filters],
            has_filter=own is not None and own.sql is not None,
            has_index=self._options.client.has_index and own is None,
        )
        if own is not None and own.tags is not None and self._pushed.tags is not None:
            both = self._pushed.tags & frozenset(own.tags.tags or ())
            self._pushed = replace(self._pushed, tags=both)
        return [each for place, each in enumerate(filters) if place not in self._pushed.taken]


def as_predicate(given: Filter) -> Predicate:
    """Spark's filter in the planner's words."""
    inner: Any = given.child if isinstance(given, Not) else given
    value = getattr(inner, "value", None)
    return Predicate(".".join(inner.attribute), type(inner).__name__, value, isinstance(given, Not))


def narrow_by_time(
    pieces: list[QueueRange], pushed: Pushed, bounds: dict[QueueRef, Bounds], queues: OffsetReader
) -> list[QueueRange]:
    """Shrink pieces to the offsets that store times allow."""

    def at(timestamp_ms: int | None) -> dict[QueueRef, LogicalOffset]:
        if timestamp_ms is None:
            return {}
        return queues.offsets_at(dict.fromkeys((piece.queue for piece in pieces), timestamp_ms))

    lows, highs = at(pushed.from_ms), at(pushed.until_ms)
    # An answer at the end of the queue means that nothing is that young yet: stay open to what
    # arrives before the task reads.
    open_ends = {queue for queue, high in highs.items() if high >= bounds[queue].latest}
    return [
        narrow(
            piece,
            lows.get(piece.queue),
            None if piece.queue in open_ends else highs.get(piece.queue),
        )
        for piece in pieces
    ]
