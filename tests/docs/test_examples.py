"""The examples for spark-submit, each on a small store of its own, and run again as it may be."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_core import open_broker
from examples import dedup, foreach_batch_upsert, parquet_to_topic, topic_to_parquet

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def bodies(address: str, topic: str) -> list[str]:
    with open_broker(address) as broker:
        tables = [broker.read(topic, queue.queue_id) for queue in broker.offsets(topic)]
    return sorted(body.decode() for table in tables for body in table["body"].to_pylist())


def test_topic_to_parquet_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    address, output = f"file:{tmp_path}/store", f"{tmp_path}/output"
    topic_to_parquet.make_sample(address, "orders", count=10)
    topic_to_parquet.copy(spark, address, "orders", output)
    topic_to_parquet.make_sample(address, "orders", count=3)

    topic_to_parquet.copy(spark, address, "orders", output)

    rows = spark.read.parquet(f"{output}/data").selectExpr("CAST(body AS STRING) AS body").collect()
    assert sorted(row.body for row in rows) == bodies(address, "orders")


def test_parquet_to_topic_writes_a_job_once(spark: SparkSession, tmp_path: Path) -> None:
    address, files = f"file:{tmp_path}/store", f"{tmp_path}/files"
    open_broker(address, mode="rw", create=True).close()
    parquet_to_topic.make_sample(spark, files, count=10)
    parquet_to_topic.publish(spark, address, "rows", files, "job-1")

    parquet_to_topic.publish(spark, address, "rows", files, "job-1")

    expected = [f'{{"id":{number},"price":{number}}}' for number in range(10)]
    assert bodies(address, "rows") == sorted(expected)


def test_dedup_remembers_keys_from_one_run_to_the_next(spark: SparkSession, tmp_path: Path) -> None:
    address, checkpoint = f"file:{tmp_path}/store", f"{tmp_path}/checkpoint"
    dedup.make_sample(address, "orders", count=5)
    dedup.deduplicate(spark, address, "orders", "once", checkpoint)
    dedup.make_sample(address, "orders", count=7)

    dedup.deduplicate(spark, address, "orders", "once", checkpoint)

    assert bodies(address, "once") == [f"order {number}" for number in range(7)]


def test_upsert_keeps_the_newest_state_and_one_receipt_a_message(
    spark: SparkSession, tmp_path: Path
) -> None:
    address, database = f"file:{tmp_path}/store", f"{tmp_path}/orders.db"
    foreach_batch_upsert.make_sample(address, "orders", count=5)

    foreach_batch_upsert.run(
        spark, address, ("orders", "receipts"), database, f"{tmp_path}/checkpoint"
    )

    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT id, state FROM orders ORDER BY id").fetchall()
    assert rows == [(f"o-{number}", "paid") for number in range(5)]
    assert bodies(address, "receipts") == ["done: paid"] * 5 + ["done: placed"] * 5
