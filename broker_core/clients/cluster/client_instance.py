"""Who is where, and how to ask them: routes, connections and name servers of one cluster."""

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
    """All that is needed to ask a cluster's servers; thread-safe, and safe across forks."""

    def __init__(self, servers: Sequence[Endpoint], settings: ClusterSettings) -> None:
        self.settings = settings
        self.connections = RemotingConnections(settings)
        self.name_servers = NameServers(servers, self.connections)
        self.routes = RouteCache(self.name_servers)
        self.acknowledged = ReadYourWrites()

    def close(self) -> None:
        """Hang up on everyone; asking again dials again."""
        self.connections.close()

    def ask_master(
        self, topic: str, broker_name: str, requests: Iterable[Request]
    ) -> tuple[str, list[Command]]:
        """Ask the master of a broker that holds a topic; who was asked, and the answers in order.

        The requests must bear repeating: a connection that turns out to be lost, or a master that
        has moved, is tried once more with a fresh route.
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
        return asked(broker.name, server), self.connections.to(server).call_all(requests)


def asked(broker_name: str, server: Endpoint) -> str:
    """How messages name a broker.

    >>> asked("broker-a", Endpoint("10.0.0.5", 10911))
    'Broker broker-a (10.0.0.5:10911)'
    """
    return f"Broker {broker_name} ({server})"
