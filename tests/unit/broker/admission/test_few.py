"""Admission one by one: columns admit the same; what it does not admit, it leaves to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core.broker.admission.few import admit_appends, admit_few
from broker_core.broker.admission.records import Records, admit
from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec.hosts import pack_host
from broker_core.codec.layout import MAGIC_V2, SysFlag
from broker_core.codec.record import Record, encode_record
from broker_core.errors import BrokerError, RequestError, TopicNotFoundError
from broker_core.store.batch import Batch
from tests.unit.broker.admission.test_records import GOOD, request

HOSTS = [None, pack_host("10.1.2.3", 0), pack_host("10.1.2.4", 9)]
NAMES = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "DELAY", "other", ""])
VALUES = st.one_of(
    st.text("ab c", max_size=6), st.text(max_size=4), st.binary(max_size=3).map(bytes.hex)
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    root: Path = tmp_path_factory.mktemp("few") / "store"
    with EmbeddedBroker.open("x", root, mode="rw", create=True) as opened:
        opened.create_topic("t", queues=2)
        opened.create_topic("u", queues=2)
        yield opened


@st.composite
def messages(draw: st.DrawFn) -> Record:
    pairs = draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    text = b"".join(
        f"{name}\x01{value}\x02".encode("utf-8", "surrogatepass") for name, value in pairs
    )
    return Record(
        draw(st.sampled_from("tu")),
        draw(st.integers(0, 1)),
        draw(st.integers(0, 9)),
        draw(st.integers(0, 9)),
        draw(st.binary(min_size=1, max_size=40)),
        draw(st.sampled_from([text, text[:-1], text + b"odd", b"\xff" + text])),
        flag=draw(st.integers(0, 3)),
        sys_flag=draw(st.sampled_from([0, int(SysFlag.MULTI_TAGS)])),
        born_timestamp=draw(st.integers(0, 1 << 40)),
        born_host=bytes(8),
        store_host=b"\xee" * 8,
    )


def contents(batch: Batch) -> list[object]:
    """All that a batch is, placed somewhere, as plain values."""
    count = len(batch)
    numbers = np.arange(count, dtype=np.int64)
    placed = batch.place(numbers + 7, numbers * 1000, 12345, [1000])
    (part,) = batch.parts
    # Topics may be listed in another order: compare them as each record's.
    known = {
        each.name: getattr(placed, each.name).tolist()
        for each in fields(placed)
        if each.name not in ("topics", "topic_codes")
    }
    topics = [placed.topics[code] for code in placed.topic_codes]
    return [
        part.records.buffer.tobytes(),
        part.records.starts.tolist(),
        part.records.sizes.tolist(),
        [batch.route.topics[code] for code in batch.route.topic_codes],
        batch.route.queue_ids.tolist(),
        batch.in_queue.tolist(),
        sorted(zip(batch.groups.queues, np.diff(batch.groups.bounds).tolist(), strict=True)),
        topics,
        known,
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.lists(messages(), min_size=1, max_size=4), st.sampled_from(HOSTS)),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_admitted_one_by_one_is_what_columns_admit(
    broker: EmbeddedBroker, sent: list[tuple[list[Record], bytes | None]]
) -> None:
    requests = [request(*records, host=host) for records, host in sent]

    asked: list[list[Collection[str]]] = [[], []]
    few = admit_few(broker.door, requests, [asked[0].append] * len(requests))
    columns = admit(broker.door, requests, [asked[1].append] * len(requests))

    assert few is not None
    assert contents(few.as_batch()) == contents(columns)
    assert asked[0] == asked[1]
    assert len(asked[0]) == len(requests)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_bytes_that_columns_refuse_are_not_admitted_one_by_one(
    broker: EmbeddedBroker, data: st.DataObject
) -> None:
    raw = bytearray(encode_record(GOOD))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    spoiled = request(bytes(raw))

    try:
        few = admit_few(broker.door, [spoiled])
    except BrokerError:
        few = None
    try:
        columns = admit(broker.door, [spoiled])
    except BrokerError:
        assert few is None
    else:
        assert few is None or contents(few.as_batch()) == contents(columns)


@pytest.mark.parametrize(
    "record",
    [
        replace(GOOD, version=MAGIC_V2),
        replace(GOOD, body=b""),
        replace(GOOD, crc=1),
        replace(GOOD, sys_flag=int(SysFlag.PREPARED)),
        replace(GOOD, sys_flag=int(SysFlag.COMPRESSED)),
        replace(GOOD, topic="SCHEDULE_TOPIC_XXXX"),
        replace(GOOD, topic="RMQ_SYS_TRANS_HALF_TOPIC"),
        b"\0" * 20,
    ],
    ids=["v2", "empty", "crc", "flags", "compressed", "scheduled", "half", "short"],
)
def test_what_is_not_plain_is_left_to_columns(
    broker: EmbeddedBroker, record: Record | bytes
) -> None:
    assert admit_few(broker.door, [request(GOOD, record)]) is None


def test_a_topic_or_queue_that_is_not_there_is_refused_in_the_same_words(
    broker: EmbeddedBroker,
) -> None:
    for record, kind in (
        (replace(GOOD, topic="nope"), TopicNotFoundError),
        (replace(GOOD, queue_id=2), RequestError),
    ):
        told = []
        for way in (admit_appends, admit):
            with pytest.raises(kind) as caught:
                way(broker.door, [request(record)])
            told.append(str(caught.value))
        assert told[0] == told[1]


def test_a_store_host_of_ipv6_is_left_to_columns(tmp_path: Path) -> None:
    with EmbeddedBroker.open(
        "x", tmp_path / "store", mode="rw", create=True, config={"brokerIP1": "::1"}
    ) as broker:
        broker.create_topic("t", queues=2)
        sent: list[Records] = [request(GOOD)]

        assert admit_few(broker.door, sent) is None
