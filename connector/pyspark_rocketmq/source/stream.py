"""Spark's stream reader: `spark.readStream.format("rocketmq")`.

It translates Spark's calls. On the driver every decision is made by `microbatch.py`; in a task
`read` goes to `partition_reader.py`.

Spark makes this object several times. One lives in a process of its own for a run of the query and
plans; others are pickled to read in tasks and never plan. Nothing set on the one is seen by the
others, so a task gets everything it needs from its partition and the options.

The constructor checks nothing: an error there would reach the user buried under a second one, so
options are parsed with the first call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_rocketmq.client_cache import open_client
from pyspark_rocketmq.options.options import SourceOptions
from pyspark_rocketmq.plan.offsets import SourceOffset
from pyspark_rocketmq.plan.rate_limit import TriggerLimits
from pyspark_rocketmq.source.microbatch import GroupProgress, MicroBatches
from pyspark_rocketmq.source.offset_reader import OffsetReader, SystemClock
from pyspark_rocketmq.source.partition import QueuePartition
from pyspark_rocketmq.source.partition_reader import read_partition
from pyspark_rocketmq.source.schema import check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream of micro-batches."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._texts = options
        self._schema = schema

    def __getstate__(self) -> dict[str, Any]:
        return {"_texts": self._texts, "_schema": self._schema}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which a query without a checkpoint starts."""
        return self._batches.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return a marker that there are limits; `latestOffset` takes the limits from the options.

        Spark has no limit that combines several, and hands "everything" to a Trigger.Once, which
        must therefore differ from the marker.
        """
        # Spark asks once, when a query starts and no batch runs yet: the time to open the broker.
        self._batches.get_ready()
        limits = self._options.limits
        if limits.max_messages is not None:
            return ReadMaxRows(limits.max_messages)
        if limits.min_messages is not None:
            return ReadMinRows(limits.min_messages)
        return ReadAllAvailable() if limits.max_bytes is None else ReadMaxBytes(limits.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which the next batch ends; `start` if there is nothing to run."""
        limits = TriggerLimits() if isinstance(limit, ReadAllAvailable) else self._options.limits
        return self._batches.advance(self._offset(start), limits).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the broker's end as `latestOffset` last saw it, for Spark's progress reports."""
        latest = self._batches.latest()
        return None if latest is None else latest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Make this run end at the messages that the broker holds now."""
        self._batches.prepare_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a batch."""
        planned = self._batches.plan(self._offset(start), self._offset(end))
        return [QueuePartition(each) for each in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a task."""
        assert isinstance(partition, QueuePartition)
        return read_partition(self._options, partition.value, self._options.message_filter)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the consumer group that a batch is done; Spark's own log has it already."""
        self._batches.commit(self._offset(end))

    def stop(self) -> None:
        """Close the broker. Spark kills the process more often than it calls this."""
        if "_batches" in self.__dict__:
            self._batches.close()

    def _offset(self, value: dict[str, Any]) -> SourceOffset:
        return SourceOffset.from_json(value, self._batches.queues)

    @cached_property
    def _options(self) -> SourceOptions:
        options = SourceOptions.parse(self._texts).for_stream()
        check_schema(self._schema, options.columns)
        return options

    @property
    def _progress(self) -> GroupProgress | None:
        client, group = self._options.client, self._options.consumer_group
        if not self._options.commit_offsets or group is None:
            return None
        return GroupProgress(lambda: open_client(client, "rw"), group)

    @cached_property
    def _batches(self) -> MicroBatches:
        options = self._options
        clock = SystemClock()
        offset_reader = OffsetReader(
            lambda: open_client(options.client), options.client.address, options.retry, clock
        )
        return MicroBatches(options, offset_reader, clock, self._progress)
