"""Name servers: any of them answers, and what one does not know another may."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from broker_core.clients.cluster.net.connection import RemotingConnections
from broker_core.clients.cluster.route.name_servers import NameServers
from broker_core.errors import UnavailableError
from broker_core.wire.remoting.command import Command
from broker_core.wire.remoting.frame import RemotingProtocolError
from tests.unit.clients.cluster.fake_cluster import SETTINGS, FakeBroker, FakeCluster
from tests.unit.clients.cluster.peer import Answer, Peer, answer


def name_servers(*peers: Peer) -> NameServers:
    return NameServers([peer.endpoint for peer in peers], RemotingConnections(SETTINGS))


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
