"""The connections of one process: one to each server, made when first needed."""

from __future__ import annotations

import os
import threading

from broker_core.clients.cluster.net.connection import RemotingConnection
from broker_core.clients.cluster.settings import ClusterSettings
from broker_core.wire.remoting.command import Command, Request
from broker_core.wire.remoting.endpoint import Endpoint


class RemotingConnections:
    """Connections by server; thread-safe. A forked child starts without any of its parent's."""

    _lock: threading.Lock
    _dialling: dict[Endpoint, threading.Lock]
    _open: dict[Endpoint, RemotingConnection]
    _process_id: int

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._begin()

    def to(self, server: Endpoint) -> RemotingConnection:
        """A usable connection to a server, the one there is or a new one."""
        if self._process_id != os.getpid():
            self._begin()
        with self._lock:
            found = self._open.get(server)
            lock = self._dialling.setdefault(server, threading.Lock())
        if found is not None and found.is_usable:
            return found
        with lock:  # So that threads do not dial one server twice; others are not held up.
            found = self._open.get(server)
            if found is None or not found.is_usable:
                found = self._open[server] = RemotingConnection(server, self.settings)
        return found

    def call(self, server: Endpoint, request: Request, timeout_ms: float | None = None) -> Command:
        """Ask one server and wait for its answer."""
        return self.to(server).call(request, timeout_ms)

    def close(self) -> None:
        """Hang up on all of them; asking again dials again."""
        if self._process_id != os.getpid():
            self._begin()
        with self._lock:
            closing, self._open = list(self._open.values()), {}
        for connection in closing:
            connection.close()

    def _begin(self) -> None:
        # Fresh locks, too: a thread of the parent may have held the old ones when it forked.
        self._lock = threading.Lock()
        self._dialling = {}
        self._open = {}
        self._process_id = os.getpid()
