"""The ceiling: Python sources and sinks that do nothing but hand Arrow batches to and from Spark.

No Python source can be faster than the one here, which yields batches made beforehand. Its batches
have the schema, the values and the sizes of the store's own, because they are the store's own, read
once per worker process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from broker_core import open_broker
from broker_core.codec.decode import decode
from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.source.schema import spark_schema
from tests.bench.data import QUEUES, TOPIC

BATCH_ROWS = 100_000


@lru_cache(maxsize=8)
def ready_batch(store: str, columns: tuple[str, ...]) -> pa.RecordBatch:
    """The first batch of queue 0, decoded once."""
    with open_broker(f"file:{store}") as broker:
        queue = QueueRef(TOPIC, "broker-a", 0)
        wanted = OffsetRange(queue, LogicalOffset(0), LogicalOffset(BATCH_ROWS))
        (frames,) = broker.pull(wanted, batch_rows=BATCH_ROWS)
        return decode(frames, columns)


@dataclass
class Share(InputPartition):
    """How many rows one task yields."""

    rows: int


class CeilingSource(DataSource):
    """Options: `store`, `columns`, `rows`; a stream with `steps` has that many empty batches."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "ceiling"

    def schema(self) -> StructType:
        """The same as ours."""
        return spark_schema(self.options["columns"].split(","))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For batches."""
        return CeilingReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For streams."""
        options = dict(self.options)
        return EmptyStreamReader(options) if "steps" in options else CeilingStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A sink that discards."""
        return DiscardingWriter()


class _Yielding:
    def __init__(self, options: dict[str, str]) -> None:
        self._store = options["store"]
        self._columns = tuple(options["columns"].split(","))
        self._rows = int(options["rows"])

    def shares(self) -> Sequence[Share]:
        return [Share(self._rows // QUEUES) for _ in range(QUEUES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        batch = ready_batch(self._store, self._columns)
        for start in range(0, partition.rows, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.rows - start))


class CeilingReader(_Yielding, DataSourceReader):
    """Batch side."""

    def partitions(self) -> Sequence[InputPartition]:
        """One task a queue."""
        return self.shares()


class CeilingStreamReader(_Yielding, DataSourceStreamReader):
    """Stream side: everything in the first batch, nothing afterwards."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The beginning."""
        return {"rows": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end."""
        return {"rows": self._rows}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task a queue, if there is anything."""
        return self.shares() if end["rows"] > start["rows"] else []


class EmptyStreamReader(CeilingStreamReader, SupportsTriggerAvailableNow):
    """Batches with as many tasks as there are queues, and no rows."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({**options, "rows": "0"})
        self._steps = int(options["steps"])

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """The end is known anyway."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """One step further."""
        return {"rows": min(self._steps, start["rows"] + 1)}


class DiscardingWriter(DataSourceArrowWriter):
    """Takes Arrow batches and forgets them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Look at each batch once."""
        for _ in iterator:
            pass
        return WriterCommitMessage()
