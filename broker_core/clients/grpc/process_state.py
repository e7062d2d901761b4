"""What a client has that belongs to one process: nothing of it may be used across a fork."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from broker_core.clients.grpc.connection import Connection
from broker_core.clients.grpc.send import Appender
from broker_core.clients.grpc.topic_cache import TopicCache
from broker_core.codec.ids import UniqueIds

if TYPE_CHECKING:
    from broker_core.clients.address import BrokerAddress
    from broker_core.clients.grpc.options import GrpcOptions


class SharedIds:
    """Unique ids for several threads, one at a time."""

    def __init__(self) -> None:
        self._ids = UniqueIds()
        self._lock = threading.Lock()

    def make(self, now_ms: int) -> str:
        """Return a fresh id."""
        with self._lock:
            return self._ids.make_one(now_ms)


class ProcessState(NamedTuple):
    """Sockets, locks, names and caches of one process."""

    pid: int
    connection: Connection
    sender: Appender
    topics: TopicCache
    unique_ids: SharedIds

    @classmethod
    def make(cls, address: BrokerAddress, options: GrpcOptions) -> ProcessState:
        """Make it anew, for the process that calls."""
        connection = Connection(address, options)
        return cls(
            os.getpid(), connection, Appender(connection), TopicCache(connection), SharedIds()
        )
