"""Counts in windows behind a watermark, duplicates dropped, topic to topic, killed on the way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from broker_core.store.io.files import Failpoint
from tests.kit.dying_sink import Deed
from tests.kit.pipelines import TIMEOUT_S, Pipeline

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3 * TIMEOUT_S)]

WINDOW_S = 60
START_S = 1_700_000_040  # the beginning of a minute
KILLS = [
    Deed("write", Failpoint.MARKED_CLEAN),
    Deed("commit", Failpoint.LOG_WRITTEN),
    Deed("commit", "end"),
]


class Counts(Pipeline):
    """Visits (user, second, id) counted by user and minute; each id counts once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.visits: list[tuple[str, int, int]] = []

    def visit(self, minute: int, count: int) -> None:
        """Send visits within a minute, each of them twice."""
        with self.open() as broker:
            for number in range(count):
                visit = (
                    f"user{number % 3}",
                    START_S + WINDOW_S * minute + number,
                    len(self.visits),
                )
                self.visits.append(visit)
                for _ in range(2):
                    broker.send("in", "|".join(map(str, visit)).encode())

    def frame(self, spark: SparkSession) -> DataFrame:
        stream = (
            spark.readStream.format("rocketmq")
            .option("broker", self.address)
            .option("subscribe", "in")
            .option("startingOffsets", "earliest")
            .load()
        )
        part = functions.split(functions.decode("body", "utf-8"), r"\|")
        visits = stream.select(
            part[0].alias("user"),
            functions.timestamp_seconds(part[1].cast("long")).alias("time"),
            part[2].alias("id"),
        )
        counts = (
            visits.withWatermark("time", "10 seconds")
            .dropDuplicatesWithinWatermark(["id"])
            .groupBy(functions.window("time", f"{WINDOW_S} seconds"), "user")
            .count()
        )
        start = functions.unix_timestamp("window.start")
        return counts.select(functions.concat_ws("|", start, "user", "count").alias("body"))

    def require_all_once(self) -> None:
        """Every count of every minute that is over, once."""
        over = max(second for _, second, _ in self.visits) - 10
        counts = Counter(
            (START_S + (second - START_S) // WINDOW_S * WINDOW_S, user)
            for user, second, _ in self.visits
        )
        self.sent = [
            f"{start}|{user}|{count}"
            for (start, user), count in counts.items()
            if start + WINDOW_S <= over
        ]
        super().require_all_once()


@pytest.mark.embedded
def test_counts_are_written_once_though_the_query_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    counts = Counts(tmp_path)
    counts.create()
    for minute, deed in enumerate(KILLS):
        counts.visit(2 * minute, 12)
        counts.visit(2 * minute + 1, 20)  # late enough to end the minute before
        counts.control.arm(deed)
        assert counts.run(spark) is not None, f"the query survived {deed}"
        assert counts.control.is_done
    counts.visit(2 * len(KILLS) + 1, 20)

    assert counts.run(spark) is None

    counts.require_all_once()
    assert len(counts.sent) >= 3 * len(KILLS)
