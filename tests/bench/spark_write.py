"""Our sink in Spark: against Spark's Kafka sink, and against one that discards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from broker_core import open_broker
from tests.bench.ceiling import CeilingSource
from tests.bench.data import BODY_BYTES, QUEUES, TOPIC
from tests.bench.figure import (
    Figure,
    Seconds,
    Turn,
    rate_figure,
    take_turns,
    tell,
    touch_memory,
)
from tests.bench.peers.kafka import KafkaBroker
from tests.bench.spark_session import session

PEERS = {
    "write.exactly_once.vs_kafka": ("exactly-once", "kafka"),
    "write.at_least_once.vs_kafka": ("at-least-once", "kafka"),
    "write.vs_ceiling": ("at-least-once", "discarding"),
    "write.ceiling.vs_kafka": ("discarding", "kafka"),
    "write.exactly_once.vs_kafka.untuned": ("exactly-once, untuned", "kafka"),
    "write.at_least_once.vs_kafka.untuned": ("at-least-once, untuned", "kafka"),
}
TUNED = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}
"""What docs/operations.md advises for small messages. It is no matter to Kafka's sink."""
NAMES = tuple(PEERS)
ROWS = 1_000_000
_EVERYTHING = 1 << 62
WRITES = 7
"""Rounds that count: a write takes a second, and each meets memory and disk in another state."""
WRITE_TRIES = 3
"""So short a turn is measured by what other machines do while it lasts, if they do anything."""


def run(scratch: Path, names: frozenset[str]) -> Iterator[Figure]:
    """The same cached rows, written in turns."""
    kafka = any(name.endswith(".vs_kafka") for name in names)
    with ExitStack() as stack:
        spark = stack.enter_context(session(scratch))
        spark.dataSource.register(CeilingSource)
        broker = stack.enter_context(KafkaBroker(scratch, partitions=QUEUES)) if kafka else None
        rows = cached_rows(spark)
        turns: dict[str, Turn] = {}
        for delivery in ("exactly-once", "at-least-once"):
            store = new_store(scratch / f"write-{delivery}")
            save = partial(save_and_delete, rows, store, delivery)
            turns[delivery] = tuned(spark, save)
            if any(name.endswith(".untuned") for name in names):
                turns[f"{delivery}, untuned"] = save
        turns["discarding"] = tuned(spark, lambda: _seconds(lambda: _discard(rows)))
        if broker:
            turns["kafka"] = lambda: _seconds(lambda: _to_kafka(rows, broker))
        tell("write")
        times = take_turns(turns, WRITES, before=lambda: touch_memory(scratch), tries=WRITE_TRIES)
    for name, (ours, peer) in PEERS.items():
        if name in names:
            yield rate_figure(name, ROWS, times[ours], times[peer], columns="keys,body")


def tuned(spark: SparkSession, turn: Turn) -> Turn:
    """The same turn with Spark set up for it."""

    def within_settings() -> Seconds:
        for name, value in TUNED.items():
            spark.conf.set(name, value)
        try:
            return turn()
        finally:
            for name in TUNED:
                spark.conf.unset(name)

    return within_settings


def cached_rows(spark: SparkSession) -> DataFrame:
    """Rows in memory, in four partitions, so that making them costs nothing."""
    numbers = spark.range(0, ROWS, 1, QUEUES)
    rows = numbers.selectExpr(
        "concat('order-', id) as keys", f"lpad(cast(id as string), {BODY_BYTES}, 'x') as body"
    ).cache()
    assert rows.count() == ROWS
    return rows


def new_store(store: Path) -> str:
    """Make a store with an empty topic; its address."""
    address = f"file:{store}"
    with open_broker(address, mode="rw", create=True) as broker:
        broker.create_topic(TOPIC, queues=QUEUES)
    return address


def save_and_delete(rows: DataFrame, address: str, delivery: str) -> Seconds:
    """Write all rows; afterwards delete what is full, before the system begins to write it out.

    A topic stays for all rounds, as Kafka's does: who writes to it has it open by then. A few more
    rows let the writers close what is deleted, so that the next turn does not pay for freeing it.
    """
    try:
        return save_seconds(rows, address, delivery)
    finally:
        with open_broker(address, mode="rw") as broker:
            broker.delete_before(_EVERYTHING)
        few = rows.sparkSession.range(0, 2 * QUEUES, 1, QUEUES)
        _writer(few.selectExpr("'k' as keys", "'b' as body"), address, delivery).save()


def save_seconds(rows: DataFrame, address: str, delivery: str) -> Seconds:
    """Write all rows to the topic; the time it took. All of them are there then, once."""
    before = _held(address)
    seconds = _seconds(_writer(rows, address, delivery).save)
    assert _held(address) == before + ROWS
    return seconds


def _writer(rows: DataFrame, address: str, delivery: str) -> DataFrameWriter:
    writer = rows.write.format("rocketmq").mode("append").option("broker", address)
    return writer.option("topic", TOPIC).option("delivery", delivery)


def _held(address: str) -> int:
    with open_broker(address) as broker:
        return sum(last for _, last in broker.offsets(TOPIC).values())


def _discard(rows: DataFrame) -> None:
    writer = rows.write.format("ceiling").mode("append")
    writer.option("columns", "body").option("store", "").option("rows", "0").save()


def _to_kafka(rows: DataFrame, broker: KafkaBroker) -> None:
    named = rows.withColumnsRenamed({"keys": "key", "body": "value"})
    writer = named.write.format("kafka").option("kafka.bootstrap.servers", broker.address)
    writer.option("topic", TOPIC).save()


def _seconds(work: Callable[[], object]) -> Seconds:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
