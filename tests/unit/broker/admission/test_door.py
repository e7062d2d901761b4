"""The door: whatever a client sends by whichever way, the broker's own things stay its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core import open_broker
from broker_core.broker.admission.properties import may_hold_own
from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import Column, PropertyParts, join_properties
from broker_core.codec.properties.search import count_named
from broker_core.codec.properties.text import format_properties, parse_properties
from broker_core.codec.property_names import (
    BATCH_TOPIC,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    OWN_PROPERTIES,
    RESERVED_PROPERTIES,
    SCHEDULE_TOPIC,
)
from broker_core.codec.spans import spans_of
from broker_core.errors import BrokerError, IllegalMessageError, RequestError
from broker_core.types import BatchRef
from tests.contract.conftest import AnyBroker
from tests.kit.served import served
from tests.kit.transactions import attempt_id, outgoing

OWN_TOPICS = [
    HALF_TOPIC,
    OP_TOPIC,
    BATCH_TOPIC,
    SCHEDULE_TOPIC,
    DISCARD_TOPIC,
    "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    HALF_TOPIC.lower(),
    "Rmq_Sys_anything",
]
OPEN_TOPICS = ["RMQ_SYS_TRACE_TOPIC", "%RETRY%g", "%DLQ%g", "TBW102", "BenchmarkTest"]
ATTEMPT = attempt_id(1)
BATCH = BatchRef("query:q", "", 1)


@pytest.fixture(scope="module", params=["file", "grpc"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnyBroker]:
    root: Path = tmp_path_factory.mktemp("door") / "store"
    with ExitStack() as stack:
        address = f"file:{root}"
        if request.param == "grpc":
            address = stack.enter_context(served(root)).address
        create = request.param == "file"
        opened = cast(
            "AnyBroker", stack.enter_context(open_broker(address, mode="rw", create=create))
        )
        opened.create_topic("t", queues=2)
        # The broker's own topics exist once there was a transaction.
        opened.transactions.prepare("t", b"x", group="g")
        yield opened


def columns(
    topic: str = "t", queue_id: int = 0, more: bytes = b"", *, rows: int = 1
) -> MessageBatch:
    """Messages of which the last has more properties than it needs."""
    made = outgoing(topic, [b"body"] * rows, ATTEMPT, queues=1)
    texts = made.property_texts.to_pylist()
    texts[-1] += more
    queue_ids = made.queue_ids.copy()
    queue_ids[-1] = queue_id
    return replace(made, properties=pa.array(texts, type=pa.binary()), queue_ids=queue_ids)


def delayed(
    topic: str = "t", queue_id: object = 0, *, level: object = 1, at: int = 0, more: str = ""
) -> MessageBatch:
    text = f"DELAY\x01{level}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02{more}"
    return columns(SCHEDULE_TOPIC, at, text.encode())


WAYS: dict[str, Callable[[AnyBroker, MessageBatch], object]] = {
    "append": lambda broker, batch: broker.append(batch),
    "prepare_batch": lambda broker, batch: broker.transactions.prepare_batch(
        BATCH, ATTEMPT, batch, is_first=True
    ),
}


def seen(broker: AnyBroker) -> dict[str, object]:
    """All topics with their ends, but for what the broker itself prepares."""
    return {topic: broker.offsets(topic) for topic in broker.topics()}


@pytest.mark.parametrize("topic", OWN_TOPICS)
@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_into_the_brokers_own_topics(broker: AnyBroker, way: str, topic: str) -> None:
    before = seen(broker)
    for batch in (columns(topic), delayed(topic)):
        with pytest.raises(BrokerError):
            WAYS[way](broker, batch)
    for send in (
        lambda: broker.send(topic, b"x"),
        lambda: broker.send(topic, b"x", delay_level=1),
        lambda: broker.transactions.prepare(topic, b"x", group="g"),
    ):
        with pytest.raises(BrokerError):
            send()

    assert seen(broker) == before


@pytest.mark.parametrize("topic", OWN_TOPICS)
def test_no_call_changes_the_brokers_own_topics(broker: AnyBroker, topic: str) -> None:
    before = seen(broker)
    calls: Sequence[Callable[[], object]] = [
        lambda: broker.create_topic(topic, 4),
        lambda: broker.create_topic(topic, 4, exist_ok=True),
        lambda: broker.add_queues(topic, 8),
        lambda: broker.delete_topic(topic),
        lambda: broker.commit_offset("g", topic, 0, 10**15),
        lambda: broker.commit_offset("CID_RMQ_SYS_TRANS", topic, 0, 10**15),
        lambda: broker.commit_offset("CID_RMQ_SYS_TRANS", "t", 0, 0),
        lambda: broker.commit_offset("cid_rmq_sys_trans", "t", 0, 0),
    ]
    for call in calls:
        with pytest.raises(BrokerError):
            call()

    assert seen(broker) == before


@pytest.mark.parametrize("topic", OPEN_TOPICS)
def test_topics_that_official_clients_write_are_open(broker: AnyBroker, topic: str) -> None:
    broker.create_topic(topic, 1, exist_ok=True)

    broker.send(topic, b"x")
    broker.append(columns(topic))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [1, 100, 2500])
def test_no_message_has_a_property_of_the_brokers_own(
    broker: AnyBroker, way: str, rows: int
) -> None:
    before = seen(broker)

    for name in sorted(OWN_PROPERTIES):
        with pytest.raises(IllegalMessageError, match=rf"Message {rows - 1} .*{name}"):
            WAYS[way](broker, columns(more=f"{name}\x011\x02".encode(), rows=rows))
        with pytest.raises(IllegalMessageError, match="keeps for itself"):
            broker.send("t", b"x", properties={name: "1"})

    assert seen(broker) == before


def test_what_the_broker_believes_no_user_property_may_be() -> None:
    assert OWN_PROPERTIES <= RESERVED_PROPERTIES


@pytest.mark.parametrize("queue_id", [-(2**31), -1, 2, 18, 77, 2**31 - 1])
@pytest.mark.parametrize("way", WAYS)
def test_a_message_goes_to_a_queue_that_its_topic_has(
    broker: AnyBroker, way: str, queue_id: int
) -> None:
    before = seen(broker)
    for batch in (
        columns(queue_id=queue_id),
        delayed(at=queue_id),
        delayed(queue_id=queue_id),
        columns(queue_id=queue_id, rows=3),
    ):
        with pytest.raises(BrokerError):
            WAYS[way](broker, batch)
    with pytest.raises(BrokerError):
        broker.transactions.prepare("t", b"x", group="g", queue_id=queue_id)

    assert seen(broker) == before


ODD_DESTINATIONS = {
    "no level": columns(SCHEDULE_TOPIC, 0, b"REAL_TOPIC\x01t\x02REAL_QID\x010\x02"),
    "no topic": columns(SCHEDULE_TOPIC, 0, b"DELAY\x011\x02REAL_QID\x010\x02"),
    "no queue": columns(SCHEDULE_TOPIC, 0, b"DELAY\x011\x02REAL_TOPIC\x01t\x02"),
    "empty queue": delayed(queue_id=""),
    "text": delayed(queue_id="abc"),
    "negative": delayed(queue_id=-1),
    "huge": delayed(queue_id=10**15),
    "sign": delayed(queue_id="+0"),
    "twice the topic": delayed(more="REAL_TOPIC\x01t\x02"),
    "twice the queue": delayed(more="REAL_QID\x010\x02"),
    "twice the level": delayed(more="DELAY\x011\x02"),
    "another level": delayed(level=2),
    "level 0": delayed(level=0, at=-1),
    "level 19": delayed(level=19, at=18),
    "missing topic": delayed("nope"),
    "path": delayed("../../x"),
    "block": delayed(more="HALF_BLOCK\x011\x02"),
}


@pytest.mark.parametrize("odd", ODD_DESTINATIONS)
@pytest.mark.parametrize("way", WAYS)
def test_a_delayed_message_says_once_where_it_belongs(
    broker: AnyBroker, way: str, odd: str
) -> None:
    before = seen(broker)

    with pytest.raises(BrokerError):
        WAYS[way](broker, ODD_DESTINATIONS[odd])

    assert seen(broker) == before


def test_a_delayed_message_that_says_so_is_taken(broker: AnyBroker) -> None:
    # The longest delays: a delivery would change what other tests compare.
    broker.append(delayed(queue_id=1, level=17, at=16))
    broker.append(delayed(level=18, at=17))


@pytest.mark.parametrize("flags", [0x4, 0x8, 0xC, 1 << 30])
def test_flags_that_only_the_broker_sets_are_refused(broker: AnyBroker, flags: int) -> None:
    for way in WAYS.values():
        with pytest.raises(BrokerError):
            way(broker, replace(columns(), sys_flags=flags))


def test_fields_that_only_the_broker_knows_are_its_own(broker: AnyBroker) -> None:
    given = replace(columns(), prepared_offsets=77, store_host=bytes(8))
    wanted = ["preparedTransactionOffset", "sysFlag", "storeHost"]
    reference = broker.read("t", 0, columns=wanted).slice(0, 0)

    placed = broker.append(given)
    [row] = broker.read(
        "t", int(placed.queue_ids[0]), int(placed.queue_offsets[0]), columns=wanted
    ).to_pylist()

    assert reference.num_rows == 0
    assert (row["preparedTransactionOffset"], row["sysFlag"]) == (0, 0)
    assert row["storeHost"] != "0.0.0.0:0"


TEXTS = ["\x01", "\x02", "a\x01b", "a\x02HALF_BLOCK\x011", "\x00", "a" + "\x00" * 1100]


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_ends_one_property_and_begins_another(broker: AnyBroker, text: str) -> None:
    before = seen(broker)
    calls: Sequence[Callable[[], object]] = [
        lambda: broker.send("t", b"x", tags=text),
        lambda: broker.send("t", b"x", keys=[text]),
        lambda: broker.send("t", b"x", keys=text),
        lambda: broker.send("t", b"x", sharding_key=text),
        lambda: broker.send("t", b"x", properties={text: "v"}),
        lambda: broker.send("t", b"x", properties={"n": text}),
        lambda: broker.transactions.prepare("t", b"x", group=text),
        lambda: broker.transactions.prepare("t", b"x", group="g", tags=text),
        lambda: broker.transactions.prepare_batch(BATCH, text, columns(), is_first=True),
        lambda: broker.commit_offset(text, "t", 0, 0),
    ]
    for call in calls:
        with pytest.raises(BrokerError):
            call()
    with pytest.raises(IllegalMessageError, match="separator"):
        format_properties({"n": text})

    assert seen(broker) == before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [1, 100, 2500])
@pytest.mark.parametrize("text", [b"\x00", b"k\x01" + b"\x00" * 1100 + b"\x02", b"k\x01v\x00"])
def test_no_text_looks_like_a_lost_sector(
    broker: AnyBroker, way: str, rows: int, text: bytes
) -> None:
    before = seen(broker)

    with pytest.raises(IllegalMessageError, match=rf"Message {rows - 1} .*zero byte"):
        WAYS[way](broker, columns(more=text, rows=rows))

    assert seen(broker) == before


@pytest.mark.parametrize("code", [-(2**31), -2, -1, 1, 7])
def test_every_message_names_a_topic_of_its_batch(broker: AnyBroker, code: int) -> None:
    before = seen(broker)
    batch = replace(columns(queue_id=999), topic_codes=np.array([code], dtype=np.int32))

    with pytest.raises((RequestError, IndexError)):
        broker.append(batch)

    assert seen(broker) == before


@pytest.mark.parametrize("number", [3.0, True, "3", None, 2**63, np.float64(1)])
def test_what_is_no_whole_number_is_written_to_no_table(broker: AnyBroker, number: object) -> None:
    if not isinstance(broker, EmbeddedBroker):
        pytest.skip("over gRPC requests are typed")
    wrong = cast("int", number)
    config = broker.reader.root / "config"
    before, files = seen(broker), {path: path.read_bytes() for path in config.iterdir()}
    calls: Sequence[Callable[[], object]] = [
        lambda: broker.commit_offset("g", "t", 0, wrong),
        lambda: broker.commit_offset("g", "t", wrong, 0),
        lambda: broker.create_topic("new", wrong),
        lambda: broker.add_queues("t", wrong),
        lambda: broker.send("t", b"x", delay_level=wrong),
    ]
    if number is not None:
        calls = [*calls, lambda: broker.send("t", b"x", queue_id=wrong)]
    for call in calls:
        with pytest.raises(RequestError, match="can't be"):
            call()

    assert seen(broker) == before
    assert {path: path.read_bytes() for path in config.iterdir()} == files


def test_numbers_of_numpy_are_numbers(broker: AnyBroker) -> None:
    broker.commit_offset("numpy", "t", cast("int", np.int64(1)), cast("int", np.int32(7)))

    assert list(broker.consumer_offsets("numpy", "t").values()) == [7]


# Looking for names in parts, and in texts

NAMES = st.sampled_from([*sorted(OWN_PROPERTIES), "TAGS", "KEYS", "HALF_BLOC", "HALF_BLOCKS", "x"])
ODD_TEXTS = st.lists(
    st.one_of(NAMES.map(str.encode), st.sampled_from([b"\x01", b"\x02", b"v", b"", b"\x00"])),
    max_size=8,
).map(b"".join)


@pytest.mark.usefixtures("either_way")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ODD_TEXTS, min_size=1, max_size=5), st.booleans())
def test_names_are_counted_as_a_reader_sees_them(texts: list[bytes], many: bool) -> None:
    rows = texts * 500 if many else texts  # enough for a kernel
    counts = count_named(spans_of(pa.array(rows, type=pa.binary())), sorted(OWN_PROPERTIES))

    for row, text in enumerate(texts):
        entries = [entry.partition(b"\x01") for entry in text.split(b"\x02")]
        own = [name for name, _, value in entries if value and name.decode() in OWN_PROPERTIES]
        assert counts[row] == len(own)
        assert (counts[row] > 0) == (not OWN_PROPERTIES.isdisjoint(parse_properties(text)))


@given(
    st.lists(st.one_of(ODD_TEXTS, st.lists(ODD_TEXTS, min_size=2, max_size=2)), max_size=5),
)
def test_parts_hide_no_name(parts: list[bytes | list[bytes]]) -> None:
    made = PropertyParts(
        tuple(
            part if isinstance(part, bytes) else Column.of(pa.array(part, type=pa.binary()))
            for part in parts
        ),
        2,
    )
    joined = [parse_properties(text) for text in made.joined().to_pylist()]

    if not may_hold_own(made):
        assert all(OWN_PROPERTIES.isdisjoint(found) for found in joined)
        assert b"\x00" not in b"".join(made.joined().to_pylist())


def test_parts_of_an_ordinary_batch_need_not_be_joined() -> None:
    keys = pa.array(["k1", "k2", None])
    values = pa.array([[("a", "1")], [], [("b", "2"), ("c", "3")]], pa.map_("string", "string"))
    from broker_core.codec.properties.join import property_parts

    parts = property_parts([("UNIQ_KEY", pa.array(["1", "2", "3"])), ("KEYS", keys)], 3, values)

    assert not may_hold_own(parts)
    assert len(join_properties([("TAGS", "x")], 3)) == 3


# The store's own writer


@pytest.mark.parametrize("topic", ["../../x", "a/b", "..", ".", "", "nul\0", "a b", "a" * 300])
def test_no_append_makes_a_path_of_an_illegal_topic(tmp_path: Path, topic: str) -> None:
    with open_broker(f"file:{tmp_path / 'store'}", mode="rw", create=True) as broker:
        assert isinstance(broker, EmbeddedBroker)
        broker.create_topic("t", 1)
        before = sorted(tmp_path.rglob("*"))

        with pytest.raises(BrokerError):
            broker.writer.append(columns(topic))
        with pytest.raises(RequestError, match="numbered from 0"):
            broker.writer.append(replace(columns(), queue_ids=np.array([-1], dtype=np.int32)))

        assert sorted(tmp_path.rglob("*")) == before
