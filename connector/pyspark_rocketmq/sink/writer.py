"""Spark's writers: translate between Spark's calls and the sink's.

The writer that commits a streaming batch is another object, in another process, than the ones that
wrote it; what a task returns is all that passes between them. Constructors only parse and check:
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

from broker_core.codec.legal_names import check_group
from broker_core.errors import InvalidNameError
from pyspark_rocketmq.errors import option_errors, sink_errors
from pyspark_rocketmq.options import names
from pyspark_rocketmq.options.options import SinkOptions
from pyspark_rocketmq.sink.commit import abort, commit
from pyspark_rocketmq.sink.identity import (
    batch_identity,
    fresh_save_id,
    stream_identity,
)
from pyspark_rocketmq.sink.schema import sink_columns
from pyspark_rocketmq.sink.task import write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"
_CLUSTER = "rocketmq:"
_WHY_NOT = (
    "a RocketMQ cluster commits a transaction again whenever it is asked to, so a replayed batch "
    "can't be refused."
)


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write, checked for what no write can do."""
    parsed = SinkOptions.parse(options)
    if parsed.delivery == EXACTLY_ONCE and _is_cluster(parsed):
        raise sink_errors.exactly_once_unsupported(parsed.client.address, _WHY_NOT)
    if parsed.producer_group is not None:
        try:
            check_group(parsed.producer_group)
        except InvalidNameError as error:
            raise option_errors.invalid(
                names.PRODUCER_GROUP, parsed.producer_group, str(error), "my-producer"
            ) from error
    return parsed


def is_exactly_once(options: SinkOptions) -> bool:
    """What was asked for, or else what the broker can do."""
    if options.delivery is None:
        return not _is_cluster(options)
    return options.delivery == EXACTLY_ONCE


def _is_cluster(options: SinkOptions) -> bool:
    return options.client.address.lower().startswith(_CLUSTER)


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query; append and complete mode both append."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_sink_options(options)
        self._columns = sink_columns(schema, self._options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepare, or send, a task's rows."""
        task = _task()
        identity = None
        if is_exactly_once(self._options):
            identity = stream_identity(self._options, task.getLocalProperty)
        return write_rows(self._options, self._columns, iterator, identity, task=task.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """All tasks of a batch have ended well."""
        del batchId  # the receipts say it, together with the query's id
        commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """A task failed for good, or the commit raised."""
        del batchId
        abort(self._options, messages)


class RocketMQWriter(DataSourceArrowWriter):
    """Writes a DataFrame, all of it or nothing; inside `foreachBatch` exactly once."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_sink_options(options)
        self._columns = sink_columns(schema, self._options.topic)
        self._save_id = fresh_save_id()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepare, or send, a task's rows."""
        task = _task()
        identity = None
        if is_exactly_once(self._options):
            identity = batch_identity(self._options, self._save_id, task.getLocalProperty)
        return write_rows(self._options, self._columns, iterator, identity, task=task.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have ended well."""
        commit(self._options, messages, is_foreach=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good, or the commit raised."""
        abort(self._options, messages)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "write() runs in tasks only"
    return task
