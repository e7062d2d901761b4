"""The product's sink, in tasks whose two attempts meet when both have prepared their messages.

    python -m tests.kit.meeting_sink FOLDER

runs a pipeline's query, and then a save, on a Spark that starts speculative copies (two_hosts.py).
The task of partition 1 waits at the end of `write` until Spark has started a copy of it and that
has come as far. So both attempts live and have written everything. Then both go on, or only the
one that is to win, in which case the other one lives on until the batch is committed.

Attempts know of each other by files: FOLDER/meetings/BATCH/prepared-N holds what the receipt of
attempt number N says, met-N says that it saw the other.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from pyspark_rocketmq.data_source import RocketMQDataSource
from pyspark_rocketmq.sink.batch_identity import BATCH_ID
from pyspark_rocketmq.sink.task import SinkMessage
from pyspark_rocketmq.sink.writer import RocketMQStreamWriter, RocketMQWriter
from tests.kit.pipelines import TIMEOUT_S, Pipeline
from tests.kit.two_hosts import two_hosts

NAME = "rocketmq-meeting"
SLOW_PARTITION = 1
ATTEMPTS = (0, 1)
WINNERS: dict[str, int | None] = {"0": 0, "1": 1, "2": None, "save": None}
"""Which attempt may go on first, by batch; None lets Spark decide."""
SAVED = [f"saved-{number}" for number in range(8)]
PATIENCE_S = 240


def meet(meetings: Path, message: WriterCommitMessage) -> None:
    """Wait for the other attempt at this task, and then for one's turn."""
    task = TaskContext.get()
    assert task is not None
    assert isinstance(message, SinkMessage)
    assert message.receipt is not None
    if task.partitionId() != SLOW_PARTITION:
        return
    batch = task.getLocalProperty(BATCH_ID) or "save"
    folder, number = meetings / batch, task.attemptNumber()
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"new-{number}"
    fresh.write_text(message.receipt.attempt)
    fresh.rename(folder / f"prepared-{number}")
    wait_for(lambda: all((folder / f"prepared-{other}").exists() for other in ATTEMPTS))
    (folder / f"met-{number}").touch()
    if WINNERS[batch] in (None, number):
        return
    wait_for((folder / "committed").exists)


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, but not forever."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "nobody came"
        time.sleep(0.01)


class MeetingStreamWriter(RocketMQStreamWriter):
    """The product's writer of a stream, whose attempts meet."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._meetings = Path(options["meetings"])
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        meet(self._meetings, message)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        super().commit(messages, batchId)
        (self._meetings / str(batchId) / "committed").touch()


class MeetingWriter(RocketMQWriter):
    """The product's writer of a save, whose attempts meet."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._meetings = Path(options["meetings"])
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        meet(self._meetings, message)
        return message


class MeetingSource(RocketMQDataSource):
    """The product's sink, with the other writers."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> MeetingStreamWriter:  # noqa: N802 - Spark's name
        del overwrite
        return MeetingStreamWriter(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> MeetingWriter:
        del overwrite
        return MeetingWriter(self.options, schema)


def main(arguments: list[str]) -> None:
    """Run the pipeline's query over all of its input, then save a few rows."""
    folder = Path(arguments[0])
    pipeline = Pipeline(folder)
    options = {"broker": pipeline.address, "topic": "out", "meetings": str(folder / "meetings")}
    with two_hosts(folder) as spark:
        spark.dataSource.register(MeetingSource)
        query = (
            pipeline.frame(spark)
            .writeStream.format(NAME)
            .options(**options, checkpointLocation=str(pipeline.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S), "the query hangs"
        body = functions.concat(functions.lit("saved-"), functions.col("id").cast("string"))
        rows = spark.range(0, len(SAVED), 1, len(ATTEMPTS)).select(body.alias("body"))
        rows.write.format(NAME).options(**options).mode("append").save()


if __name__ == "__main__":
    main(sys.argv[1:])
