"""What travels to a task: a few plain numbers, pickled per partition and batch.

A bound of None is open: the task finds out what the queue's earliest or latest message is when it
reads, so that a DataFrame that is used twice sees the messages of each time.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition

from broker_core.types import OffsetRange, QueueRef
from pyspark_rocketmq.plan.bounded import QueueRange
from pyspark_rocketmq.plan.pushdown import Lookup


class QueuePartition(InputPartition):
    """A piece of one queue."""

    def __init__(self, *piece: Any) -> None:
        super().__init__(piece)

    @classmethod
    def of_range(cls, planned: OffsetRange) -> QueuePartition:
        """A range with both ends known."""
        return cls.of_piece(QueueRange(planned.queue, planned.start, planned.end))

    @classmethod
    def of_piece(cls, piece: QueueRange) -> QueuePartition:
        """A piece whose ends may be open."""
        queue = piece.queue
        return cls(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            piece.start,
            piece.end,
            piece.low,
            piece.high,
        )

    @property
    def piece(self) -> QueueRange:
        """The piece to read."""
        topic, broker_name, queue_id, *numbers = self.value
        return QueueRange(QueueRef(topic, broker_name, queue_id), *numbers)


class LookupPartition(InputPartition):
    """The messages of one topic that the index finds, as far as they lie in some pieces."""

    def __init__(self, topic: str, lookup: Lookup, pieces: tuple[QueueRange, ...]) -> None:
        super().__init__(topic)
        self.topic = topic
        self.lookup = lookup
        self.pieces = pieces
