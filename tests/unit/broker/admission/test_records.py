"""Admission: what a client may send, and everything that is refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core.broker.admission.few import admit_appends
from broker_core.broker.admission.records import Records, admit
from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec import layout
from broker_core.codec.compression import Compression, compress, compression_flags
from broker_core.codec.hosts import pack_host
from broker_core.codec.record import Record, encode_record
from broker_core.errors import (
    BrokerError,
    IllegalMessageError,
    PermissionDeniedError,
    RequestError,
    TopicNotFoundError,
)

pytestmark = pytest.mark.usefixtures("either_way")

BOMB = zlib.compress(bytes((64 << 20) + 1))
GOOD = Record("t", 1, 0, 0, b"body", b"TAGS\x01A\x02", born_timestamp=5)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    root: Path = tmp_path_factory.mktemp("admission") / "store"
    with EmbeddedBroker.open("x", root, mode="rw", create=True) as opened:
        opened.create_topic("t", queues=2)
        yield opened


def request(*records: Record | bytes, host: bytes | None = None) -> Records:
    raw = [each if isinstance(each, bytes) else encode_record(each) for each in records]
    sizes = np.array([len(each) for each in raw], dtype=np.int32)
    return Records(np.frombuffer(b"".join(raw), dtype=np.uint8), sizes, host)


def test_hosts_are_the_brokers_to_say(broker: EmbeddedBroker) -> None:
    claimed = replace(GOOD, born_host=bytes(8), store_host=b"\xff" * 8)
    peer = pack_host("10.1.2.3", 0)

    admitted = admit(broker.door, [request(claimed, host=peer)])

    data = admitted.parts[0].records.buffer.tobytes()
    assert data[48:56] == peer
    assert data[64:72] == broker.writer.settings.store_host


def test_each_request_has_the_host_it_came_from(broker: EmbeddedBroker) -> None:
    hosts = [pack_host("10.1.2.3", 0), None, pack_host("10.1.2.4", 0)]

    admitted = admit(broker.door, [request(GOOD, host=host) for host in hosts])

    [part] = admitted.parts
    found = [
        part.records.buffer[at + 48 : at + 56].tobytes() for at in part.records.starts.tolist()
    ]
    assert found == [hosts[0], GOOD.born_host, hosts[2]]


def test_requests_are_joined_in_order(broker: EmbeddedBroker) -> None:
    admitted = admit(broker.door, [request(GOOD, replace(GOOD, queue_id=0)), request(GOOD)])

    assert admitted.route.queue_ids.tolist() == [1, 0, 1]


def test_each_permit_is_asked_for_the_topics_of_its_request(broker: EmbeddedBroker) -> None:
    asked: list[Collection[str]] = []

    admit(
        broker.door, [request(GOOD), request(), request(GOOD)], [asked.append, None, asked.append]
    )

    assert asked == [{"t"}, {"t"}]


@pytest.mark.parametrize("way", [admit, admit_appends])
@pytest.mark.parametrize("delayed", [False, True])
def test_a_permit_is_asked_before_anything_tells_what_exists(
    broker: EmbeddedBroker, way: Callable[..., object], delayed: bool
) -> None:
    """A stranger hears the same of a topic that exists, of one that does not, of every queue."""

    def deny(topics: Collection[str]) -> None:
        message = f"no right on {topics}"
        raise PermissionDeniedError(message)

    for topic, queue_id in product(["t", "nope"], [0, 1, 2, 77]):
        text = f"DELAY\x013\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02".encode()
        record = replace(GOOD, topic=topic, queue_id=queue_id)
        if delayed:
            record = replace(GOOD, topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=text)
        with pytest.raises(PermissionDeniedError, match="no right on") as caught:
            way(broker.door, [request(record)], [deny])
        assert str(caught.value) == f"no right on { {topic} }"


@pytest.mark.parametrize("sizes", [[], [100], [99, 2]])
def test_bytes_that_sizes_do_not_add_up_to_are_no_request(sizes: list[int]) -> None:
    with pytest.raises(RequestError, match="add up"):
        Records(np.zeros(101 + sum(sizes[1:]), dtype=np.uint8), np.array(sizes, dtype=np.int32))


@pytest.mark.parametrize(
    ("record", "kind", "words"),
    [
        (replace(GOOD, topic="nope"), TopicNotFoundError, "nope"),
        (replace(GOOD, topic="../../etc"), RequestError, "etc"),
        (replace(GOOD, queue_id=2), RequestError, "queues 0 to 1"),
        (replace(GOOD, queue_id=-1), RequestError, "queues 0 to 1"),
        (replace(GOOD, body=b""), IllegalMessageError, "is empty"),
        (replace(GOOD, sys_flag=0x4), RequestError, "system flags 0x4"),
        (replace(GOOD, sys_flag=0x8), RequestError, "system flags 0x8"),
        (replace(GOOD, sys_flag=0xC), RequestError, "system flags 0xc"),
        (replace(GOOD, born_host=bytes(20)), RequestError, "system flags 0x10"),
        (replace(GOOD, store_host=bytes(20)), RequestError, "system flags 0x20"),
        (replace(GOOD, crc=7), RequestError, "are no record"),
        (replace(GOOD, sys_flag=0x1), IllegalMessageError, "not a whole zlib stream"),
        (replace(GOOD, sys_flag=0x101), IllegalMessageError, "not a whole lz4 stream"),
        (replace(GOOD, sys_flag=0x401), IllegalMessageError, "type 4 is unknown"),
        (replace(GOOD, sys_flag=0x1, body=BOMB), IllegalMessageError, "more than 4194304 bytes"),
        (replace(GOOD, topic="RMQ_SYS_TRANS_HALF_TOPIC"), RequestError, "can't append"),
        (replace(GOOD, topic="RMQ_SYS_TRANS_OP_HALF_TOPIC"), RequestError, "can't append"),
        (replace(GOOD, topic="SCHEDULE_TOPIC_XXXX"), RequestError, "where it belongs"),
        (encode_record(GOOD)[:-1] + b"x", RequestError, None),
        (b"\0" * 91, RequestError, "are no record"),
        (b"x", RequestError, "are no record"),
    ],
)
def test_what_no_client_may_send_is_refused(
    broker: EmbeddedBroker, record: Record | bytes, kind: type[BrokerError], words: str | None
) -> None:
    if words is None:  # text of a property is the sender's own business
        admit(broker.door, [request(record)])
        return
    with pytest.raises(kind, match=words):
        admit(broker.door, [request(GOOD, record)])


def test_a_body_over_the_limit_is_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(IllegalMessageError, match="4194305 bytes"):
        admit(broker.door, [request(replace(GOOD, body=bytes(4194305)))])


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_body_that_inflates_beyond_what_clients_compress_is_refused(
    broker: EmbeddedBroker, kind: Compression
) -> None:
    flags, limit = compression_flags(kind), layout.MAX_BODY_BYTES
    largest, larger = (compress(bytes(limit + more), kind) for more in (0, 1))

    admit(broker.door, [request(replace(GOOD, body=largest, sys_flag=flags))])
    with pytest.raises(IllegalMessageError, match=f"inflates to more than {limit}"):
        admit(broker.door, [request(replace(GOOD, body=larger, sys_flag=flags))])


def test_bodies_that_together_inflate_to_very_much_are_refused(broker: EmbeddedBroker) -> None:
    body = compress(bytes(4 << 20), "zstd")
    packed = encode_record(replace(GOOD, body=body, sys_flag=compression_flags("zstd")))

    admit(broker.door, [request(*[packed] * 16)])
    with pytest.raises(IllegalMessageError, match=r"first 17 messages .* smaller parts"):
        admit(broker.door, [request(*[packed] * 20)])


def test_delayed_messages_must_be_for_a_topic_that_is_there(broker: EmbeddedBroker) -> None:
    def delayed(topic: str) -> Record:
        text = f"DELAY\x013\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02".encode()
        return replace(GOOD, topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=text)

    asked: list[Collection[str]] = []
    admit(broker.door, [request(delayed("t"))], [asked.append])

    assert asked == [{"t"}]
    with pytest.raises(TopicNotFoundError, match="nope"):
        admit(broker.door, [request(delayed("nope"))])


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_half_messages_are_the_brokers_to_make(broker: EmbeddedBroker, topic: str) -> None:
    text = b"HALF_BLOCK\x011\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02"

    with pytest.raises(RequestError, match="can't append"):
        admit(broker.door, [request(replace(GOOD, topic=topic, queue_id=0, properties=text))])


@pytest.mark.parametrize("text", [b"", b"REAL_TOPIC\x01SCHEDULE_TOPIC_XXXX\x02REAL_QID\x012\x02"])
def test_a_delayed_message_must_say_where_it_belongs(broker: EmbeddedBroker, text: bytes) -> None:
    nowhere = replace(GOOD, topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=text)

    with pytest.raises(RequestError, match="where it belongs"):
        admit(broker.door, [request(nowhere)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_bytes_whatever_do_anything_but_pass_or_be_refused(
    broker: EmbeddedBroker, data: st.DataObject
) -> None:
    raw = bytearray(encode_record(GOOD) * 2)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    first = data.draw(st.sampled_from([len(raw) // 2, 91, 1, len(raw) - 1]))

    try:
        admit(broker.door, [request(bytes(raw[:first]), bytes(raw[first:]))])
    except RequestError as error:
        assert str(error)  # noqa: PT017 - any other kind is the failure
