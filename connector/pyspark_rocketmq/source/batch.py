"""Spark's batch reader: `spark.read.format("rocketmq")`.

On the driver, `partitions` plans ranges of queues once per DataFrame, with the functions of
`plan/`: starting_offsets, pushdown, bounded. In a task, `read` goes to `partition_reader.py`, or to
`lookup.py` where the index can answer.

With `filterPushdown` the reader takes filters from Spark. It is a class of its own, because Spark
refuses any reader that could take filters while Spark's own switch is off.
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
        """Plan the tasks, once per DataFrame; open ends are resolved in the task."""
        client = self._options.client
        # The cached broker serves this process's next query too; only a failed one is dropped.
        offset_reader = OffsetReader(
            lambda: client_cache.cached_reader(client),
            client.address,
            self._options.retry,
            SystemClock(),
            let_go=lambda _: client_cache.forget(client),
        )
        return self._plan(offset_reader)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a task; Spark plans one empty task for a read without queues."""
        if isinstance(partition, LookupPartition):
            return read_lookup(self._options, partition, self._filter())
        if isinstance(partition, QueuePartition):
            return read_partition(self._options, partition.value, self._filter())
        return iter(())

    def _plan(self, offset_reader: OffsetReader) -> list[InputPartition]:
        options = self._options
        assert options.starting is not None, "options were not prepared for a batch"
        assert options.ending is not None, "options were not prepared for a batch"
        bounds = offset_reader.bounds(options.subscription)
        starts = late_bound_start(
            options.starting,
            bounds,
            offset_reader.answers(options.starting, bounds.keys()),
            late_is_latest=options.late_is_latest,
        )
        ends = late_bound_end(
            options.ending, bounds, offset_reader.answers(options.ending, bounds.keys())
        )
        ranges = plan_queue_ranges(starts, ends, bounds, self._pushed)
        ranges = narrow_by_time(ranges, self._pushed, bounds, offset_reader)
        if self._pushed.lookup is not None:
            return self._lookups(ranges)
        parts = split_queue_ranges(
            ranges,
            bounds,
            min_tasks=options.min_partitions,
            max_messages=options.max_records_per_partition,
        )
        return [QueuePartition(part) for part in parts]

    def _lookups(self, ranges: list[QueueRange]) -> list[InputPartition]:
        assert self._pushed.lookup is not None
        topics = sorted({each.queue.topic for each in ranges})
        return [
            LookupPartition(
                topic,
                self._pushed.lookup,
                tuple(each for each in ranges if each.queue.topic == topic),
            )
            for topic in topics
        ]

    def _filter(self) -> MessageFilter | None:
        """Return the query's own filter, or the tags that it and Spark's predicates leave."""
        own, tags = self._options.message_filter, self._pushed.tag_filter
        return own if tags is None else MessageFilter(tags=tags)


class RocketMQPushdownReader(RocketMQReader):
    """Reads a bounded part of topics, and takes filters from Spark."""

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
        return [each for index, each in enumerate(filters) if index not in self._pushed.taken]


def as_predicate(pushed: Filter) -> Predicate:
    """Return the planner's form of a filter of Spark's."""
    inner: Any = pushed.child if isinstance(pushed, Not) else pushed
    value = getattr(inner, "value", None)
    is_negated = isinstance(pushed, Not)
    return Predicate(".".join(inner.attribute), type(inner).__name__, value, is_negated)


def narrow_by_time(
    ranges: list[QueueRange],
    pushed: Pushed,
    bounds: dict[QueueRef, Bounds],
    offset_reader: OffsetReader,
) -> list[QueueRange]:
    """Shrink ranges to the offsets that the store times of the predicates allow."""

    def at(timestamp_ms: int | None) -> dict[QueueRef, LogicalOffset]:
        if timestamp_ms is None:
            return {}
        return offset_reader.offsets_at(
            dict.fromkeys((each.queue for each in ranges), timestamp_ms)
        )

    lows, highs = at(pushed.from_ms), at(pushed.until_ms)
    # An answer at the end of the queue means that no message is that young yet: leave the range
    # open to messages that arrive before the task reads.
    open_ends = {queue for queue, high in highs.items() if high >= bounds[queue].latest}
    return [
        narrow(
            each,
            lows.get(each.queue),
            None if each.queue in open_ends else highs.get(each.queue),
        )
        for each in ranges
    ]
