"""Lag: how far a query is behind, in the Kafka source's three numbers, from Spark's progress.

Spark has no hook through which a Python source could add numbers to its progress, but the progress
has the offsets. A queue that the query has not read yet counts from 0.

    from pyspark_rocketmq import LagListener
    spark.streams.addListener(LagListener(print))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.errors import CheckpointError
from pyspark_rocketmq.plan.offsets import SourceOffset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
    )


@dataclass(frozen=True)
class Lag:
    """Messages between what a query has read and what the broker has, over the queues it reads."""

    query: str
    batch_id: int
    minimum: int
    maximum: int
    average: float
    total: int

    @property
    def metrics(self) -> dict[str, str]:
        """The numbers under the names that the Kafka source reports."""
        return {
            "minOffsetsBehindLatest": str(self.minimum),
            "maxOffsetsBehindLatest": str(self.maximum),
            "avgOffsetsBehindLatest": str(self.average),
        }

    def __str__(self) -> str:
        return (
            f"query={self.query} batch={self.batch_id} behind={self.total} min={self.minimum} "
            f"max={self.maximum} avg={self.average:.1f}"
        )


def behind(
    latest: Mapping[QueueRef, LogicalOffset], consumed: Mapping[QueueRef, LogicalOffset]
) -> list[int]:
    """Return the number of unread messages per queue, for every queue that the broker has."""
    return [latest[queue] - consumed.get(queue, 0) for queue in sorted(latest)]


def lag_of(query: str, batch_id: int, source: SourceProgress) -> Lag | None:
    """Return the lag of one source of a query; None if it is not ours or has no offset yet."""
    try:
        latest = SourceOffset.from_json(source.latestOffset)
        consumed = SourceOffset.from_json(source.endOffset)
    except CheckpointError:
        return None
    counts = behind(latest, consumed)
    if not counts:
        return None
    total = sum(counts)
    return Lag(query, batch_id, min(counts), max(counts), total / len(counts), total)


class LagListener(StreamingQueryListener):
    """Hands the lag to `export` after every batch: `print`, a gauge, a list."""

    def __init__(self, export: Callable[[Lag], object]) -> None:
        self._export = export

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no offset is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Export the lag of every source of ours."""
        progress = event.progress
        query = progress.name or str(progress.id)
        for source in progress.sources:
            lag = lag_of(query, progress.batchId, source)
            if lag is not None:
                self._export(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the lag is unchanged."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the listener holds no resource of a query."""
