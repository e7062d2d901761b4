"""Many producers and followers at once: all of it arrives, once, soon, in bounded memory.

In the long run 64 producers send at a steady rate and 16 followers read along. Nothing is timed
here; how long a message took, and what the broker's memory did, is printed (`-s` shows it).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_core import open_broker
from broker_core.store.check import check
from tests.kit.served import ROOT, ServeCommand

PRODUCERS = 16
FOLLOWERS = 4


def start(role: str, address: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.load.worker", role, address, "t", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def answers(workers: list[subprocess.Popen[str]]) -> list[Any]:
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers)
    return [json.loads(line) for output in outputs for line in output.splitlines()]


def resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * 4096  # without shared ones, which are mapped files


def run(store: Path, processes: int, seconds: float, per_second: float) -> None:
    serve = ServeCommand(store, "--create", "--listen", "127.0.0.1:0")
    address = serve.wait_ready()
    with open_broker(address, mode="rw") as broker:
        broker.create_topic("t", queues=4)
    each = int(seconds * per_second)
    total = processes * PRODUCERS * each
    before = resident_bytes(serve.pid)

    followers = [start("follow", address, FOLLOWERS, total // 4) for _ in range(processes)]
    producers = [start("produce", address, PRODUCERS, each, per_second) for _ in range(processes)]
    sent, followed = answers(producers), answers(followers)

    grown = resident_bytes(serve.pid) - before
    names = {answer["producer"] for answer in sent}
    assert len(names) == processes * PRODUCERS
    for number in range(4):
        ours = [answer["seen"] for answer in followed if answer["queue"] == number]
        assert len(ours) == processes
        assert all(seen == {name: list(range(each)) for name in seen} for seen in ours)
        assert all(len(seen) * each == total // 4 for seen in ours)
    ages_ms = sorted(age for answer in followed for age in answer["ages_ms"])
    print(
        f"\n{total} messages from {len(names)} producers to {len(followed)} followers: "
        f"median {statistics.median(ages_ms):.1f} ms, "
        f"p99 {ages_ms[int(len(ages_ms) * 0.99)]:.1f} ms after the send began; "
        f"broker grew by {grown / 1e6:.1f} MB"
    )
    assert serve.stop() == 0
    assert check(store) == []


def test_a_short_load_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path / "store", processes=1, seconds=1, per_second=10)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_minute_of_load_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path / "store", processes=4, seconds=60, per_second=15)
