"""A load: producers at a steady rate and followers beside them, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_core import open_broker
from tests.kit.served import ROOT, ServeCommand

PRODUCERS = 16
FOLLOWERS = 4
QUEUES = 4
"""Threads of each process; each follower has a queue of its own."""
APPENDED = "since_append_ms"
SENT = "since_send_ms"
"""What the age of a message that came counts from: its store time, or its sender's call."""


@dataclass(frozen=True)
class Loaded:
    """What a load was, and how it went: ages of messages when they came, growth of the broker."""

    processes: int
    each: int
    sent: list[Any]
    followed: list[Any]
    grown_bytes: int

    @property
    def total(self) -> int:
        """How many messages were sent."""
        return self.processes * PRODUCERS * self.each

    def age_ms(self, share: float, since: str = APPENDED) -> float:
        """The age that this share of all messages did not exceed when followers had them."""
        ages = sorted(age for answer in self.followed for age in answer[since])
        return float(ages[min(len(ages) - 1, int(len(ages) * share))])


def load(store: Path, processes: int, seconds: float, per_second: float) -> Loaded:
    """Serve a new store, send and follow; the broker has ended well when this returns."""
    serve = ServeCommand(store, "--create", "--listen", "127.0.0.1:0")
    address = serve.wait_ready()
    with open_broker(address, mode="rw") as broker:
        broker.create_topic("t", queues=QUEUES)
    each = int(seconds * per_second)
    per_queue = processes * PRODUCERS * each // QUEUES
    before = _resident_bytes(serve.pid)

    followers = [_start("follow", address, FOLLOWERS, per_queue) for _ in range(processes)]
    producers = [_start("produce", address, PRODUCERS, each, per_second) for _ in range(processes)]
    _let_go([*followers, *producers])
    sent, followed = _answers(producers), _answers(followers)

    grown = _resident_bytes(serve.pid) - before
    assert serve.stop() == 0
    return Loaded(processes, each, sent, followed, grown)


def _start(role: str, address: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.load.worker", role, address, "t", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _let_go(workers: list[subprocess.Popen[str]]) -> None:
    """Let them begin when all of them are connected: starting up is no part of the load."""
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()


def _answers(workers: list[subprocess.Popen[str]]) -> list[Any]:
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers)
    return [json.loads(line) for output in outputs for line in output.splitlines()]


def _resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * 4096  # without shared ones, which are mapped files
