"""The client instance: what all parts of one client share to ask a cluster's servers.

It owns the connections, the name servers, the routes, and the ends of queues that this client's own
sends imply (read_your_writes.py). Everything above it (topics, offsets, query, pull, send) asks
through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_core.clients.cluster.net.connection import RemotingConnections
from broker_core.clients.cluster.read_your_writes import ReadYourWrites
from broker_core.clients.cluster.route.name_servers import NameServers
from broker_core.clients.cluster.route.route_cache import RouteCache
from broker_core.clients.cluster.settings import ClusterSettings
from broker_core.errors import UnavailableError
from broker_core.wire.remoting.command import Command, Request
from broker_core.wire.remoting.frame import RemotingProtocolError
from broker_core.wire.remoting.route import BrokerRoute, Endpoint


class ClientInstance:
    """Connections, name servers and routes of one cluster; thread-safe, and safe across forks."""

    def __init__(self, servers: Sequence[Endpoint], settings: ClusterSettings) -> None:
        self.settings = settings
        self.connections = RemotingConnections(settings)
        self.name_servers = NameServers(servers, self.connections)
        self.routes = RouteCache(self.name_servers)
        self.acknowledged = ReadYourWrites()

    def close(self) -> None:
        """Close all connections; asking again opens new ones."""
        self.connections.close()

    def ask_master(
        self, topic: str, broker_name: str, requests: Iterable[Request]
    ) -> tuple[str, list[Command]]:
        """Ask the master of a broker that holds a topic.

        Return the broker's label for messages, and the answers in order. The requests must bear
        repeating: after a lost connection or a moved master they are sent once more, with a fresh
        route.
        """
        asking = list(requests)
        broker = self.routes.find(topic).broker(broker_name)
        try:
            return self._ask(broker, asking)
        except RemotingProtocolError:
            raise
        except UnavailableError:
            broker = self.routes.find(topic, max_age_s=0.0).broker(broker_name)
            return self._ask(broker, asking)

    def _ask(self, broker: BrokerRoute, requests: list[Request]) -> tuple[str, list[Command]]:
        server = broker.master
        return broker_label(broker.name, server), self.connections.to(server).call_all(requests)


def broker_label(broker_name: str, server: Endpoint) -> str:
    """Return the text that names a broker in messages.

    >>> broker_label("broker-a", Endpoint("10.0.0.5", 10911))
    'Broker broker-a (10.0.0.5:10911)'
    """
    return f"Broker {broker_name} ({server})"
