"""Routes: read from both kinds of JSON, remembered, and right about brokers that are down."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from broker_core.clients.cluster.net.connection import RemotingConnections
from broker_core.clients.cluster.route.name_servers import NameServers
from broker_core.clients.cluster.route.route_cache import RouteCache
from broker_core.clients.cluster.topics import grow, spread
from broker_core.errors import TopicNotFoundError, UnavailableError, UnsupportedError
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import Command
from broker_core.wire.remoting.frame import RemotingProtocolError
from broker_core.wire.remoting.route import (
    BrokerRoute,
    Endpoint,
    parse_cluster_info,
    parse_endpoint,
    parse_route,
)
from tests.unit.clients.cluster.fake_cluster import SETTINGS, FakeBroker, FakeCluster
from tests.unit.clients.cluster.peer import Answer, Peer, answer

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b",'
    b'"cluster":"C"},{"brokerAddrs":{1:"10.0.0.3:10911"},"brokerName":"a","cluster":"C"}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":3,'
    b'"writeQueueNums":2},{"brokerName":"a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'
)


def name_servers(*peers: Peer) -> NameServers:
    return NameServers([peer.endpoint for peer in peers], RemotingConnections(SETTINGS))


def test_queues_are_read_on_all_brokers_and_written_on_masters() -> None:
    route = parse_route("t", ROUTE)

    assert [str(queue) for queue in route.readable()] == ["t/a/0", "t/b/0", "t/b/1", "t/b/2"]
    assert [str(queue) for queue in route.writable()] == ["t/b/0", "t/b/1"]


def test_permission_is_kept() -> None:
    route = parse_route("t", ROUTE.replace(b'"perm":6', b'"perm":4', 1))

    assert route.writable() == []
    assert len(route.readable()) == 4


def test_replica_is_chosen_by_id_then_the_next_then_any() -> None:
    broker = BrokerRoute("b", "C", {0: Endpoint("m", 1), 2: Endpoint("s", 1)})

    assert broker.replica(0).host == "m"
    assert broker.replica(1).host == "s"
    assert broker.replica(7).host == "m"


def test_static_topic_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="static topic"):
        parse_route("t", b'{"topicQueueMappingByBroker":{"b":{}}}')


def test_cluster_is_read_in_the_servers_own_json() -> None:
    text = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1"},"brokerName":"b","cluster":"C"}}}'

    assert parse_cluster_info(text) == {"b": BrokerRoute("b", "C", {0: Endpoint("h", 1)})}


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:0", "host:65536", "host:1x"])
def test_text_that_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_endpoint(text)


def test_next_name_server_is_asked_when_one_is_down() -> None:
    with FakeCluster(FakeBroker("broker-a", {"orders": 1})) as cluster:
        dead = Peer(lambda _: [])
        dead.close()
        servers = name_servers(dead, cluster.name_server)

        found = [servers.route("orders") for _ in range(3)]

    assert all(route is not None for route in found)


def test_other_name_servers_may_know_a_topic_that_one_does_not() -> None:
    broker = FakeBroker("broker-a", {"orders": 1})
    with FakeCluster(broker) as knowing, FakeCluster() as ignorant:
        servers = name_servers(ignorant.name_server, knowing.name_server)

        assert servers.route("orders") is not None
        assert servers.route("payments") is None


def test_no_name_server_at_all_names_each() -> None:
    dead = [Peer(lambda _: []), Peer(lambda _: [])]
    for peer in dead:
        peer.close()

    with pytest.raises(UnavailableError, match="No name server can be asked") as caught:
        name_servers(*dead).topics()

    assert all(str(peer.endpoint) in str(caught.value) for peer in dead)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"topicList":7}', b"\xff"])
def test_odd_answer_is_a_broken_peer(body: bytes) -> None:
    with (
        Peer(lambda request: [answer(request, body=body)]) as peer,
        pytest.raises(RemotingProtocolError, match=str(peer.endpoint)),
    ):
        name_servers(peer).topics()


def test_name_server_that_is_not_ready_is_no_missing_topic() -> None:
    def starting(request: Command) -> Iterable[Answer]:
        return [answer(request, 1, remark="name server not ready")]

    with Peer(starting) as peer, pytest.raises(UnavailableError, match="not ready"):
        name_servers(peer).route("orders")


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


@pytest.mark.parametrize(
    ("total", "has", "expected"),
    [
        (8, {"a": 4, "b": 4}, {"a": 4, "b": 4}),
        (9, {"a": 4, "b": 4}, {"a": 5, "b": 4}),
        (5, {"a": 5, "b": 0}, {"a": 5, "b": 0}),
        (10, {"a": 6, "b": 0}, {"a": 6, "b": 4}),
    ],
)
def test_growing_topic_evens_out_and_takes_nothing_away(
    total: int, has: dict[str, int], expected: dict[str, int]
) -> None:
    assert grow(total, has) == expected


def test_new_topic_is_spread_evenly() -> None:
    assert spread(7, ["c", "a", "b"]) == {"a": 3, "b": 2, "c": 2}
