"""Pulling a range from a broker that behaves as real ones do, well and badly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.clients.cluster.cluster import ClusterBroker
from broker_core.codec.frames import FrameBatch
from broker_core.codec.record import decode_record, encode_record
from broker_core.errors import (
    FilterSyntaxError,
    OffsetRangeError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedError,
)
from broker_core.filter.pipeline import MessageFilter
from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from broker_core.wire.remoting.command import Command, RequestCode, ResponseCode
from broker_core.wire.remoting.frame import RemotingProtocolError
from tests.unit.clients.cluster.fake_cluster import FakeBroker, FakeCluster
from tests.unit.clients.cluster.peer import Answer, answer

QUEUE = QueueRef("orders", "broker-a", 0)
COUNT = 1000


@pytest.fixture
def broker() -> FakeBroker:
    found = FakeBroker("broker-a", {"orders": 1})
    found.fill("orders", 0, COUNT)
    return found


@pytest.fixture
def cluster(broker: FakeBroker) -> Iterator[FakeCluster]:
    with FakeCluster(broker) as found:
        yield found


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[ClusterBroker]:
    with cluster.open() as found:
        yield found


def wanted(start: int, end: int) -> OffsetRange:
    return OffsetRange(QUEUE, LogicalOffset(start), LogicalOffset(end))


def offsets(batches: Iterable[FrameBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.offsets.tolist()]


def bodies(batches: Iterable[FrameBatch]) -> list[bytes]:
    return [decode_record(record).body for batch in batches for record in batch.records()]


@pytest.mark.parametrize(("start", "end"), [(0, COUNT), (3, 4), (7, 7), (100, 933)])
def test_exactly_the_range_comes(client: ClusterBroker, start: int, end: int) -> None:
    batches = list(client.pull(wanted(start, end)))

    assert bodies(batches) == [b"m%d" % number for number in range(start, end)]
    assert [batch.next_offset for batch in batches[-1:]] == [end] * len(batches[-1:])


@given(
    grants=st.lists(st.integers(1, 50), min_size=1, max_size=8),
    cut=st.integers(0, 300),
    rows=st.integers(1, 100),
)
@settings(max_examples=10)
def test_any_grants_and_any_cut_give_the_same(grants: list[int], cut: int, rows: int) -> None:
    fickle = FakeBroker("broker-a", {"orders": 1}, grants)
    fickle.fill("orders", 0, 300)

    with FakeCluster(fickle) as cluster, cluster.open() as client:
        first = list(client.pull(wanted(0, cut), batch_rows=rows))
        second = list(client.pull(wanted(cut, 300), batch_rows=rows))

    assert offsets([*first, *second]) == list(range(300))
    assert all(len(batch) <= rows for batch in [*first, *second])


def test_several_pulls_are_in_flight(client: ClusterBroker, broker: FakeBroker) -> None:
    list(client.pull(wanted(0, COUNT)))

    starts = [
        int(request.ext["queueOffset"])
        for request in broker.peer.requests
        if request.code == RequestCode.PULL_MESSAGE
    ]
    assert starts == sorted(starts)
    assert len(starts) <= COUNT // 32 + 3


def test_request_joins_no_group_and_commits_nothing(
    client: ClusterBroker, broker: FakeBroker
) -> None:
    list(client.pull(wanted(0, 1)))

    (request,) = broker.peer.requests
    assert request.ext["sysFlag"] == "4"
    assert request.ext["commitOffset"] == "0"
    assert request.ext["suspendTimeoutMillis"] == "0"
    assert request.ext["subscription"] == "*"


def test_batches_keep_both_limits(client: ClusterBroker) -> None:
    by_rows = list(client.pull(wanted(0, COUNT), batch_rows=100))
    by_bytes = list(client.pull(wanted(0, COUNT), batch_bytes=10_000))
    single = list(client.pull(wanted(0, 40), batch_bytes=1))

    assert all(len(batch) <= 100 for batch in by_rows)
    assert all(batch.size_bytes <= 10_000 for batch in by_bytes)
    assert [len(batch) for batch in single] == [1] * 40
    assert offsets(by_rows) == offsets(by_bytes) == list(range(COUNT))
    assert [batch.next_offset for batch in single] == list(range(1, 41))


def test_tags_are_filtered_by_the_broker_and_advance(
    client: ClusterBroker, broker: FakeBroker
) -> None:
    batches = list(client.pull(wanted(0, COUNT), message_filter=MessageFilter.of(tags="A")))

    assert offsets(batches) == list(range(1, COUNT, 2))
    assert batches[-1].next_offset == COUNT
    assert {request.ext["subscription"] for request in broker.peer.requests} == {"A"}


def test_filtered_range_is_cut_at_its_end(client: ClusterBroker) -> None:
    batches = list(client.pull(wanted(10, 21), message_filter=MessageFilter.of(tags="A")))

    assert offsets(batches) == [11, 13, 15, 17, 19]
    assert batches[-1].next_offset == 21


def test_filter_that_drops_everything_still_advances(client: ClusterBroker) -> None:
    batches = list(client.pull(wanted(0, COUNT), message_filter=MessageFilter.of(tags="C")))

    assert offsets(batches) == []
    assert batches[-1].next_offset == COUNT


def test_tags_of_equal_hash_are_told_apart(client: ClusterBroker, broker: FakeBroker) -> None:
    broker.put("orders", 0, b"wanted", b"TAGS\x01Aa\x02")
    broker.put("orders", 0, b"not wanted", b"TAGS\x01BB\x02")

    batches = list(client.pull(wanted(COUNT, COUNT + 2), message_filter=MessageFilter.of("Aa")))

    assert bodies(batches) == [b"wanted"]
    assert batches[-1].next_offset == COUNT + 2


def test_sql_is_sent_and_checked_again(client: ClusterBroker, broker: FakeBroker) -> None:
    # A broker that does not understand an expression sends everything, without a word.
    broker._matches = lambda record, expression: True  # type: ignore[method-assign]  # a broker that errs
    message_filter = MessageFilter.of(sql="TAGS = 'A'")

    batches = list(client.pull(wanted(0, 20), message_filter=message_filter))

    assert offsets(batches) == list(range(1, 20, 2))
    sent = broker.peer.requests[0].ext
    assert (sent["expressionType"], sent["subscription"]) == ("SQL92", "TAGS = 'A'")


def test_sql_that_does_not_compile_is_never_sent() -> None:
    with pytest.raises(FilterSyntaxError):
        MessageFilter.of(sql="price >")


def test_broker_without_sql_names_the_setting(client: ClusterBroker, broker: FakeBroker) -> None:
    remark = "The broker does not support consumer to filter message by SQL92"
    broker.faults.append(lambda request: [answer(request, 1, remark=remark)])

    with pytest.raises(UnsupportedError, match="enablePropertyFilter=true"):
        list(client.pull(wanted(0, 5), message_filter=MessageFilter.of(sql="a = 1")))


def test_expired_start_is_an_error_with_numbers(client: ClusterBroker, broker: FakeBroker) -> None:
    broker.minimum["orders", 0] = 100

    with pytest.raises(OffsetRangeError, match="Messages 40 to 99 of queue orders/broker-a/0") as e:
        list(client.pull(wanted(40, 200)))

    assert (e.value.minimum, e.value.maximum) == (100, COUNT)


def test_expired_messages_are_noticed_behind_a_filter(
    client: ClusterBroker, broker: FakeBroker
) -> None:
    broker.minimum["orders", 0] = 100

    with pytest.raises(OffsetRangeError):
        list(client.pull(wanted(40, 200), message_filter=MessageFilter.of(tags="A")))


def test_range_behind_the_end_is_an_error(client: ClusterBroker) -> None:
    with pytest.raises(OffsetRangeError, match="ends at 1000, so messages up to 1009") as caught:
        list(client.pull(wanted(COUNT + 5, COUNT + 10)))

    assert caught.value.maximum == COUNT


@pytest.mark.parametrize("claimed", [3, 5])
def test_an_answer_that_claims_to_cover_more_than_it_brings_is_an_error(
    client: ClusterBroker, broker: FakeBroker, claimed: int
) -> None:
    records = b"".join(encode_record(record) for record in broker.queues["orders", 0][:2])
    broker.faults.append(lambda request: [_found(request, records, claimed)])

    with pytest.raises(OffsetRangeError, match=rf"Messages 2 to {claimed - 1} .* are gone"):
        list(client.pull(wanted(0, 5)))


def test_an_answer_that_brings_more_than_it_claims_to_cover_is_refused(
    client: ClusterBroker, broker: FakeBroker
) -> None:
    records = b"".join(encode_record(record) for record in broker.queues["orders", 0][:4])
    broker.faults.append(lambda request: [_found(request, records, 3)])

    with pytest.raises(RemotingProtocolError):
        list(client.pull(wanted(0, 5)))


def test_hole_in_an_answer_is_an_error(client: ClusterBroker, broker: FakeBroker) -> None:
    records = broker.queues["orders", 0]
    body = encode_record(records[0]) + encode_record(records[2])
    broker.faults.append(lambda request: [_found(request, body, 3)])

    with pytest.raises(OffsetRangeError, match=r"Messages 1 to 1 .* are gone") as caught:
        list(client.pull(wanted(0, 3)))

    assert caught.value.minimum == 2


def test_messages_that_vanish_while_being_read_are_an_error(
    client: ClusterBroker, broker: FakeBroker
) -> None:
    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    broker.faults.append(lambda request: [_found(request, b"", 500, code)])

    with pytest.raises(OffsetRangeError, match="starts at 500") as caught:
        list(client.pull(wanted(0, COUNT)))

    assert caught.value.minimum == 500


def test_tail_that_is_not_there_yet_is_waited_for(
    client: ClusterBroker, broker: FakeBroker
) -> None:
    def arrive(request: Command) -> Iterable[Answer]:
        nothing = answer(
            request,
            ResponseCode.PULL_NOT_FOUND,
            {"nextBeginOffset": str(COUNT), "minOffset": "0", "maxOffset": str(COUNT)},
        )
        broker.put("orders", 0, b"late")
        return [nothing]

    broker.faults.append(arrive)

    assert bodies(client.pull(wanted(COUNT, COUNT + 1))) == [b"late"]


def test_tail_that_does_not_come_soon_is_not_there(client: ClusterBroker) -> None:
    with pytest.raises(OffsetRangeError, match="ends at 1000, so messages up to 1000") as caught:
        list(client.pull(wanted(COUNT - 5, COUNT + 1)))

    assert caught.value.maximum == COUNT


def test_message_that_a_broker_has_and_does_not_give_ends_the_patience(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    nothing = ResponseCode.PULL_NOT_FOUND
    broker.faults += [lambda request: [_found(request, b"", 0, nothing)]] * 1000

    with (
        cluster.open(pull_timeout_ms=100) as client,
        pytest.raises(UnavailableError, match=r"0 to 9 .* within 0.1 s \(pullTimeoutMs\)"),
    ):
        list(client.pull(wanted(0, 10)))


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, 1, 14])
def test_busy_broker_is_asked_again(client: ClusterBroker, broker: FakeBroker, code: int) -> None:
    broker.faults += [lambda request: [answer(request, code, remark="[OVERLOAD]")]] * 3

    assert offsets(client.pull(wanted(0, COUNT))) == list(range(COUNT))


def test_lost_connection_is_made_anew(client: ClusterBroker, broker: FakeBroker) -> None:
    batches = client.pull(wanted(0, COUNT), batch_rows=50)
    found = [next(batches)]
    broker.faults += [lambda request: [None]]

    found += batches

    assert offsets(found) == list(range(COUNT))
    assert broker.peer.connections >= 2


def test_unanswered_pull_is_asked_again(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.faults += [lambda request: [], lambda request: []]

    with cluster.open(request_timeout_ms=50) as client:
        assert offsets(client.pull(wanted(0, 100))) == list(range(100))


def test_broker_that_never_comes_back_ends_the_patience(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    with cluster.open(pull_timeout_ms=100) as client:
        batches = client.pull(wanted(0, COUNT), batch_rows=50)
        next(batches)
        broker.peer.close()
        cluster.registered.clear()
        with pytest.raises(UnavailableError, match="did not come within"):
            list(batches)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x00" * 200, id="zeroes"),
        pytest.param(b"\xff" * 200, id="negative size"),
        pytest.param(b"\x7f\xff\xff\xff" + b"\x00" * 196, id="size beyond the answer"),
        pytest.param(b"short", id="less than a record"),
    ],
)
def test_answer_that_holds_no_records_is_a_broken_peer(
    client: ClusterBroker, broker: FakeBroker, body: bytes
) -> None:
    broker.faults.append(lambda request: [_found(request, body, 5)])

    with pytest.raises(RemotingProtocolError, match="do not fit together"):
        list(client.pull(wanted(0, 5)))


def test_answer_without_its_fields_is_a_broken_peer(
    client: ClusterBroker, broker: FakeBroker
) -> None:
    broker.faults.append(lambda request: [answer(request, body=b"")])

    with pytest.raises(RemotingProtocolError):
        list(client.pull(wanted(0, 5)))


def test_inner_batches_are_refused_by_name(client: ClusterBroker, broker: FakeBroker) -> None:
    inner = replace(broker.queues["orders", 0][0], sys_flag=0x80)
    broker.faults.append(lambda request: [_found(request, encode_record(inner), 1)])

    with pytest.raises(UnsupportedError, match="BatchCQ"):
        list(client.pull(wanted(0, 1)))


def test_deleted_topic_is_not_found(client: ClusterBroker, broker: FakeBroker) -> None:
    list(client.pull(wanted(0, 1)))
    broker.faults.append(lambda request: [answer(request, 17, remark="topic[orders] not exist")])

    with pytest.raises(TopicNotFoundError):
        list(client.pull(wanted(0, 5)))


def test_suggested_replica_is_asked_and_the_master_again_when_it_has_nothing(
    client: ClusterBroker, broker: FakeBroker
) -> None:
    def suggest(request: Command) -> Iterable[Answer]:
        pulled = broker._pull(request)
        return [pulled._replace(ext={**pulled.ext, "suggestWhichBrokerId": "1"})]

    broker.faults.append(suggest)

    assert offsets(client.pull(wanted(0, COUNT))) == list(range(COUNT))


def _found(request: Command, body: bytes, next_offset: int, code: int = 0) -> Command:
    ext = {"nextBeginOffset": str(next_offset), "minOffset": "0", "maxOffset": str(COUNT)}
    return answer(request, code, ext, body)
