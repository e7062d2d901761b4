"""`rocketmq-broker stats` on a broker behind gRPC, and `--watch` on any."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker_core import open_broker
from broker_core.cli import main
from broker_core.service.auth.credentials import hash_secret
from tests.kit.served import ROOT, SMALL_FILES, served

COMMAND = [sys.executable, "-m", "broker_core.cli", "stats"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_broker(tmp_path / "store", "rw", create=True, config=SMALL_FILES) as broker:
        broker.create_topic("t", queues=2)
        for _ in range(3):
            broker.send("t", b"hello")
    return tmp_path / "store"


def test_a_remote_broker_tells_what_it_holds_and_does(store: Path) -> None:
    with served(store) as process:
        with open_broker(process.address, "rw") as broker:
            broker.send("t", b"more")
        result = CliRunner().invoke(main, ["stats", "--broker", process.address, "--json"])

    found = json.loads(result.stdout)
    assert (found["topics"], found["messages"], found["appendRequests"]) == (1, 4, 1)
    assert found["store"] == str(store)


def test_it_takes_the_right_to_administer(tmp_path: Path) -> None:
    rules = [{"topics": "*", "rights": ["subscribe", "publish"]}]
    users = {"users": [{"name": "etl", "secret": hash_secret("hush"), "rules": rules}]}
    credentials = tmp_path / "credentials.json"
    credentials.write_text(json.dumps(users), "utf-8")

    with served(tmp_path / "store", {"grpcCredentialsFile": str(credentials)}) as process:
        arguments = ["--token", "etl.hush", "stats", "--broker", process.address]
        result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 1
    assert "etl may not admin" in result.stderr


def test_watching_writes_a_line_for_each_look_until_it_is_interrupted(store: Path) -> None:
    arguments = [*COMMAND, str(store), "--watch", "--interval", "0.1", "--json"]
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None

    first = json.loads(process.stdout.readline())
    with open_broker(store, "rw") as broker:
        broker.send("t", b"more")
    while (look := json.loads(process.stdout.readline()))["messages"] == 3:
        assert look["messagesPerSecond"] == 0
    process.send_signal(signal.SIGINT)
    process.stdout.close()

    assert first["messages"] == 3
    assert look["messages"] == 4
    assert look["messagesPerSecond"] > 0
    assert process.wait() == 0


def test_plain_lines_without_a_terminal(store: Path) -> None:
    arguments = [*COMMAND, str(store), "--watch", "--interval", "0.1"]
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    process.stdout.close()

    assert all(line.startswith(f"store={store} topics=1 queues=2 messages=3 ") for line in lines)
    assert process.wait() == 0


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children can be interrupted, also where this process can't: a shell's background job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_on_a_terminal_it_refreshes_in_place(store: Path) -> None:
    here, there = pty.openpty()
    arguments = [*COMMAND, str(store), "--watch", "--interval", "0.1"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=there, env=env)
    os.close(there)
    seen = b""
    while seen.count(b"messagesPerSecond") < 3:
        seen += os.read(here, 65536)
    process.send_signal(signal.SIGINT)
    while _read(here):
        pass
    os.close(here)

    assert b"\x1b[1A" in seen  # the cursor goes back up over what was shown
    assert process.wait() == 0


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how a terminal says that nobody is at the other end
        return b""
