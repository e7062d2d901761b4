"""A pipeline from topic to topic on one store, as tests of the sink run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from broker_core import open_broker
from broker_core.store.check.store import check
from broker_core.store.settings import StoreSettings
from tests.contract.conftest import AnyBroker
from tests.kit.dying_sink import NAME, Control, DyingSource
from tests.kit.paths import PYTHONPATH, ROOT
from tests.kit.pending import abandoned, pending_records
from tests.kit.transactions import SMALL_FILES, open_store, visible

TIMEOUT_S = 240
PER_BATCH = 8


class Pipeline:
    """Topic `in`, upper-cased, to topic `out`; one checkpoint; a sink that can be made to die."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self._address = folder / "address"
        self.checkpoint = folder / "checkpoint"
        self.control = Control(folder / "control")
        self.sent: list[str] = []
        self.fed_pending: list[int] = []

    @property
    def address(self) -> str:
        """Where its broker is; in a file, for drivers in processes of their own."""
        return self._address.read_text() if self._address.exists() else str(self.store)

    def move_to(self, address: str) -> None:
        """Go on with the same store behind gRPC, where it is served by now."""
        self._address.write_text(address)

    def move_back(self) -> None:
        """Go on with the store itself, which is no longer served."""
        self._address.unlink()

    def open(self) -> AnyBroker:
        """The broker, open for writing."""
        if self._address.exists():
            return cast("AnyBroker", open_broker(self.address, mode="rw"))
        return open_store(self.store)

    def create(self) -> None:
        with self.open() as broker:
            broker.create_topic("in", queues=2)
            broker.create_topic("out", queues=2)

    def feed(self, count: int = PER_BATCH) -> None:
        """Send more messages; they are named by their numbers.

        To a store itself they are sent by a writer that is not closed: what Spark plans, reads and
        writes behind is pending.
        """
        with self.open() if self._address.exists() else abandoned(open_store(self.store)) as broker:
            for _ in range(count):
                body = f"message-{len(self.sent):04d}"
                broker.send("in", body.encode())
                self.sent.append(body.upper())
        if not self._address.exists():
            self.fed_pending.append(pending_records(self.store))

    def frame(self, spark: SparkSession) -> DataFrame:
        stream = (
            spark.readStream.format("rocketmq")
            .option("broker", self.address)
            .option("subscribe", "in")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", PER_BATCH)
            .load()
        )
        body = functions.upper(functions.decode("body", "utf-8"))
        return stream.select(body.alias("body"))

    def start(self, spark: SparkSession, **options: str) -> StreamingQuery:
        """Run over everything that is there now."""
        spark.dataSource.register(DyingSource)
        return (
            self.frame(spark)
            .writeStream.format(NAME)
            .option("broker", self.address)
            .option("topic", "out")
            .option("control", str(self.control.folder))
            .option("run", self.control.begin_run())
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )

    def run(self, spark: SparkSession, **options: str) -> StreamingQueryException | None:
        """The same, to the end; the query's error if it failed."""
        query = self.start(spark, **options)
        try:
            assert query.awaitTermination(TIMEOUT_S), "the query hangs"
        except StreamingQueryException as error:
            return error
        return None

    def written(self) -> list[str]:
        """What a consumer of the output sees."""
        with self.open() as broker:
            return sorted(body.decode() for body in visible(broker, "out"))

    def require_nothing_twice_or_strange(self) -> None:
        """What must hold at any time, whoever died just now."""
        counts = Counter(self.written())
        assert not [body for body, count in counts.items() if count > 1], "written twice"
        assert set(counts) <= set(self.sent)

    def require_all_once(self) -> None:
        """What must hold at the end."""
        assert self.written() == sorted(self.sent)
        # Only the first messages, and those that begin a file, are dispatched at once.
        assert any(self.fed_pending) or not self.fed_pending or len(self.sent) < PER_BATCH
        with self.open() as broker:
            report = broker.transactions.check_back()
        assert report.waiting == 0
        assert check(self.store, StoreSettings.load(SMALL_FILES)) == []


def driver(folder: Path, master: str = "local[2]") -> subprocess.Popen[str]:
    """Run a pipeline's query in a driver of its own; `communicate` waits for its end."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.kit.pipelines", str(folder), master],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main(arguments: list[str]) -> None:
    """Run a pipeline's query to its end, or until the sink kills the driver."""
    folder, master = arguments
    pipeline = Pipeline(Path(folder))
    builder: SparkSession.Builder = SparkSession.builder
    spark = (
        builder.master(master)
        .config("spark.ui.enabled", False)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(Path(folder) / "local"))
        .config("spark.sql.warehouse.dir", str(Path(folder) / "warehouse"))
        .getOrCreate()
    )
    jvm: Any = spark.sparkContext._jvm
    pipeline.control.driver_is(jvm.java.lang.ProcessHandle.current().pid(), os.getpid())
    error = pipeline.run(spark)
    spark.stop()
    if error is not None:
        raise error


if __name__ == "__main__":
    main(sys.argv[1:])
