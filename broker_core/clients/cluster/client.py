"""Opens clusters: what broker_core.open_broker calls for `rocketmq://` addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.clients.cluster.cluster import ClusterBroker
from broker_core.clients.cluster.settings import ClusterSettings
from broker_core.wire.remoting.endpoint import parse_endpoint

if TYPE_CHECKING:
    from broker_core.clients.address import BrokerAddress


def open_client(address: BrokerAddress, mode: str, **options: Any) -> ClusterBroker:
    """A cluster by its name servers. Nobody is asked before the first call.

    `options` are named as in settings.py; ConfigError for one that is unknown.
    """
    servers = [parse_endpoint(host) for host in address.hosts]
    return ClusterBroker(address.text, servers, ClusterSettings.of(options), mode)
