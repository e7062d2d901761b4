"""Our source in Spark: against the ceiling, against Spark's Kafka source, and by key."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from broker_core.codec.schema import DEFAULT_COLUMNS
from tests.bench.ceiling import CeilingSource
from tests.bench.data import BODY_BYTES, QUEUES, TOPIC, fill
from tests.bench.figure import (
    Figure,
    Seconds,
    Turn,
    rate_figure,
    take_turns,
    tell,
    time_figure,
)
from tests.bench.peers.kafka import KafkaBroker
from tests.bench.spark_session import batch_seconds, session, stream_seconds, trigger_seconds
from tests.kit.served import ServeCommand

COLUMN_SETS = {
    "": "topic,queueId,queueOffset,storeTimestamp,keys,body",
    ".default": ",".join(DEFAULT_COLUMNS),
    ".body": "body,queueOffset",
}
NAMES = (
    *(
        f"{figure}{suffix}"
        for figure in (
            "read.stream.embedded.vs_ceiling",
            "read.batch.embedded.vs_ceiling",
            "read.stream.embedded.vs_kafka",
            "read.stream.remote.vs_ceiling",
            "read.stream.remote.vs_kafka",
        )
        for suffix in COLUMN_SETS
    ),
    "query.key.vs_scan",
    "batch.overhead",
)
ROWS = 4_000_000
_STEPS = 15
_LOOKUPS = 100


def run(scratch: Path, names: frozenset[str]) -> Iterator[Figure]:
    """One store and one Kafka topic with the same bodies, read in turns."""
    kafka = any(".vs_kafka" in name for name in names)
    store = scratch / "spark-read"
    tell(f"spark: writing {ROWS:,} messages")
    fill(store, ROWS)
    with ExitStack() as stack:
        spark = stack.enter_context(session(scratch))
        spark.dataSource.register(CeilingSource)
        broker = stack.enter_context(KafkaBroker(scratch, partitions=QUEUES)) if kafka else None
        if broker:
            tell(f"kafka: writing {ROWS:,} messages")
            fill_kafka(spark, broker)
        is_served = any(".remote." in name for name in names)
        served = stack.enter_context(_served(store)) if is_served else ""
        bench = _Bench(spark, scratch, store, broker, served)
        for suffix, columns in COLUMN_SETS.items():
            yield from bench.stream(suffix, columns, names)
            yield from bench.batch(suffix, columns, names)
        if "query.key.vs_scan" in names:
            yield bench.by_key()
        if "batch.overhead" in names:
            yield bench.overhead()


def fill_kafka(spark: SparkSession, broker: KafkaBroker) -> None:
    """The same bodies and keys in Kafka."""
    numbers = spark.range(0, ROWS, 1, QUEUES)
    rows = numbers.selectExpr(
        "concat('order-', id) as key", f"lpad(cast(id as string), {BODY_BYTES}, 'x') as value"
    )
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", broker.address)
    writer.option("topic", TOPIC).save()


@contextmanager
def _served(store: Path) -> Iterator[str]:
    """The store behind gRPC, in a process of its own; its address."""
    serve = ServeCommand(store, "--listen", "127.0.0.1:0")
    try:
        yield serve.wait_ready()
    finally:
        serve.stop()


class _Bench:
    def __init__(
        self,
        spark: SparkSession,
        scratch: Path,
        store: Path,
        kafka: KafkaBroker | None,
        served: str,
    ) -> None:
        self._spark = spark
        self._scratch = scratch
        self._store = store
        self._kafka = kafka
        self._served = served

    def stream(self, suffix: str, columns: str, names: frozenset[str]) -> Iterator[Figure]:
        """A whole topic as one micro-batch."""
        asked = {
            (ours, peer): f"read.stream.{ours}.vs_{peer}{suffix}"
            for ours in ("embedded", "remote")
            for peer in ("ceiling", "kafka")
        }
        chosen = {pair: name for pair, name in asked.items() if name in names}
        ways: dict[str, Turn] = {
            "embedded": lambda: self._stream(self._ours("readStream", columns)),
            "remote": lambda: self._stream(self._ours("readStream", columns, broker=self._served)),
            "ceiling": lambda: self._stream(self._ceiling("readStream", columns)),
            "kafka": lambda: self._stream(self._kafka_stream()),
        }
        turns = {way: turn for way, turn in ways.items() if any(way in pair for pair in chosen)}
        if not turns:
            return
        tell(f"read.stream{suffix} ({columns})")
        times = take_turns(turns)
        for (ours, peer), name in chosen.items():
            yield rate_figure(name, ROWS, times[ours], times[peer], columns=columns)

    def batch(self, suffix: str, columns: str, names: frozenset[str]) -> Iterator[Figure]:
        """A whole topic as one batch."""
        name = f"read.batch.embedded.vs_ceiling{suffix}"
        if name not in names:
            return
        tell(f"read.batch{suffix} ({columns})")
        turns: dict[str, Turn] = {
            "ours": lambda: batch_seconds(self._ours("read", columns)),
            "ceiling": lambda: batch_seconds(self._ceiling("read", columns)),
        }
        times = take_turns(turns)
        yield rate_figure(name, ROWS, times["ours"], times["ceiling"], columns=columns)

    def by_key(self) -> Figure:
        """`where keys = …` by the index, against a scan of everything; both planned once.

        Planning takes the same tenth of a second for both, whatever the store holds. Lookups are so
        short that a turn takes many, about as long as a scan: else the JVM would get warm with
        the rows of scans, and be cold in all that is done once a query.
        """
        columns = COLUMN_SETS[".default"]
        asked = f"keys = 'order-{ROWS // 2}'"
        found = self._ours("read", columns, filterPushdown="true").where(asked)
        scanned = self._ours("read", columns).where(asked)
        turns: dict[str, Turn] = {
            "by key": lambda: median(_collect_seconds(found) for _ in range(_LOOKUPS)),
            "scan": lambda: _collect_seconds(scanned),
        }
        times = take_turns(turns)
        return rate_figure(
            "query.key.vs_scan", ROWS, times["by key"], times["scan"], columns=columns
        )

    def overhead(self) -> Figure:
        """Micro-batches of four messages that a filter drops, against batches of nothing."""
        start = {
            TOPIC: {"broker-a": {str(queue): ROWS // QUEUES - _STEPS for queue in range(QUEUES)}}
        }
        ours = self._ours(
            "readStream",
            COLUMN_SETS[""],
            startingOffsets=json.dumps(start),
            maxOffsetsPerTrigger=str(QUEUES),
            tags="nothing-has-this-tag",
        )
        reader = self._spark.readStream.format("ceiling").option("steps", str(_STEPS))
        reader = reader.option("store", str(self._store)).option("columns", COLUMN_SETS[""])
        turns: dict[str, Turn] = {
            "ours": lambda: trigger_seconds(ours, self._scratch, _STEPS),
            "empty": lambda: trigger_seconds(reader.load(), self._scratch, _STEPS),
        }
        times = take_turns(turns)
        return time_figure("batch.overhead", 0, times["ours"], times["empty"])

    def _stream(self, frame: DataFrame) -> Seconds:
        return stream_seconds(frame, self._scratch, ROWS)

    def _ours(self, how: str, columns: str, **options: str) -> DataFrame:
        reader = (
            getattr(self._spark, how).format("rocketmq").option("broker", f"file:{self._store}")
        )
        reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
        frame: DataFrame = reader.option("columns", columns).options(**options).load()
        return frame

    def _ceiling(self, how: str, columns: str) -> DataFrame:
        reader = getattr(self._spark, how).format("ceiling").option("store", str(self._store))
        frame: DataFrame = reader.option("columns", columns).option("rows", str(ROWS)).load()
        return frame

    def _kafka_stream(self) -> DataFrame:
        assert self._kafka is not None
        reader = self._spark.readStream.format("kafka").option("subscribe", TOPIC)
        reader = reader.option("kafka.bootstrap.servers", self._kafka.address)
        return reader.option("startingOffsets", "earliest").load()


def _collect_seconds(frame: DataFrame) -> Seconds:
    begin = time.perf_counter()
    assert len(frame.collect()) == 1
    return time.perf_counter() - begin
