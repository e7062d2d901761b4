"""A Spark driver that runs a query over a store and is killed at one step of one batch.

    python -m tests.kit.killed_driver STORE CHECKPOINT OUTPUT STEP BATCH

Steps, in the order of a micro-batch: `initial` (asked for the first offset), `latest` (asked for
the next end, nothing logged yet), `commit` (the batch is in the offset log, the one before is
reported to the source), `plan`, `task`, `write` (before the output of the batch is there),
`written` (it is there, but the batch is not in the commit log). The kill is SIGKILL, to the driver
and its JVM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from pyspark_rocketmq.data_source import RocketMQDataSource
from pyspark_rocketmq.source.stream import RocketMQStreamReader
from tests.kit.paths import PYTHONPATH

STEPS = ("initial", "latest", "commit", "plan", "task", "write", "written")


def kill_if(step: str, batch_id: int) -> None:
    """End the driver without a word, if this is the step and the batch."""
    if [step, str(batch_id)] != os.environ["KILL_AT"].split():
        return
    for pid in json.loads(Path(os.environ["KILL_PIDS"]).read_text()):
        os.kill(pid, signal.SIGKILL)
    time.sleep(60)  # nobody must see what comes after


class KilledReader(RocketMQStreamReader):
    """The product's reader, counting batches from the start of this run."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._planned = 0

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        kill_if("initial", self._planned)
        return super().initialOffset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        kill_if("latest", self._planned)
        return super().latestOffset(start, limit)

    def commit(self, end: dict[str, Any]) -> None:
        kill_if("commit", self._planned)
        super().commit(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        kill_if("plan", self._planned)
        self._planned += 1
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        kill_if("task", int(task.getLocalProperty("streaming.sql.batchId") or -1))
        return super().read(partition)


class KilledSource(RocketMQDataSource):
    """The product's source with the other reader."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-killed"

    def streamReader(self, schema: StructType) -> KilledReader:  # noqa: N802 - Spark's name
        return KilledReader(dict(self.options), schema)


def write_batch(output: Path, frame: DataFrame, batch_id: int) -> None:
    """Put a batch's bodies into a file of its own, whole or not at all."""
    kill_if("write", batch_id)
    bodies = [bytes(row["body"]).decode() for row in frame.collect()]
    part = output / f".{batch_id}"
    part.write_text(json.dumps(bodies))
    part.rename(output / str(batch_id))
    kill_if("written", batch_id)


def written(output: Path) -> list[str]:
    """All bodies that are in files, sorted."""
    files = [file for file in output.iterdir() if file.name.isdigit()]
    return sorted(body for file in files for body in json.loads(file.read_text()))


def run(spark: SparkSession, source: str, options: dict[str, str], places: list[Path]) -> None:
    """Run the query over everything that is there now."""
    checkpoint, output = places
    query = (
        spark.readStream.format(source)
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda frame, batch_id: write_batch(output, frame, batch_id))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(arguments: list[str]) -> None:
    """Run until killed; exits with 0 if nothing killed it."""
    options, checkpoint, output, step, batch_id = arguments
    pids = Path(output) / "pids"
    os.environ |= {
        "KILL_AT": f"{step} {batch_id}",
        "KILL_PIDS": str(pids),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": PYTHONPATH,
    }
    builder: SparkSession.Builder = SparkSession.builder
    spark = (
        builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.local.dir", str(Path(output) / "local"))
        .config("spark.sql.warehouse.dir", str(Path(output) / "warehouse"))
        .getOrCreate()
    )
    jvm: Any = spark.sparkContext._jvm
    pids.write_text(json.dumps([jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]))
    spark.dataSource.register(KilledSource)
    run(spark, "rocketmq-killed", json.loads(options), [Path(checkpoint), Path(output)])


if __name__ == "__main__":
    main(sys.argv[1:])
