"""Spark's writers: `writeStream.format("rocketmq")` and `write.format("rocketmq")`.

They translate Spark's calls, and every call goes one step down:

- `write` runs in a task. `batch_identity.py` says which batch the task belongs to, `task.py` writes
  the rows, and the SinkMessage that it returns travels to the driver.
- `commit` and `abort` run on the driver, with the SinkMessages of all tasks: `commit.py`.

The writer that commits a streaming batch is another object, in another process, than the ones that
wrote it; the SinkMessages are all that passes between them. Constructors only parse and check:
Spark makes a writer several times per batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.taskcontext import TaskContext

from pyspark_rocketmq.options.options import SinkOptions
from pyspark_rocketmq.sink.batch_identity import (
    batch_identity,
    fresh_save_id,
    stream_identity,
)
from pyspark_rocketmq.sink.commit import abort, commit
from pyspark_rocketmq.sink.schema import sink_columns
from pyspark_rocketmq.sink.task import write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query; append and complete mode both append."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SinkOptions.parse(options)
        self._columns = sink_columns(schema, self._options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows: prepare them (exactly once) or send them (at least once)."""
        task = _task()
        identity = None
        if self._options.is_exactly_once:
            identity = stream_identity(self._options, task.getLocalProperty)
        return write_rows(self._options, self._columns, iterator, identity, task=task.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make a batch visible, once all of its tasks have ended well."""
        del batchId  # the receipts have it, together with the query's id
        commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Roll back: a task failed for good, or the commit raised."""
        del batchId
        abort(self._options, messages)


class RocketMQWriter(DataSourceArrowWriter):
    """Writes a DataFrame, all of it or nothing; inside `foreachBatch` exactly once."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SinkOptions.parse(options)
        self._columns = sink_columns(schema, self._options.topic)
        self._save_id = fresh_save_id()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows: prepare them (exactly once) or send them (at least once)."""
        task = _task()
        identity = None
        if self._options.is_exactly_once:
            identity = batch_identity(self._options, self._save_id, task.getLocalProperty)
        return write_rows(self._options, self._columns, iterator, identity, task=task.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows visible, once all tasks have ended well."""
        commit(self._options, messages, is_foreach=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Roll back: a task failed for good, or the commit raised."""
        abort(self._options, messages)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "write() runs in tasks only"
    return task
