"""A task's share of a read, as it is pickled to the executor: one per task and batch.

`stream.py` and `batch.py` make partitions on the driver; `partition_reader.py` reads a
QueuePartition and `lookup.py` a LookupPartition, each in a task. A partition is plain data of
about 200 bytes: it holds neither connection nor options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from broker_core.types import OffsetRange
    from pyspark_rocketmq.plan.bounded import QueueRange
    from pyspark_rocketmq.plan.pushdown import Lookup


class QueuePartition(InputPartition):
    """A range of one queue.

    A micro-batch has an OffsetRange: Spark's offset log fixes both ends. A batch read has a
    QueueRange: its ends may stay open until the task reads.
    """

    value: OffsetRange | QueueRange


class LookupPartition(InputPartition):
    """The messages of one topic that the index finds, as far as they lie in `ranges`."""

    def __init__(self, topic: str, lookup: Lookup, ranges: tuple[QueueRange, ...]) -> None:
        super().__init__(topic)
        self.topic = topic
        self.lookup = lookup
        self.ranges = ranges
