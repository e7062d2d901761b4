"""Sending: all is acknowledged, in order within a queue, elsewhere if a broker fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from broker_core.clients.cluster.cluster import ClusterBroker
from broker_core.clients.cluster.send.plan import ANY_WRITE_QUEUE
from broker_core.codec.compression import compression_flags
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.record import Record
from broker_core.errors import (
    BrokerError,
    IllegalMessageError,
    RequestError,
    TopicNotFoundError,
    UnavailableError,
)
from broker_core.wire.remoting.command import Command, RequestCode
from broker_core.wire.remoting.frame import RemotingProtocolError
from tests.unit.clients.cluster.fake_cluster import FakeBroker, FakeCluster
from tests.unit.clients.cluster.peer import Answer, answer


def outgoing(
    bodies: Sequence[bytes],
    queue_ids: Sequence[int] | int = 0,
    properties: Sequence[bytes] | None = None,
    sys_flags: Sequence[int] | None = None,
) -> MessageBatch:
    count = len(bodies)
    queues = [queue_ids] * count if isinstance(queue_ids, int) else list(queue_ids)
    texts = [b"UNIQ_KEY\x01u%d\x02" % number for number in range(count)]
    return MessageBatch(
        topics=["orders"],
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=np.array(queues, dtype=np.int32),
        bodies=pa.array(list(bodies), type=pa.binary()),
        properties=pa.array(list(properties or texts), type=pa.binary()),
        born_timestamps=5,
        sys_flags=0 if sys_flags is None else np.array(sys_flags, dtype=np.int32),
    )


@pytest.fixture
def brokers() -> tuple[FakeBroker, FakeBroker]:
    return FakeBroker("broker-a", {"orders": 2}), FakeBroker("broker-b", {"orders": 2})


@pytest.fixture
def cluster(brokers: tuple[FakeBroker, FakeBroker]) -> Iterator[FakeCluster]:
    with FakeCluster(*brokers) as found:
        yield found


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[ClusterBroker]:
    with cluster.open() as found:
        yield found


def stored(*brokers: FakeBroker) -> dict[tuple[str, int], list[bytes]]:
    return {
        (broker.name, queue_id): [record.body for record in records]
        for broker in brokers
        for (_, queue_id), records in sorted(broker.queues.items())
        if records
    }


def records(*brokers: FakeBroker) -> list[Record]:
    return [record for broker in brokers for queue in broker.queues.values() for record in queue]


# The sending


def test_write_queues_are_the_queues_of_all_brokers(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    result = client.append(outgoing([b"0", b"1", b"2", b"3", b"3 again"], [0, 1, 2, 3, 3]))

    assert stored(*brokers) == {
        ("broker-a", 0): [b"0"],
        ("broker-a", 1): [b"1"],
        ("broker-b", 0): [b"2"],
        ("broker-b", 1): [b"3", b"3 again"],
    }
    assert result.queue_offsets.tolist() == [0, 0, 0, 0, 1]
    assert result.queue_ids.tolist() == [0, 1, 2, 3, 3]


def test_result_tells_where_each_message_lies(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    result = client.append(outgoing([b"%d" % n for n in range(50)], [n % 2 for n in range(50)]))

    by_body = {record.body: record for record in records(*brokers)}
    expected = [by_body[b"%d" % n] for n in range(50)]
    assert result.queue_offsets.tolist() == [record.queue_offset for record in expected]
    assert result.physical_offsets.tolist() == [record.physical_offset for record in expected]


def test_write_queue_that_is_not_there_is_refused(client: ClusterBroker) -> None:
    with pytest.raises(RequestError, match="queues 0 to 3 to write to, not 4"):
        client.append(outgoing([b"x"], 4))


def test_missing_topic_is_not_found(client: ClusterBroker) -> None:
    with pytest.raises(TopicNotFoundError, match="'payments'"):
        client.append(replace(outgoing([b"x"]), topics=["payments"]))


def test_many_units_keep_their_order_in_every_queue(
    cluster: FakeCluster, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    bodies = [b"%05d" % number for number in range(2000)]
    with cluster.open(batch_bytes=500) as client:
        client.append(outgoing(bodies, [number % 4 for number in range(2000)]))

    found = stored(*brokers)
    assert all(queue == sorted(queue) for queue in found.values())
    assert sorted(body for queue in found.values() for body in queue) == bodies


@pytest.mark.parametrize("code", [2, 14, 215, 1500])
def test_busy_broker_gets_the_unit_again(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker], code: int
) -> None:
    brokers[0].faults += [lambda request: [answer(request, code, remark="[OVERLOAD]")]] * 2

    client.append(outgoing([b"%d" % n for n in range(10)]))

    assert stored(*brokers) == {("broker-a", 0): [b"%d" % n for n in range(10)]}
    assert client.possible_duplicates == 0


def test_unit_with_a_write_queue_waits_for_its_broker(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    brokers[0].faults += [lambda request: [None]] * 2

    client.append(outgoing([b"a", b"b"], 1))

    assert stored(*brokers) == {("broker-a", 1): [b"a", b"b"]}
    assert client.possible_duplicates == 4


def test_unit_for_any_queue_goes_to_another_broker(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    fault = lambda request: [answer(request, 14, remark="disk full")]  # noqa: E731  # one line
    brokers[0].faults += [fault] * 100

    for number in range(4):
        client.append(outgoing([b"%d" % number], ANY_WRITE_QUEUE))

    assert {name for name, _ in stored(*brokers)} == {"broker-b"}
    assert len(records(*brokers)) == 4


def test_lost_acknowledgement_means_sent_again_and_is_counted(
    cluster: FakeCluster, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    def store_and_keep_silent(request: Command) -> Iterable[Answer]:
        brokers[0]._send_batch(request)
        return []

    brokers[0].faults.append(store_and_keep_silent)

    with cluster.open(request_timeout_ms=50) as client:
        client.append(outgoing([b"a", b"b"]))

    assert stored(*brokers) == {("broker-a", 0): [b"a", b"b", b"a", b"b"]}
    assert client.possible_duplicates == 2


def test_patience_ends_with_what_was_not_sent(
    cluster: FakeCluster, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    brokers[0].peer.close()

    with (
        cluster.open(send_timeout_ms=100) as client,
        pytest.raises(UnavailableError, match=r"3 messages for orders .* 0.1 s \(sendTimeoutMs\)"),
    ):
        client.append(outgoing([b"a", b"b", b"c", b"d"], [0, 0, 1, 2]))


def test_refusal_for_good_is_not_repeated(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    brokers[0].faults.append(lambda request: [answer(request, 13, remark="the message is illegal")])

    with pytest.raises(IllegalMessageError, match="broker-a"):
        client.append(outgoing([b"a"]))

    assert records(*brokers) == []


@pytest.mark.parametrize("code", [10, 11, 12])
def test_stored_but_unconfirmed_counts_unless_sync_is_asked_for(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker], code: int
) -> None:
    def unconfirmed(request: Command) -> Iterable[Answer]:
        return [brokers[0]._send(request)._replace(code=code)]

    brokers[0].faults.append(unconfirmed)
    client.append(outgoing([b"a"]))
    brokers[0].faults.append(unconfirmed)
    with pytest.raises(BrokerError, match="flush=sync") as caught:
        client.append(outgoing([b"b"]), flush="sync")

    assert not caught.value.retryable
    assert len(records(*brokers)) == 2


def test_odd_acknowledgement_is_a_broken_peer(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    brokers[0].faults.append(lambda request: [answer(request, ext={"queueId": "x"})])

    with pytest.raises(RemotingProtocolError, match="oddly"):
        client.append(outgoing([b"a"]))


# Single messages


def test_single_message_has_what_clients_add(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    sent = client.send(
        "orders", b"body", tags="A", keys=["k1", "k2"], properties={"p": "1"}, queue_id=3
    )

    (record,) = brokers[1].queues["orders", 1]
    assert record.property_map == {"UNIQ_KEY": sent.msg_id, "TAGS": "A", "KEYS": "k1 k2", "p": "1"}
    assert (sent.broker_name, sent.queue_id, sent.queue_offset) == ("broker-b", 1, 0)
    assert sent.offset_msg_id.endswith(f"{sent.physical_offset:016X}")


def test_single_messages_take_turns_over_all_queues(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    for number in range(8):
        client.send("orders", b"%d" % number)

    assert [len(queue) for queue in stored(*brokers).values()] == [2, 2, 2, 2]


def test_same_sharding_key_same_queue(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    places = {
        (sent.broker_name, sent.queue_id)
        for sent in (client.send("orders", b"x", sharding_key="customer-7") for _ in range(5))
    }

    assert len(places) == 1
    assert all("__SHARDINGKEY" in record.property_map for record in records(*brokers))


def test_delay_travels_as_a_property(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    client.send("orders", b"later", delay_level=3)

    (record,) = records(*brokers)
    assert record.property_map["DELAY"] == "3"
    with pytest.raises(IllegalMessageError, match="Delay level 19"):
        client.send("orders", b"later", delay_level=19)


def test_messages_for_the_schedule_topic_go_to_their_own(
    client: ClusterBroker, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    delayed = b"DELAY\x013\x02REAL_TOPIC\x01orders\x02REAL_QID\x011\x02UNIQ_KEY\x01u\x02"
    batch = replace(
        outgoing([b"now", b"later", b"now too"], [0, 2, 0], [b"", delayed, b""]),
        topics=["SCHEDULE_TOPIC_XXXX", "orders"],
        topic_codes=np.array([1, 0, 1], dtype=np.int32),
    )

    client.append(batch)

    assert stored(*brokers) == {
        ("broker-a", 0): [b"now", b"now too"],
        ("broker-a", 1): [b"later"],
    }
    (later,) = brokers[0].queues["orders", 1]
    assert later.property_map == {"DELAY": "3", "UNIQ_KEY": "u"}


def test_large_body_is_compressed_as_set_up(
    cluster: FakeCluster, brokers: tuple[FakeBroker, FakeBroker]
) -> None:
    client = cluster.open(compression="zlib", compression_threshold=100)

    client.send("orders", bytes(100), queue_id=0)
    client.send("orders", bytes(99), queue_id=0)

    requests = [r for r in brokers[0].peer.requests if r.code == RequestCode.SEND_MESSAGE_V2]
    assert [request.ext["f"] for request in requests] == [str(compression_flags("zlib")), "0"]


def test_reading_mode_changes_nothing(cluster: FakeCluster) -> None:
    client = cluster.open("r")

    with pytest.raises(RequestError, match="mode='r'"):
        client.send("orders", b"x")
