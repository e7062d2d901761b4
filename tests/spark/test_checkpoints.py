"""Checkpoints of every released version, and of others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_core import open_broker
from broker_core.store.check.store import check
from tests.kit.fixtures import open_archive
from tests.kit.queries import logged_offset, run_available
from tests.kit.source_store import SourceStore

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "checkpoints"
PIPELINES = Path(__file__).resolve().parents[1] / "golden" / "pipelines"
VERSIONS = sorted(entry.name for entry in GOLDEN.iterdir() if entry.is_dir())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_query_of_an_older_version_goes_on_where_it_was(
    spark: SparkSession, store: SourceStore, tmp_path: Path, version: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(GOLDEN / version, checkpoint)
    done = logged_offset(checkpoint, 1)["orders"]["broker-a"]
    store.create("orders", 11)
    sent = store.numbers("orders", range(80), queues=11)
    left = [body for number, body in enumerate(sent) if number // 11 >= done[str(number % 11)]]

    delivered = run_available(spark, store.options(subscribe="orders"), checkpoint)

    assert delivered.sizes[0] == 22
    assert delivered.bodies == sorted(left)


@pytest.mark.parametrize("offset", ['{"logOffset": 3}', "17"])
def test_the_checkpoint_of_another_source_is_refused(
    spark: SparkSession, store: SourceStore, tmp_path: Path, offset: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(GOLDEN / VERSIONS[0], checkpoint)
    for entry in (checkpoint / "offsets").iterdir():
        entry.write_text("\n".join([*entry.read_text().splitlines()[:-1], offset]))
    store.create("orders", 1)

    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        run_available(spark, store.options(subscribe="orders"), checkpoint)

    assert "[ROCKETMQ_CHECKPOINT.MALFORMED]" in str(caught.value)


@pytest.mark.embedded
@pytest.mark.parametrize("version", sorted(path.name for path in PIPELINES.glob("[0-9]*")))
def test_a_pipeline_of_an_older_version_goes_on_exactly_once(
    spark: SparkSession, tmp_path: Path, version: str
) -> None:
    shutil.copytree(PIPELINES / version / "checkpoint", tmp_path / "checkpoint")
    with open_archive(PIPELINES / version / "store.tar.gz") as packed:
        packed.extractall(tmp_path)
    store = tmp_path / "store"
    assert check(store) == []
    with open_broker(store, mode="rw") as broker:
        for number in range(60, 80):
            broker.send("orders", f"order-{number}".encode(), queue_id=number % 3)

    options = {"broker": f"file:{store}", "startingOffsets": "earliest", "subscribe": "orders"}
    orders = spark.readStream.format("rocketmq").options(**options).load()
    query = (
        orders.selectExpr("upper(CAST(body AS STRING)) AS body", "keys")
        .writeStream.format("rocketmq")
        .option("broker", f"file:{store}")
        .option("topic", "answers")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    with open_broker(store) as broker:
        bodies = [
            body.decode()
            for queue in broker.offsets("answers")
            for body in broker.read("answers", queue.queue_id)["body"].to_pylist()
        ]
    assert sorted(bodies) == sorted([*(f"ORDER-{n}" for n in range(80)), "half-committed"])
