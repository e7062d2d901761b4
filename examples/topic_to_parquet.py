"""A topic to Parquet files: the messages that are there now; the next run adds the new ones.

    spark-submit examples/topic_to_parquet.py [BROKER TOPIC FOLDER]

Without arguments the program makes a small store in a temporary folder and reads that.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from broker_core import open_broker


def make_sample(address: str, topic: str, count: int = 100) -> None:
    with open_broker(address, mode="rw", create=True) as broker:
        broker.create_topic(topic, exist_ok=True)
        for number in range(count):
            broker.send(topic, f"order {number}".encode(), tags="new", keys=[f"o-{number}"])


def copy(spark: SparkSession, address: str, topic: str, folder: str) -> None:
    """Append each message once to the files in `folder`/data, even if runs are interrupted."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("broker", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeProperties", True)
        .load()
    )
    query = (
        messages.withColumn("date", F.to_date("storeTimestamp"))
        .writeStream.format("parquet")
        .partitionBy("date")
        .option("path", f"{folder}/data")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(arguments: list[str]) -> None:
    if arguments:
        address, topic, folder = arguments
    else:
        folder = tempfile.mkdtemp(prefix="topic-to-parquet-")
        address, topic = f"file:{folder}/store", "orders"
        make_sample(address, topic)
    spark = SparkSession.Builder().appName("topic to parquet").getOrCreate()
    copy(spark, address, topic, folder)
    count = spark.read.parquet(f"{folder}/data").count()
    print(f"{folder}/data holds {count} messages of {topic}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
