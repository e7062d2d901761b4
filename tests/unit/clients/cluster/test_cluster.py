"""The cluster as a Broker: what every kind of broker offers, over several brokers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from broker_core import open_broker
from broker_core.api import Broker
from broker_core.clients.cluster.cluster import ClusterBroker
from broker_core.codec.hosts import pack_host
from broker_core.codec.ids import offset_id
from broker_core.errors import (
    AddressError,
    ConfigError,
    MessageNotFoundError,
    OffsetRangeError,
    RequestError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedError,
)
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import Command, RequestCode, ResponseCode
from tests.unit.clients.cluster.fake_cluster import FakeBroker, FakeCluster
from tests.unit.clients.cluster.peer import Answer, answer

A0, B0, B1 = (QueueRef("orders", f"broker-{name}", n) for name, n in (("a", 0), ("b", 0), ("b", 1)))

# Spark's spelling is taken too.
SPELT_AS_OPTIONS: dict[str, Any] = {"accessKey": "reader", "secretKey": "hush"}


@pytest.fixture
def brokers() -> tuple[FakeBroker, FakeBroker]:
    return FakeBroker("broker-a", {"orders": 1}), FakeBroker("broker-b", {"orders": 2, "one": 1})


@pytest.fixture
def cluster(brokers: tuple[FakeBroker, FakeBroker]) -> Iterator[FakeCluster]:
    brokers[0].fill("orders", 0, 10)
    brokers[1].fill("orders", 1, 20)
    with FakeCluster(*brokers) as found:
        yield found


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[ClusterBroker]:
    with cluster.open() as found:
        yield found


def test_it_is_a_broker(client: ClusterBroker) -> None:
    assert isinstance(client, Broker)


def test_address_opens_it(cluster: FakeCluster) -> None:
    with open_broker(f"rocketmq://{cluster.name_server.endpoint}") as broker:
        assert broker.topics() == ["one", "orders"]
        assert broker.describe("orders").queues == (A0, B0, B1)


@pytest.mark.parametrize("address", ["rocketmq://", "rocketmq://host", "rocketmq://a:b@host:1"])
def test_address_that_is_none_is_refused_without_its_credentials(address: str) -> None:
    with pytest.raises(AddressError) as caught:
        open_broker(address)

    assert "a:b" not in str(caught.value)


def test_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean secret_key"):
        open_broker("rocketmq://host:1", secretkey="x")  # type: ignore[call-arg]  # on purpose


def test_secrets_are_never_shown() -> None:
    broker = open_broker("rocketmq://host:1", **SPELT_AS_OPTIONS)

    shown = repr(broker) + repr(vars(broker)) + str(vars(broker)["_settings"])

    assert "hush" not in shown


def test_it_pickles_as_what_it_was_opened_with(cluster: FakeCluster) -> None:
    address = f"rocketmq://{cluster.name_server.endpoint}"
    broker = open_broker(address, "rw", **SPELT_AS_OPTIONS)
    broker.topics()

    again = pickle.loads(pickle.dumps(broker))

    assert again.address == address
    assert again.topics() == ["one", "orders"]


def test_offsets_are_of_all_brokers(client: ClusterBroker) -> None:
    assert client.offsets("orders") == {A0: (0, 10), B0: (0, 0), B1: (0, 20)}


def test_offsets_of_a_missing_topic(client: ClusterBroker) -> None:
    with pytest.raises(TopicNotFoundError, match="'nowhere'"):
        client.offsets("nowhere")


def test_what_was_sent_is_waited_for_before_offsets_are_told(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    sent = client.send("orders", b"new", queue_id=2)
    slow = [10, 19, 20]

    def not_yet(request: Command) -> Iterable[Answer]:
        return [answer(request, ext={"offset": str(slow.pop(0))})]

    brokers[1].faults += [not_yet, not_yet, not_yet]

    assert (sent.queue, client.offsets("orders")[B1]) == (B1, (0, 21))
    assert slow == []


def test_broker_that_is_down_counts_with_what_it_said_last(
    client: ClusterBroker, cluster: FakeCluster, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    client.offsets("orders")
    brokers[1].peer.close()
    cluster.registered.remove("broker-b")
    brokers[0].put("orders", 0, b"new")

    assert client.offsets("orders") == {A0: (0, 11), B0: (0, 0), B1: (0, 20)}


def test_known_cluster_is_asked_without_its_name_servers(
    client: ClusterBroker, cluster: FakeCluster, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    known = client.offsets("orders")
    cluster.name_server.close()
    brokers[0].put("orders", 0, b"new")
    client._instance.routes.expire("orders")

    assert client.offsets("orders") == {**known, A0: (0, 11)}


def test_broker_that_was_never_reached_is_unavailable(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    brokers[1].peer.close()

    with pytest.raises(UnavailableError, match="can't be reached"):
        client.offsets("orders")


def test_queue_number_on_several_brokers_needs_the_brokers_name(client: ClusterBroker) -> None:
    with pytest.raises(RequestError, match="queue 0 on each of broker-a, broker-b; name"):
        client.read("orders", 0)

    assert len(client.read("orders", 0, broker_name="broker-a")) == 10
    assert len(client.read("orders", 1)) == 20


def test_read_takes_a_range_columns_and_a_filter(client: ClusterBroker) -> None:
    table = client.read("orders", 1, 4, 9, tags="A", columns=["queueOffset", "tags", "brokerName"])

    assert table.to_pydict() == {
        "queueOffset": [5, 7],
        "tags": ["A", "A"],
        "brokerName": ["broker-b", "broker-b"],
    }


def test_read_beyond_the_end_is_an_error(client: ClusterBroker) -> None:
    with pytest.raises(OffsetRangeError):
        client.read("orders", 1, 0, 30)


def test_group_offsets_are_written_and_read(client: ClusterBroker) -> None:
    assert client.consumer_offsets("group", "orders") == {}

    client.commit_offset("group", "orders", 1, 7)
    client.commit_offset("group", "orders", 0, 3, broker_name="broker-a")

    assert client.consumer_offsets("group", "orders") == {A0: 3, B1: 7}


def test_group_that_a_broker_does_not_know_is_made(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    missing = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    brokers[1].faults += [lambda r: [answer(r, missing)], lambda r: [answer(r)]]

    client.commit_offset("group", "orders", 1, 7)

    codes = [request.code for request in brokers[1].peer.requests]
    assert codes[-2:] == [
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    ]
    assert client.consumer_offsets("group", "orders") == {B1: 7}


def test_release_4_makes_up_a_zero_that_does_not_count(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    def zero(request: Command) -> Iterable[Answer]:
        return [answer(request, ext={"offset": "0"})._replace(version=405)]

    def table(request: Command) -> Iterable[Answer]:
        return [answer(request, body=b'{"offsetTable":{"orders@group":{1:0},"orders@g":{0:5}}}')]

    brokers[1].faults += [zero, zero, table]

    assert client.consumer_offsets("group", "orders") == {B1: 0}


def test_search_by_time_corrects_the_broker(client: ClusterBroker) -> None:
    found = [client.offset_at("orders", 1, time_ms) for time_ms in (0, 1005, 1010, 1019, 99_999)]

    assert found == [0, 5, 10, 19, 20]


def test_query_compares_texts_and_asks_every_broker(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    brokers[0].put("orders", 0, b"first", b"KEYS\x01k2\x02")
    brokers[1].put("orders", 1, b"second", b"KEYS\x01k1 k2\x02UNIQ_KEY\x01u1\x02")

    by_key, by_unique_key = client.query("orders", "k2"), client.query("orders", "u1")

    assert sorted(by_key.column("body").to_pylist()) == [b"first", b"second"]
    assert by_unique_key.column("body").to_pylist() == [b"second"]
    assert len(client.query("orders", "k")) == 0


def test_message_is_found_by_either_id(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    record = brokers[1].put("orders", 1, b"mine", b"UNIQ_KEY\x01" + b"AB" * 16 + b"\x02")

    found = [client.message(record.offset_id), client.message("AB" * 16)]

    assert [table.column("body").to_pylist() for table in found] == [[b"mine"], [b"mine"]]
    assert found[0].column("brokerName").to_pylist() == ["broker-b"]


def test_offset_id_leads_only_to_registered_brokers(client: ClusterBroker) -> None:
    elsewhere = pack_host("127.0.0.1", 9)

    with pytest.raises(MessageNotFoundError, match="No message with id 7F000001"):
        client.message(offset_id(elsewhere, 5))


def test_namespace_is_around_names_on_the_wire_only(
    cluster: FakeCluster, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    brokers[1].topics["tenant%bills"] = 1
    client = cluster.open(namespace="tenant")

    sent = client.send("bills", b"body")
    client.commit_offset("group", "bills", 0, 1)

    assert client.topics() == ["bills"]
    assert list(client.offsets("bills")) == [QueueRef("bills", "broker-b", 0)]
    assert (sent.topic, len(brokers[1].queues["tenant%bills", 0])) == ("bills", 1)
    assert brokers[1].groups == {("tenant%group", "tenant%bills", 0): 1}
    assert client.read("bills").column("body").to_pylist() == [b"body"]


def test_what_a_cluster_has_no_way_to_do_names_both(client: ClusterBroker) -> None:
    with pytest.raises(UnsupportedError, match=r"delete_before.*rocketmq://fake"):
        client.delete_before(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.create_topic("new"),
        lambda client: client.add_queues("orders", 9),
        lambda client: client.delete_topic("orders"),
        lambda client: client.commit_offset("group", "orders", 1, 1),
    ],
    ids=["create", "grow", "delete", "commit"],
)
def test_reading_mode_changes_nothing(cluster: FakeCluster, call: object) -> None:
    client = cluster.open("r")

    with pytest.raises(RequestError, match="mode='rw'"):
        call(client)  # type: ignore[operator]  # a function
