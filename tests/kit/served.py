"""Brokers behind gRPC for tests: in this process, or as a process of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker_core.service.main import BrokerProcess
from broker_core.service.settings import ServiceSettings

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL_FILES = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000"}
_READY = re.compile(r"event=ready .*address=(\S+)")


@contextmanager
def served(store: Path, settings: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
    """A store that is served by threads of this process, on a port of its own."""
    texts = {"grpcListenAddress": "127.0.0.1:0", **SMALL_FILES, **(settings or {})}
    broker = BrokerProcess(store, ServiceSettings.of(texts, "test"), create=True)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop(grace_s=0)


class ServeCommand:
    """`rocketmq-broker serve` as a process; `lines` is what it has said."""

    def __init__(self, store: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "broker_core.cli", "serve", "--store", str(store)]
        self._process = subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self.lines: list[str] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> str:
        """Wait until it serves; its address."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))
            match = _READY.search(line)
            if match:
                return match[1]
        raise AssertionError(f"it ended with {self._process.wait()}: {self.lines}")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit status."""
        return self._end(number)

    def wait(self) -> int:
        """Wait until it ends by itself; its exit status."""
        return self._end(None)

    def _end(self, number: int | None) -> int:
        if number is not None:
            self._process.send_signal(number)
        assert self._process.stderr is not None
        with self._process.stderr as rest:
            self.lines += rest.read().splitlines()
        return self._process.wait()
