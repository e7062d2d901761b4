"""Routes and endpoints: read from both kinds of JSON."""

from __future__ import annotations

import pytest

from broker_core.errors import UnsupportedError
from broker_core.wire.remoting.route import (
    BrokerRoute,
    Endpoint,
    parse_cluster_info,
    parse_endpoint,
    parse_route,
)

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b",'
    b'"cluster":"C"},{"brokerAddrs":{1:"10.0.0.3:10911"},"brokerName":"a","cluster":"C"}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":3,'
    b'"writeQueueNums":2},{"brokerName":"a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'
)


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


def test_endpoint_shows_brackets_around_v6() -> None:
    assert str(Endpoint("::1", 9876)) == "[::1]:9876"
