"""Upserts: a topic into a database table by `foreachBatch`, with receipts sent exactly once.

    spark-submit examples/foreach_batch_upsert.py [BROKER FROM TO DATABASE CHECKPOINT]

The table (SQLite) holds the newest state of every order. Spark may run a batch again after a crash,
so both writes must be repeatable. The upsert is, because an older offset never overwrites a newer
one. The receipts are, because the sink knows the ids of query and batch and refuses a repeat.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_core import open_broker

TABLE = """CREATE TABLE IF NOT EXISTS orders
    (id TEXT PRIMARY KEY, state TEXT, queue_id INTEGER, queue_offset INTEGER)"""
UPSERT = """INSERT INTO orders VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE
    SET state = excluded.state, queue_offset = excluded.queue_offset
    WHERE excluded.queue_offset > queue_offset"""


def make_sample(address: str, topic: str, count: int = 30) -> None:
    """Send orders that are placed and then paid; the messages of one order share a queue."""
    with open_broker(address, mode="rw", create=True) as broker:
        broker.create_topic(topic, exist_ok=True)
        for state in ("placed", "paid"):
            for number in range(count):
                key = f"o-{number}"
                broker.send(topic, state.encode(), keys=[key], sharding_key=key)


def upsert(database: str, batch: DataFrame) -> None:
    """Write the newest state of each order of the batch, in one transaction."""
    newest = batch.groupBy("keys").agg(F.max_by(F.struct("*"), "queueOffset").alias("m"))
    rows = newest.select("keys", F.col("m.body").cast("string"), "m.queueId", "m.queueOffset")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(TABLE)
        connection.executemany(UPSERT, [tuple(row) for row in rows.collect()])


def write_receipts(address: str, topic: str, batch: DataFrame) -> None:
    """Send a receipt for each message; `txnName` tells this write from others of the batch."""
    receipts = batch.selectExpr("concat('done: ', CAST(body AS STRING)) AS body", "keys")
    (
        receipts.write.format("rocketmq")
        .mode("append")
        .option("broker", address)
        .option("topic", topic)
        .option("createTopic", 4)
        .option("txnName", "receipts")
        .save()
    )


def run(
    spark: SparkSession, address: str, topics: tuple[str, str], database: str, checkpoint: str
) -> None:
    """Process the messages that are there now."""
    source, target = topics

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        del batch_id  # Spark gives it to the sink
        kept = batch.persist()
        upsert(database, kept)
        write_receipts(address, target, kept)
        kept.unpersist()

    messages = (
        spark.readStream.format("rocketmq")
        .option("broker", address)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        messages.writeStream.foreachBatch(write_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(arguments: list[str]) -> None:
    if arguments:
        address, source, target, database, checkpoint = arguments
    else:
        folder = tempfile.mkdtemp(prefix="foreach-batch-upsert-")
        address, database = f"file:{folder}/store", f"{folder}/orders.db"
        source, target, checkpoint = "orders", "receipts", f"{folder}/checkpoint"
        make_sample(address, source)
    spark = SparkSession.Builder().appName("foreachBatch upsert").getOrCreate()
    run(spark, address, (source, target), database, checkpoint)
    spark.stop()
    with closing(sqlite3.connect(database)) as connection:
        for state, count in connection.execute("SELECT state, count(*) FROM orders GROUP BY state"):
            print(f"{count} orders are {state}; the table is in {database}")


if __name__ == "__main__":
    main(sys.argv[1:])
