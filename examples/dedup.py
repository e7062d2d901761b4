"""Deduplication: copy a topic to another one without the messages that a producer sent twice.

    spark-submit examples/dedup.py [BROKER FROM TO CHECKPOINT]

The first message with a key is passed on; later ones with that key, within ten minutes, are not.
Spark keeps the keys that it has seen as state in the checkpoint. Without arguments the program
makes a small store in a temporary folder.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import SparkSession

from broker_core import open_broker


def make_sample(address: str, topic: str, count: int = 50) -> None:
    """Send every message twice, like a producer that got no answer and tried again."""
    with open_broker(address, mode="rw", create=True) as broker:
        broker.create_topic(topic, exist_ok=True)
        for number in range(count):
            for _ in range(2):
                broker.send(topic, f"order {number}".encode(), keys=[f"o-{number}"])


def deduplicate(
    spark: SparkSession, address: str, source: str, target: str, checkpoint: str
) -> None:
    """Copy the messages that are there now; the next run continues there, with the keys seen."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("broker", address)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("columns", "body,keys,tags,storeTimestamp")
        .load()
    )
    first = messages.withWatermark("storeTimestamp", "10 minutes").dropDuplicatesWithinWatermark(
        ["keys"]
    )
    query = (
        first.select("body", "keys", "tags")
        .writeStream.format("rocketmq")
        .option("broker", address)
        .option("topic", target)
        .option("createTopic", 4)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(arguments: list[str]) -> None:
    if arguments:
        address, source, target, checkpoint = arguments
    else:
        folder = tempfile.mkdtemp(prefix="dedup-")
        address, checkpoint = f"file:{folder}/store", f"{folder}/checkpoint"
        source, target = "orders", "orders-once"
        make_sample(address, source)
    spark = SparkSession.Builder().appName("dedup").getOrCreate()
    deduplicate(spark, address, source, target, checkpoint)
    spark.stop()
    with open_broker(address) as broker:
        for topic in (source, target):
            held = sum(end - start for start, end in broker.offsets(topic).values())
            print(f"{topic}: {held} messages")


if __name__ == "__main__":
    main(sys.argv[1:])
