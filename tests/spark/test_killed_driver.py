"""A driver killed with SIGKILL at every step of a micro-batch, and the query resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kit import killed_driver
from tests.kit.paths import PYTHONPATH, ROOT
from tests.kit.source_store import SourceStore

TIERS = {("earliest", "task", 1): [pytest.mark.landing], ("earliest", "written", 1): []}
"""All other cases are slow."""
CASES = [
    *[("earliest", step, 0) for step in killed_driver.STEPS if step != "commit"],
    *[("earliest", step, 1) for step in killed_driver.STEPS if step != "initial"],
    # A start at latest is pinned by an empty first batch: it has no task.
    *[("latest", step, 0) for step in ("plan", "write", "written")],
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("position", "step", "batch_id"),
    [pytest.param(*case, marks=TIERS.get(case, [pytest.mark.slow])) for case in CASES],
)
def test_every_message_is_there_once_after_a_kill(
    spark: SparkSession,
    store: SourceStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    position: str,
    step: str,
    batch_id: int,
) -> None:
    store.create("t")
    options = store.options(
        subscribe="t", startingOffsets=position, maxOffsetsPerTrigger="8", columns="body"
    )
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    output.mkdir()
    sent = store.numbers("t", range(20)) if position == "earliest" else []

    killed = subprocess.run(
        [
            *(sys.executable, "-m", "tests.kit.killed_driver", json.dumps(options)),
            *(str(checkpoint), str(output), step, str(batch_id)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    sent += store.numbers("t", range(20, 30))
    monkeypatch.setenv("KILL_AT", "never -1")
    killed_driver.run(spark, "rocketmq", options, [checkpoint, output])

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed_driver.written(output) == sorted(sent)
