"""Every Python block of the README and of docs/ runs, and does what the text around it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker_core import open_broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["getting-started.md", "migrating-from-kafka.md", "migrating-from-rocketmq-spark.md"]
SETTINGS = "operations.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page: Path) -> list[str]:
    """The page's Python blocks."""
    return BLOCK.findall(page.read_text("utf-8"))


def run(blocks: list[str], folder: Path, names: dict[str, Any]) -> None:
    """Run blocks one after the other, with their files in a folder of the test."""
    for block in blocks:
        exec(block.replace("/tmp/", f"{folder}/"), names)


def test_the_readme_runs_from_top_to_bottom(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None  # the blocks get the running session

    run(blocks_of(ROOT / "README.md"), tmp_path, {})

    assert "b'HELLO'" in capfd.readouterr().out
    with open_broker(f"file:{tmp_path}/rocketmq-store") as broker:
        (answer,) = broker.query("answers", key="o-1").to_pylist()
    assert (answer["tags"], answer["body"]) == ("answer", b"HELLO")


def test_the_first_stream_is_short_enough_to_copy() -> None:
    first = blocks_of(ROOT / "README.md")[0]

    code = [line for line in first.splitlines() if line and "import" not in line]

    assert len(code) <= 10


def test_the_pages_run_one_after_the_other(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, Any] = {"spark": spark}

    for page in PAGES:
        run(blocks_of(ROOT / "docs" / page), tmp_path, names)

    prices = {row.price for row in spark.table("dear_orders").collect()}
    assert prices == set(range(61, 100, 2))


def test_a_write_is_whole_with_spark_as_operations_advise(
    spark: SparkSession, tmp_path: Path
) -> None:
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    address = f"file:{tmp_path}/store"
    rows = spark.range(0, 25_000, 1, 2).selectExpr("cast(id as string) as body")
    before = spark.conf.get(name, None)
    try:
        run(blocks_of(ROOT / "docs" / SETTINGS), tmp_path, {"spark": spark})
        assert spark.conf.get(name, None) != before
        with open_broker(address, mode="rw", create=True) as broker:
            broker.create_topic("numbers", queues=4)
        rows.write.format("rocketmq").mode("append").options(broker=address, topic="numbers").save()
    finally:
        spark.conf.unset(name)

    with open_broker(address) as broker:
        bodies = [broker.read("numbers", queue).column("body") for queue in range(4)]
    found = sorted(int(body) for column in bodies for body in column.to_pylist())
    assert found == list(range(25_000))


def test_no_page_has_blocks_that_nobody_runs() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md") if blocks_of(page)}

    assert pages == {*PAGES, SETTINGS}
