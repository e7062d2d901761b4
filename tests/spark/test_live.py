"""Queries over a store that changes under them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kit import live_writer
from tests.kit.queries import Delivered, run_available, running
from tests.kit.source_store import SourceStore

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = 3000


def test_every_message_of_a_live_writer_arrives_once_and_in_order(
    spark: SparkSession, store: SourceStore, tmp_path: Path
) -> None:
    for number in range(3):
        store.create(f"live-{number}", live_writer.QUEUES)
    options = store.options(
        subscribePattern="^live-", startingOffsets="earliest", maxOffsetsPerTrigger="700"
    )
    delivered = Delivered()

    with running(spark, options, tmp_path / "checkpoint", delivered) as query:
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.live_writer", store.address, str(MESSAGES)],
            cwd=ROOT,
        )
        while writer.poll() is None:
            query.processAllAvailable()
        query.processAllAvailable()

    assert writer.returncode == 0
    assert delivered.bodies == live_writer.bodies(MESSAGES)
    places: dict[tuple[str, int], list[int]] = {}
    for row in delivered.rows:
        places.setdefault((row["topic"], row["queueId"]), []).append(row["queueOffset"])
    assert len(places) == 4 * (live_writer.QUEUES + 2)
    assert all(offsets == list(range(len(offsets))) for offsets in places.values())


def test_retention_behind_a_strict_query_does_not_disturb_it(
    spark: SparkSession, store: SourceStore, tmp_path: Path
) -> None:
    store.create("t", 1)
    options = store.options(subscribe="t", startingOffsets="earliest", failOnDataLoss="true")
    delivered = Delivered()
    sent: list[str] = []

    with running(spark, options, tmp_path / "checkpoint", delivered) as query:
        for turn in range(4):
            numbers = [f"{turn}-{number:03d}" for number in range(150)]
            results = store.send("t", *numbers, size=1000)
            sent += numbers
            query.processAllAvailable()
            store.expire(results[-1])

    assert next(iter(store.broker.offsets("t").values()))[0] > 450
    assert [body.strip() for body in delivered.bodies] == sorted(sent)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_store_made_anew_at_the_same_path_is_never_mixed_with_the_old_one(
    spark: SparkSession, tmp_path: Path, fail_on_data_loss: str
) -> None:
    old = SourceStore(tmp_path / "store")
    old.create("t", 1)
    old.send("t", "old 0", "old 1")
    options = old.options(
        subscribe="t", startingOffsets="earliest", failOnDataLoss=fail_on_data_loss
    )
    first = run_available(spark, options, tmp_path / "one")
    old.close()
    (tmp_path / "store").rename(tmp_path / "aside")

    new = SourceStore(tmp_path / "store")
    new.create("t", 1)
    new.send("t", "new 0", "new 1")
    second = run_available(spark, options, tmp_path / "two")
    new.close()

    assert first.bodies == ["old 0", "old 1"]
    assert second.bodies == ["new 0", "new 1"]
