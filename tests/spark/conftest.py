"""One local Spark session for all tests of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kit.source_store import SourceStore

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two threads and loopback, without UI, its files in pytest's own folder."""
    scratch = tmp_path_factory.mktemp("spark")
    # Workers must run this Python and find this checkout, whatever else is installed.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    builder: SparkSession.Builder = (
        SparkSession.builder
    )  # a class property that mypy takes for a call
    session = (
        builder.master("local[2]")
        .appName("pyspark-rocketmq tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SourceStore]:
    """An empty store with small files, held open by a writer.

    With SPARK_TEST_BROKER=grpc in the environment all of it happens behind gRPC.
    """
    is_remote = os.environ.get("SPARK_TEST_BROKER") == "grpc"
    made = SourceStore(tmp_path / "store", is_remote=is_remote)
    yield made
    made.close()
