"""Streaming queries of the source, run on a real Spark, with what each batch delivered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

TIMEOUT_S = 100
COLUMNS = "topic,queueId,queueOffset,body"


class Delivered:
    """The rows of every batch. A batch that runs again replaces what it delivered before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = frame.collect()

    @property
    def rows(self) -> list[Row]:
        """All rows, batch by batch."""
        return [row for batch_id in sorted(self.batches) for row in self.batches[batch_id]]

    @property
    def bodies(self) -> list[str]:
        """All bodies as text, sorted: each message exactly once means exactly this list."""
        return sorted(bytes(row["body"]).decode() for row in self.rows)

    @property
    def sizes(self) -> list[int]:
        """Rows per batch, in order."""
        return [len(self.batches[batch_id]) for batch_id in sorted(self.batches)]


def stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """The source as a stream, with a few columns unless others are asked for."""
    return spark.readStream.format("rocketmq").options(**{"columns": COLUMNS, **options}).load()


def start(
    frame: DataFrame, checkpoint: Path, delivered: Delivered, **trigger: Any
) -> StreamingQuery:
    """A query that collects its batches."""
    writer = frame.writeStream.foreachBatch(delivered)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def run_available(
    spark: SparkSession,
    options: dict[str, str],
    checkpoint: Path,
    delivered: Delivered | None = None,
) -> Delivered:
    """Run everything that is there now, to the end; the query's error if it fails."""
    delivered = Delivered() if delivered is None else delivered
    query = start(stream(spark, options), checkpoint, delivered, availableNow=True)
    finish(query)
    return delivered


def finish(query: StreamingQuery) -> None:
    """Wait for a query that ends by itself; raises its error."""
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"
    finally:
        query.stop()


@contextmanager
def running(
    spark: SparkSession, options: dict[str, str], checkpoint: Path, delivered: Delivered
) -> Iterator[StreamingQuery]:
    """A query that runs until the block ends."""
    query = start(stream(spark, options), checkpoint, delivered)
    try:
        query.processAllAvailable()
        yield query
    finally:
        query.stop()


def logged_offset(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """The source's offset in an entry of the offset log."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    offset: dict[str, Any] = json.loads(lines[-1])
    return offset


def logged_batches(checkpoint: Path, log: str = "offsets") -> list[int]:
    """The batch ids in a log of the checkpoint."""
    return sorted(int(entry.name) for entry in (checkpoint / log).iterdir() if entry.name.isdigit())


def forget_commit(checkpoint: Path, batch_id: int) -> None:
    """Leave the checkpoint as a driver does that dies before a batch is in the commit log."""
    (checkpoint / "commits" / str(batch_id)).unlink()
    (checkpoint / "commits" / f".{batch_id}.crc").unlink(missing_ok=True)
