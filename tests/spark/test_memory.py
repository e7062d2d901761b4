"""How much memory a task needs, whatever it reads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_core import open_broker
from tests.kit.measured_source import MeasuredSource

MESSAGES = 4096
BODY_BYTES = 1 << 20
LIMIT_BYTES = 600_000_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_gibibytes_of_large_bodies_need_no_more_than_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, notes = tmp_path / "store", tmp_path / "notes"
    notes.mkdir()
    with open_broker(f"file:{root}", mode="rw", create=True) as broker:
        broker.create_topic("t", queues=2)
        body = os.urandom(BODY_BYTES)
        for number in range(MESSAGES):
            broker.send("t", body, queue_id=number % 2)
    spark.dataSource.register(MeasuredSource)
    options = {"broker": f"file:{root}", "subscribe": "t", "notes": str(notes)}

    frame = spark.read.format("rocketmq-measured").options(**options).load()
    frame.write.format("noop").mode("append").save()

    shutil.rmtree(root)
    peaks = [int(note.read_text()) for note in notes.iterdir()]
    print(f"peak of {len(peaks)} workers: {max(peaks) / 1e6:.0f} MB")
    assert max(peaks) < LIMIT_BYTES
