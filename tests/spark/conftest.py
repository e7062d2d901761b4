"""One local Spark session for all tests of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kit.paths import PYTHONPATH
from tests.kit.pipelines import Pipeline
from tests.kit.served import served
from tests.kit.source_store import SourceStore
from tests.kit.transactions import SMALL_FILES

REMOTE_FILES = {name: str(value) for name, value in SMALL_FILES.items()}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two threads and loopback, without UI, its files in pytest's own folder."""
    scratch = tmp_path_factory.mktemp("spark")
    # Workers must run this Python and find this checkout, whatever else is installed.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = PYTHONPATH
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
def is_remote(request: pytest.FixtureRequest) -> bool:
    """Whether the broker is behind gRPC, by `--transport=grpc`."""
    return bool(request.config.getoption("transport") == "grpc")


@pytest.fixture
def store(tmp_path: Path, is_remote: bool) -> Iterator[SourceStore]:
    """An empty store with small files, held open by a writer."""
    made = SourceStore(tmp_path / "store", is_remote=is_remote)
    yield made
    made.close()


@pytest.fixture
def pipeline(tmp_path: Path, is_remote: bool) -> Iterator[Pipeline]:
    """A pipeline from topic to topic whose sink can be made to die."""
    made = Pipeline(tmp_path)
    made.create()
    with served(made.store, REMOTE_FILES) if is_remote else nullcontext() as process:
        if process is not None:
            made.move_to(process.address)
        yield made


@pytest.fixture(autouse=True)
def _only_embedded(request: pytest.FixtureRequest, is_remote: bool) -> None:
    """Leave out what a test marks as being about the writer's own process."""
    if is_remote and request.node.get_closest_marker("embedded"):
        pytest.skip("its failpoints are in the worker, which has the store open only on file:")
