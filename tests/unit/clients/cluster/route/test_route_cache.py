"""Routes: read from both kinds of JSON, remembered, and right about brokers that are down."""

from __future__ import annotations

import threading

import pytest

from broker_core.clients.cluster.net.connection import RemotingConnections
from broker_core.clients.cluster.route.name_servers import NameServers
from broker_core.clients.cluster.route.route_cache import RouteCache
from broker_core.errors import TopicNotFoundError, UnavailableError
from broker_core.types import QueueRef
from tests.unit.clients.cluster.fake_cluster import SETTINGS, FakeBroker, FakeCluster
from tests.unit.clients.cluster.peer import Peer


def name_servers(*peers: Peer) -> NameServers:
    return NameServers([peer.endpoint for peer in peers], RemotingConnections(SETTINGS))


def test_route_is_looked_up_again_when_it_is_old() -> None:
    now = [0.0]
    broker = FakeBroker("broker-a", {"orders": 1})
    with FakeCluster(broker) as cluster:
        routes = RouteCache(name_servers(cluster.name_server), lambda: now[0])
        routes.find("orders")
        broker.topics["orders"] = 5

        young, now[0] = len(routes.find("orders").readable()), 31.0
        old = len(routes.find("orders").readable())

    assert (young, old) == (1, 5)


def test_known_route_outlives_the_name_servers() -> None:
    now = [0.0]
    with FakeCluster(FakeBroker("broker-a", {"orders": 1})) as cluster:
        routes = RouteCache(name_servers(cluster.name_server), lambda: now[0])
        routes.find("orders")
        cluster.name_server.close()
        now[0] = 31.0

        assert len(routes.find("orders").readable()) == 1
        with pytest.raises(UnavailableError):
            routes.find("orders", max_age_s=0)


def test_missing_topic_is_named() -> None:
    with FakeCluster(FakeBroker("broker-a", {"orders": 1})) as cluster:
        routes = RouteCache(name_servers(cluster.name_server))

        with pytest.raises(TopicNotFoundError, match="'payments'"):
            routes.find("payments")


def test_topic_without_any_registered_broker_is_not_called_missing() -> None:
    with FakeCluster(FakeBroker("broker-a", {"orders": 1})) as cluster:
        cluster.registered.clear()
        routes = RouteCache(name_servers(cluster.name_server))

        with pytest.raises(UnavailableError, match="No broker is registered"):
            routes.find("orders")


def test_broker_that_is_down_is_absent_and_its_queues_stay() -> None:
    brokers = FakeBroker("broker-a", {"orders": 1}), FakeBroker("broker-b", {"orders": 2})
    with FakeCluster(*brokers) as cluster:
        routes = RouteCache(name_servers(cluster.name_server))
        routes.find("orders")
        cluster.registered.remove("broker-b")

        route = routes.find("orders", max_age_s=0)

        assert QueueRef("orders", "broker-b", 1) in route.readable()
        assert route.absent == {"broker-b"}
        with pytest.raises(UnavailableError, match="broker-b has no master"):
            _ = route.broker("broker-b").master
        cluster.registered.add("broker-b")
        assert routes.find("orders", max_age_s=0).absent == frozenset()


def test_broker_that_is_up_without_the_topic_has_had_it_deleted() -> None:
    brokers = FakeBroker("broker-a", {"orders": 1}), FakeBroker("broker-b", {"orders": 2})
    with FakeCluster(*brokers) as cluster:
        routes = RouteCache(name_servers(cluster.name_server))
        routes.find("orders")
        del brokers[1].topics["orders"]

        assert len(routes.find("orders", max_age_s=0).readable()) == 1
        del brokers[0].topics["orders"]
        with pytest.raises(TopicNotFoundError):
            routes.find("orders", max_age_s=0)


def test_all_brokers_down_is_unavailable_not_missing() -> None:
    with FakeCluster(FakeBroker("broker-a", {"orders": 1}), FakeBroker("other", {})) as cluster:
        routes = RouteCache(name_servers(cluster.name_server))
        routes.find("orders")
        cluster.registered.remove("broker-a")

        with pytest.raises(UnavailableError, match="broker-a"):
            routes.find("orders", max_age_s=0)


def test_brokers_that_restart_are_waited_for_while_a_name_server_answers() -> None:
    with FakeCluster(FakeBroker("broker-a", {"orders": 1})) as cluster:
        routes = RouteCache(name_servers(cluster.name_server))
        cluster.registered.clear()
        with pytest.raises(UnavailableError, match="No broker is registered"):
            routes.await_brokers("orders", patience_ms=0)

        back = threading.Timer(0.05, cluster.registered.add, ["broker-a"])
        back.start()
        route = routes.await_brokers("orders", patience_ms=60_000)
        back.join()

        assert route.readable() == [QueueRef("orders", "broker-a", 0)]
    with pytest.raises(UnavailableError):  # at once: nobody answers any more
        routes.await_brokers("orders", patience_ms=3_600_000)
