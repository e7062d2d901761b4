"""A checkpointed stream over an embedded store, stopped and started again, nothing lost or doubled.

Orders are sent to a store on disk. A streaming query reads them with an SQL92 filter that runs in
the source, and sums them up by region. Then more orders arrive and a second query goes on from the
first one's checkpoint. In the end the sums must be those of everything that was sent.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from broker_core import open_broker

ORDERS_PER_ROUND = 1_000
BATCH_SIZE = 400
MINIMUM_PRICE = 50
REGIONS = ("eu", "us", "asia")

console = Console(highlight=False)


def orders(count: int, seed: int) -> Iterator[tuple[str, int]]:
    """Region and price of made-up orders."""
    chance = random.Random(seed)
    for _ in range(count):
        yield chance.choice(REGIONS), chance.randrange(100)


def send(address: str, batch: list[tuple[str, int]]) -> None:
    with open_broker(address, mode="rw", create=True) as broker:
        broker.create_topic("orders", queues=4, exist_ok=True)
        for region, price in batch:
            properties = {"region": region, "price": str(price)}
            broker.send("orders", f"{price}".encode(), tags=region, properties=properties)


def start_spark(folder: Path) -> SparkSession:
    builder: SparkSession.Builder = SparkSession.builder
    return (
        builder.master("local[2]")
        .appName("pyspark-rocketmq demo")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .getOrCreate()
    )


def dear_orders(spark: SparkSession, address: str) -> DataFrame:
    """Number and value of orders above the minimum price, by region, as a stream."""
    stream = (
        spark.readStream.format("rocketmq")
        .option("broker", address)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("sql", f"price > {MINIMUM_PRICE}")
        .option("maxOffsetsPerTrigger", BATCH_SIZE)
        .load()
    )
    return (
        stream.selectExpr("tags AS region", "CAST(CAST(body AS STRING) AS INT) AS price")
        .groupBy("region")
        .agg(F.count("*").alias("orders"), F.sum("price").alias("value"))
    )


def run_to_the_end(totals: DataFrame, checkpoint: Path) -> None:
    """Run the query over all that is there now, telling about each micro-batch."""
    query = (
        totals.writeStream.format("memory")
        .queryName("totals")
        .outputMode("complete")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    told = -1
    running = True
    while running:
        running = not query.awaitTermination(1)
        for progress in query.recentProgress:
            if progress.batchId > told and progress.numInputRows:
                told = progress.batchId
                rate = progress.processedRowsPerSecond
                console.print(f"  batch {told}: {progress.numInputRows:,} rows, {rate:,.0f} rows/s")


def totals_of(batch: list[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    """Number and value of these orders by region: what the query has to find."""
    count: Counter[str] = Counter()
    value: Counter[str] = Counter()
    for region, price in batch:
        count[region] += 1
        value[region] += price
    return {region: (count[region], value[region]) for region in count}


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="pyspark-rocketmq-demo-"))
    address = f"file:{folder / 'store'}"
    rounds = [list(orders(ORDERS_PER_ROUND, seed)) for seed in (1, 2)]

    started = time.monotonic()
    spark = start_spark(folder)
    for number, batch in enumerate(rounds, start=1):
        console.print(f"[bold]Round {number}[/]: sending {len(batch):,} orders, then a new query")
        send(address, batch)
        run_to_the_end(dear_orders(spark, address), folder / "checkpoint")
    found = {row.region: (row.orders, row.value) for row in spark.table("totals").collect()}
    spark.stop()

    table = Table("region", "orders", "value", title=f"Orders above {MINIMUM_PRICE}")
    for region, (count, value) in sorted(found.items()):
        table.add_row(region, f"{count:,}", f"{value:,}")
    console.print(table)
    console.print(f"Store and checkpoint: {folder}", soft_wrap=True)
    dear = [order for batch in rounds for order in batch if order[1] > MINIMUM_PRICE]
    if found != totals_of(dear):
        raise SystemExit(f"The totals differ from what was sent: {totals_of(dear)}")
    console.print(
        f"Proved in {time.monotonic() - started:.0f} s: of {sum(map(len, rounds)):,} orders the"
        f" filter kept the right {len(dear):,}, and across a restart from the checkpoint each was"
        " counted once.",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
