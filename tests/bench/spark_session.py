"""The Spark session of benchmarks, and how a query's time is taken."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.bench.figure import Seconds
from tests.bench.peers.kafka import connector_jars
from tests.kit.paths import PYTHONPATH

_jars: list[str] = []


def load_kafka() -> None:
    """Let all sessions have Spark's Kafka connector; one JVM serves them, and loads jars once."""
    _jars[:] = connector_jars()


@contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    """Spark on two threads."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = PYTHONPATH
    builder: SparkSession.Builder = SparkSession.builder  # a property that mypy takes for a call
    builder = (
        builder.master("local[2]")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "spark"))
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 4)
        .config("spark.sql.python.filterPushdown.enabled", True)
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
    )
    if _jars:
        builder = builder.config("spark.jars", ",".join(_jars))
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def stream_seconds(frame: DataFrame, scratch: Path, rows: int) -> Seconds:
    """Run a stream over what is there now, to nowhere; the time of its triggers."""
    checkpoint = scratch / f"checkpoint-{uuid.uuid4()}"
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    done = [each for each in query.recentProgress if each.numInputRows]
    found = sum(each.numInputRows for each in done)
    shutil.rmtree(checkpoint)
    assert found == rows, f"read {found} rows, not {rows}"
    return sum(each.durationMs["triggerExecution"] for each in done) / 1000


def trigger_seconds(frame: DataFrame, scratch: Path, steps: int) -> Seconds:
    """Run a stream of `steps` batches; the median time of one trigger."""
    checkpoint = scratch / f"checkpoint-{uuid.uuid4()}"
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    shutil.rmtree(checkpoint)
    done = [each.durationMs for each in query.recentProgress if "addBatch" in each.durationMs]
    assert len(done) == steps, f"{len(done)} batches ran, not {steps}"
    return statistics.median(each["triggerExecution"] for each in done) / 1000


def batch_seconds(frame: DataFrame) -> Seconds:
    """Run a batch to nowhere; its wall time."""
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin
