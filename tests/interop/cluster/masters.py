"""A cluster of two masters and two name servers, any of which can be killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.clients.cluster.cluster import ClusterBroker
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from tests.interop.cluster.opening import opened
from tests.interop.kit.servers import Broker, NameServer

TOPIC = "Spread"


@dataclass
class Cluster:
    """Two of each; a master that was killed can be started again, at another address."""

    name_servers: tuple[NameServer, NameServer]
    masters: dict[str, Broker]
    scratch: Path

    @property
    def address(self) -> str:
        return "rocketmq://" + ",".join(server.address for server in self.name_servers)

    def start(self, name: str) -> None:
        addresses = ";".join(server.address for server in self.name_servers)
        settings = {"brokerName": name, "namesrvAddr": addresses}
        self.masters[name] = Broker(
            self.scratch / name, self.name_servers[0], self.scratch, settings
        )

    def open(self, brokers: int = 2) -> ClusterBroker:
        return opened(*(server.address for server in self.name_servers), brokers=brokers)


@contextmanager
def two_masters(scratch: Path) -> Iterator[Cluster]:
    """Start all four; kill all that still run."""
    with NameServer(scratch) as first, NameServer(scratch) as second:
        found = Cluster((first, second), {}, scratch)
        try:
            for name in ("broker-a", "broker-b"):
                found.start(name)
            yield found
        finally:
            for process in (*found.masters.values(), first, second):
                process.kill()


def batch(write_queues: NDArray[np.int32], prefix: str) -> MessageBatch:
    """A message for each write queue, with unique keys that begin with the prefix."""
    count = len(write_queues)
    keys = pa.array([f"{prefix}-{number}" for number in range(count)])
    return MessageBatch(
        topics=[TOPIC],
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=write_queues,
        bodies=pa.array([b"body %d" % number for number in range(count)], type=pa.binary()),
        properties=join_properties([("UNIQ_KEY", keys)], count),
    )
