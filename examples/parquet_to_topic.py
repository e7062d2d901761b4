"""Parquet files to a topic, all or nothing. A second run with the same job name writes nothing.

    spark-submit examples/parquet_to_topic.py [BROKER TOPIC FILES JOB]

Each row becomes a message: its columns as JSON, the column `id` as key. Without arguments the
program makes some files in a temporary folder and sends them to a store beside them, twice.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from broker_core import open_broker


def make_sample(spark: SparkSession, files: str, count: int = 100) -> None:
    spark.range(count).withColumn("price", F.col("id") % 90).write.parquet(files)


def publish(spark: SparkSession, address: str, topic: str, files: str, job: str) -> None:
    """Send all rows. By `txnId` the broker recognizes a job that it has done before."""
    rows = spark.read.parquet(files)
    messages = rows.select(
        F.to_json(F.struct("*")).alias("body"),
        F.col("id").cast("string").alias("keys"),
    )
    (
        messages.write.format("rocketmq")
        .mode("append")  # the only mode that Spark allows for a Python sink
        .option("broker", address)
        .option("topic", topic)
        .option("createTopic", 4)
        .option("txnId", job)
        .save()
    )


def count_messages(address: str, topic: str) -> int:
    with open_broker(address) as broker:
        return sum(end - start for start, end in broker.offsets(topic).values())


def main(arguments: list[str]) -> None:
    spark = SparkSession.Builder().appName("parquet to topic").getOrCreate()
    if arguments:
        address, topic, files, job = arguments
    else:
        folder = tempfile.mkdtemp(prefix="parquet-to-topic-")
        address, topic, files, job = f"file:{folder}/store", "rows", f"{folder}/files", "load-1"
        open_broker(address, mode="rw", create=True).close()
        make_sample(spark, files)
        publish(spark, address, topic, files, job)
    publish(spark, address, topic, files, job)
    print(f"{topic} on {address} holds {count_messages(address, topic)} messages")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
