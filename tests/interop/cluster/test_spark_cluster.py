"""A streaming query over a cluster whose master dies and comes back: nothing lost or doubled."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from broker_core.clients.cluster.send.plan import ANY_WRITE_QUEUE
from tests.interop.cluster.masters import TOPIC, batch, two_masters
from tests.interop.cluster.opening import await_count
from tests.kit.paths import PYTHONPATH

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FIRST = 20_000
LATER = 1_000


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    builder = SparkSession.builder.master("local[2]")
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def test_streaming_query_outlives_its_brokers(
    apache: None, spark: SparkSession, tmp_path: Path
) -> None:
    with two_masters(tmp_path) as cluster, cluster.open() as ours:
        ours.create_topic(TOPIC, 4)
        ours.append(batch(np.arange(FIRST, dtype=np.int32) % 4, "first"))
        await_count(ours, TOPIC, FIRST)
        stream = (
            spark.readStream.format("rocketmq")
            .option("broker", cluster.address)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", FIRST // 4)
            .load()
            .writeStream.format("memory")
            .queryName("received")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        _await_rows(spark, FIRST // 4)

        # In the middle of it one master and one name server die; the other master goes on.
        cluster.masters["broker-b"].kill()
        cluster.name_servers[0].kill()
        ours.append(batch(np.full(LATER, ANY_WRITE_QUEUE, dtype=np.int32), "meanwhile"))
        restart = threading.Thread(target=cluster.start, args=("broker-b",))
        restart.start()
        ours.append(batch(np.full(LATER, 3, dtype=np.int32), "after"))
        restart.join()

        # Queues that come later are read from their beginning.
        ours.add_queues(TOPIC, 6)
        ours.append(batch(np.arange(LATER, dtype=np.int32) % 6, "grown"))
        await_count(ours, TOPIC, FIRST + 3 * LATER)
        stream.processAllAvailable()
        stream.stop()
        places = "count(*)", "count(distinct brokerName, queueId, queueOffset)"
        (counts,) = spark.table("received").selectExpr(*places, "count(distinct msgId)").collect()

    assert tuple(counts) == (FIRST + 3 * LATER,) * 3


def _await_rows(spark: SparkSession, count: int) -> None:
    """Look until the query has delivered so many rows; the test's own time limit is the end."""
    while spark.table("received").count() < count:
        threading.Event().wait(0.1)
