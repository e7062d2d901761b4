"""A broker behind gRPC in a process that kills itself at a chosen place, and is started again.

Children come from a fork server that has everything imported, so that many kills take little time.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from broker_core.service.main import BrokerProcess
from broker_core.service.settings import ServiceSettings
from broker_core.store.io.files import Failpoint
from tests.kit.faulty_files import FaultyFiles, kill_self
from tests.kit.served import SMALL_FILES

StopAt = tuple[Failpoint, int] | None


def context() -> ForkServerContext:
    """Where children come from."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.kit.served_child"])
    return found


class RestartedBroker:
    """A store that is served at one address; whenever its process dies, another takes over."""

    def __init__(
        self, root: Path, stop_at: StopAt = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._root = root
        self._settings = {**SMALL_FILES, "flushDiskType": "SYNC_FLUSH", **(settings or {})}
        self._is_over = False
        self.deaths = 0
        self._port = 0
        self._child = self._start(stop_at)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def address(self) -> str:
        return f"grpc://127.0.0.1:{self._port}"

    def kill(self) -> None:
        """End it now, as `kill -9` does; another takes over."""
        self._child.kill()

    def close(self) -> None:
        """End it for good, as `kill -9` does."""
        self._is_over = True
        self._child.kill()
        self._watcher.join()

    def _start(self, stop_at: StopAt) -> ForkServerProcess:
        here, there = multiprocessing.Pipe(duplex=False)
        texts = {**self._settings, "grpcListenAddress": f"127.0.0.1:{self._port}"}
        child = context().Process(
            target=_serve, args=(self._root, texts, stop_at, there), daemon=True
        )
        child.start()
        there.close()
        try:
            self._port = here.recv()
        except EOFError:  # it died before it was ready, as it was told to
            return child
        return child

    def _watch(self) -> None:
        while True:
            self._child.join()
            if self._is_over:
                return
            self.deaths += 1
            self._child = self._start(None)


def _serve(root: Path, texts: Mapping[str, str], stop_at: StopAt, ready: Connection) -> None:
    files = FaultyFiles(stop_at=stop_at, on_stop=kill_self)
    broker = BrokerProcess(root, ServiceSettings.of(texts, "test"), files=files)
    broker.start()
    ready.send(broker.port)
    threading.Event().wait()
