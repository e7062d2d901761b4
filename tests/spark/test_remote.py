"""The source and the sink on `grpc://`: the same code as on `file:`, also when the broker dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker_core import open_broker
from broker_core.api import Broker
from broker_core.service.main import BrokerProcess
from tests.kit.queries import (
    Delivered,
    finish,
    forget_commit,
    run_available,
    running,
    stream,
)
from tests.kit.served import ServeCommand, served


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with served(tmp_path / "store") as process:
        yield process


@pytest.fixture
def broker(process: BrokerProcess) -> Iterator[Broker]:
    with open_broker(process.address, mode="rw") as opened:
        yield opened


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def fill(broker: Broker, topic: str, numbers: range) -> list[str]:
    """One message per number, round two queues, tags A and B in turn; the bodies."""
    for number in numbers:
        broker.send(
            topic,
            f"{topic}-{number:03d}".encode(),
            queue_id=number % 2,
            tags="AB"[number % 2],
            keys=[f"k{number}"],
            properties={"n": str(number)},
        )
    return [f"{topic}-{number:03d}" for number in numbers]


def load(spark: SparkSession, address: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(broker=address, **options).load()


def bodies_of(frame: DataFrame) -> list[str]:
    return [bytes(row["body"]).decode() for row in frame.select("body").collect()]


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, process: BrokerProcess, broker: Broker, checkpoint: Path
) -> None:
    broker.create_topic("t", queues=2)
    options = {"broker": process.address, "subscribe": "t", "startingOffsets": "earliest"}
    early = fill(broker, "t", range(20))

    first = run_available(spark, options, checkpoint)
    late = fill(broker, "t", range(20, 30))
    second = run_available(spark, options, checkpoint)

    assert first.bodies == early
    assert second.bodies == late


@pytest.mark.parametrize(
    "options",
    [{}, {"tags": "B"}, {"sql": "n >= 7 AND TAGS = 'A'"}, {"includeProperties": "true"}],
    ids=["all", "tags", "sql", "properties"],
)
def test_the_address_is_all_that_changes(
    spark: SparkSession,
    process: BrokerProcess,
    broker: Broker,
    tmp_path: Path,
    options: dict[str, str],
) -> None:
    broker.create_topic("t", queues=2)
    fill(broker, "t", range(40))

    remote = load(spark, process.address, subscribe="t", **options)
    embedded = load(spark, f"file:{tmp_path / 'store'}", subscribe="t", **options)

    assert remote.schema == embedded.schema
    assert rows(remote.drop("properties")) == rows(embedded.drop("properties"))


def test_a_topic_is_copied_exactly_once(
    spark: SparkSession, process: BrokerProcess, broker: Broker, checkpoint: Path
) -> None:
    broker.create_topic("in", queues=2)
    broker.create_topic("out", queues=2)
    bodies = fill(broker, "in", range(50))
    options = {"broker": process.address, "subscribe": "in", "startingOffsets": "earliest"}

    for _ in range(2):
        query = (
            stream(spark, options)
            .select("body")
            .writeStream.format("rocketmq")
            .options(broker=process.address, topic="out")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        finish(query)
        forget_commit(checkpoint, 0)  # as if the driver had died before it noted the batch

    assert sorted(bodies_of(load(spark, process.address, subscribe="out"))) == bodies


def test_a_save_with_an_id_is_done_once(
    spark: SparkSession, process: BrokerProcess, broker: Broker
) -> None:
    broker.create_topic("out", queues=2)
    frame = spark.range(0, 30, 1, 2).selectExpr("cast(id as string) as body")

    for _ in range(2):
        writer = frame.write.format("rocketmq").option("broker", process.address)
        writer.options(topic="out", txnId="load-7", flush="sync").mode("append").save()

    saved = bodies_of(load(spark, process.address, subscribe="out"))
    assert sorted(saved, key=int) == [str(number) for number in range(30)]


def test_a_query_outlives_its_broker(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    store = tmp_path / "store"
    first = ServeCommand(store, "--create", "--listen", "127.0.0.1:0")
    address = first.wait_ready()
    port = address.rpartition(":")[2]
    delivered = Delivered()
    options = {"broker": address, "subscribe": "t", "startingOffsets": "earliest"}
    with open_broker(address, mode="rw") as broker:
        broker.create_topic("t", queues=2)
        bodies = fill(broker, "t", range(10))

        with running(spark, options, checkpoint, delivered) as query:
            first.kill()
            second = ServeCommand(store, "--listen", f"127.0.0.1:{port}")
            second.wait_ready()
            bodies += fill(broker, "t", range(10, 20))
            query.processAllAvailable()

    assert delivered.bodies == bodies
    assert second.stop() == 0
