"""The sink under Spark Connect, where a `foreachBatch` does not tell its writes which batch it is.

It needs what Spark Connect's client needs (pandas, grpcio-status, googleapis-common-protos,
zstandard), and is left out where that is not installed. Connect runs in a process of its own: one
process has one kind of session.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.api import Broker
from tests.kit.paths import PYTHONPATH, ROOT
from tests.kit.transactions import open_store, visible

pytestmark = pytest.mark.slow

SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession

folder, broker = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", False).getOrCreate()

def save(frame, **options):
    options = {"broker": broker, "topic": "t", **options}
    frame.write.format("rocketmq").options(**options).mode("append").save()

def writes(options):
    def write(frame, batch_id):
        given = {name: f"{value}-{batch_id}" for name, value in options.items()}
        given = {"broker": broker, "topic": "t", **given}
        frame.write.format("rocketmq").options(**given).mode("append").save()
        if not options.get("txnName"):
            raise ValueError("failed after its write")
    return write

def run(**options):
    rows = spark.readStream.text(folder + "/in")
    writer = rows.writeStream.foreachBatch(writes(options)).trigger(availableNow=True)
    try:
        writer.option("checkpointLocation", folder + "/c").start().awaitTermination(100)
    except Exception as error:
        print("RUN-ENDED-BADLY", str(error))
    else:
        print("ENDED")

save(spark.createDataFrame([("plain",)], "body string"))
run()
run(txnId="q")
run(txnId="q")
spark.stop()
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with open_store(tmp_path / "store") as opened:
        opened.create_topic("t", queues=1)
        yield opened


def test_a_foreach_batch_is_refused_without_an_id_and_written_once_with_one(
    broker: Broker, tmp_path: Path
) -> None:
    for module in ("pandas", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(module)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("r1\nr2\n")

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), broker.address],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    told = done.stdout + done.stderr
    assert told.count("RUN-ENDED-BADLY") == 3, told
    assert "ROCKETMQ_SINK.BATCH_UNKNOWN" in told
    assert "event=save_without_identity" in told
    assert "event=batch_already_committed" in told
    assert sorted(visible(broker)) == [b"plain", b"r1", b"r2"]
