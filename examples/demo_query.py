"""The demo's query: sums of paid orders by window and region, written to a topic exactly once.

    python examples/demo_query.py BROKER FOLDER

It runs until its standard input ends, or until it is killed. Started again on the same folder, it
continues from the checkpoint there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

ORDER = "order STRING, second LONG, region STRING, price INT"
SQL92 = "TAGS = 'paid' AND price > 20"
# A JVM that lives for half a minute gains nothing from the second compiler.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def start_spark(folder: Path) -> SparkSession:
    """Return a Spark session on two threads that writes its own files to the folder too."""
    builder: SparkSession.Builder = SparkSession.builder
    return (
        builder.master("local[2]")
        .appName("pyspark-rocketmq demo")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder} {QUICK}")
        .config("spark.local.dir", str(folder))
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .getOrCreate()
    )


def read_orders(spark: SparkSession, address: str) -> DataFrame:
    """Return the orders that pass the filter, which runs in the source, on properties alone."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("broker", address)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("sql", SQL92)
        .option("maxOffsetsPerTrigger", 900)
        .load()
    )
    order = F.from_json(F.col("body").cast("string"), ORDER).alias("o")
    return messages.select(order).select("o.*", F.timestamp_seconds("o.second").alias("time"))


def sum_up(orders: DataFrame) -> DataFrame:
    """Return one message for each window of five minutes and region, when the window has ended."""
    totals = (
        orders.withWatermark("time", "2 minutes")
        .groupBy(F.window("time", "5 minutes"), "region")
        .agg(
            F.count("*").alias("orders"),
            F.sum("price").alias("value"),
            F.collect_list("order").alias("ids"),
        )
    )
    start = F.date_format("window.start", "HH:mm")
    return totals.select(
        F.to_json(F.struct(start.alias("window"), "region", "orders", "value", "ids")).alias(
            "body"
        ),
        F.col("region").alias("tags"),
        F.concat_ws("-", start, "region").alias("keys"),
    )


def write_totals(totals: DataFrame, address: str, checkpoint: Path) -> StreamingQuery:
    """Start the query; the sink writes exactly once by default."""
    return (
        totals.writeStream.format("rocketmq")
        .option("broker", address)
        .option("topic", "totals")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def main(address: str, folder: Path) -> None:
    spark = start_spark(folder / "spark")
    query = write_totals(sum_up(read_orders(spark, address)), address, folder / "checkpoint")
    sys.stdin.read()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
