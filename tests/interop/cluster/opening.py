"""Clients of real clusters that are ready to be asked."""

from __future__ import annotations

import time
from typing import Any

from broker_core import open_broker
from broker_core.clients.cluster.cluster import ClusterBroker
from broker_core.errors import TopicNotFoundError, UnavailableError
from broker_core.types import Mode

_READY_TIMEOUT_S = 60
_TEMPLATE = "TBW102"


def opened(
    *name_servers: str, brokers: int = 1, mode: Mode = "rw", **options: Any
) -> ClusterBroker:
    """A client of a cluster of which so many brokers are registered, with every name server.

    On a busy machine a broker says that it is up before a name server has heard of it.
    """
    deadline = time.monotonic() + _READY_TIMEOUT_S
    for name_server in name_servers:
        with _client(mode, name_server, **options) as asking:
            while _registered(asking) < brokers:
                assert time.monotonic() < deadline, f"{name_server} knows fewer than {brokers}"
                time.sleep(0.05)
    return _client(mode, *name_servers, **options)


def _client(mode: Mode, *name_servers: str, **options: Any) -> ClusterBroker:
    found = open_broker(f"rocketmq://{','.join(name_servers)}", mode, **options)
    assert isinstance(found, ClusterBroker)
    return found


def await_count(ours: ClusterBroker, topic: str, count: int) -> None:
    """Look until a topic has so many messages; the test's own time limit is the end."""
    while sum(high for _, high in ours.offsets(topic).values()) < count:
        time.sleep(0.02)


def _registered(ours: ClusterBroker) -> int:
    try:
        return len({queue.broker_name for queue in ours.describe(_TEMPLATE).queues})
    except (UnavailableError, TopicNotFoundError):
        return 0
