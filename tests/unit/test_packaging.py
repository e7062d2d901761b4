"""What is installed is what Spark and users look for."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_wheel_holds_both_packages_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]

    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)

    (wheel,) = tmp_path.glob("pyspark_rocketmq-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "broker_core",
        "pyspark_rocketmq",
    }
    assert {"broker_core/py.typed", "pyspark_rocketmq/py.typed"} <= set(names)
