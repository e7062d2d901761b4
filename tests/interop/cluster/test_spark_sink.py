"""Many messages through Spark's sink to a real broker, counted by the official client.

SINK_MESSAGES in the environment says how many; a million unless it is set.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from broker_core.clients.cluster.cluster import ClusterBroker
from tests.interop.cluster.opening import await_count, opened
from tests.interop.cluster.test_spark_cluster import spark as spark  # noqa: PLC0414 - a fixture
from tests.interop.kit.peers import java_tool
from tests.interop.kit.servers import Broker, NameServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(1800)]

MESSAGES = int(os.environ.get("SINK_MESSAGES", "1000000"))
QUEUES = 8
TEXT = "a body of some length that is the same for all of them, but for its number"


class Counted(NamedTuple):
    """What the official client found."""

    messages: int
    different: int
    lowest: int
    highest: int
    strange: int


def count(name_server: NameServer, topic: str) -> Counted:
    source = Path(__file__).with_name("CountAll.java")
    told = java_tool(source, name_server.address, topic, TEXT, timeout_s=900)
    return Counted(*map(int, told.split()))


def save(spark: SparkSession, name_server: NameServer, topic: str) -> None:
    rows = spark.range(0, MESSAGES, 1, 8).selectExpr(
        f"concat(id, ' {TEXT}') as body", "concat('k-', id) as keys"
    )
    writer = rows.write.format("rocketmq").option("broker", f"rocketmq://{name_server.address}")
    writer.option("topic", topic).option("delivery", "at-least-once").mode("append").save()


def test_every_message_arrives_once(
    name_server: NameServer, spark: SparkSession, tmp_path: Path
) -> None:
    with (
        Broker(tmp_path / "store", name_server, tmp_path),
        opened(name_server.address) as ours,
    ):
        ours.create_topic("Sunk", QUEUES)

        save(spark, name_server, "Sunk")

        await_count(ours, "Sunk", MESSAGES)
        counted = count(name_server, "Sunk")

    print(f"\n{counted}")
    assert counted == Counted(MESSAGES, MESSAGES, 0, MESSAGES - 1, 0)


def test_no_message_is_lost_when_the_broker_is_killed_and_started_again(
    name_server: NameServer, spark: SparkSession, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    first = Broker(store, name_server, tmp_path)

    def replaced(ours: ClusterBroker) -> tuple[Broker, int]:
        """Kill the broker in the middle and start it again; how far it was then."""
        await_count(ours, "Sunk", MESSAGES // 4)
        held = sum(high for _, high in ours.offsets("Sunk").values())
        first.kill()
        return Broker(store, name_server, tmp_path), held

    # Spark finds a Python data source by its name only in the thread that made the session.
    with opened(name_server.address) as ours, ThreadPoolExecutor(1) as threads:
        ours.create_topic("Sunk", QUEUES)
        replacing = threads.submit(replaced, ours)
        try:
            save(spark, name_server, "Sunk")
            counted = count(name_server, "Sunk")
        finally:
            second, held = replacing.result()
            second.kill()

    print(f"\n{counted}, {counted.messages - counted.different} of them twice")
    assert held < MESSAGES, "it was written before the broker could be killed; write more"
    assert counted.different == MESSAGES
    assert (counted.lowest, counted.highest, counted.strange) == (0, MESSAGES - 1, 0)
