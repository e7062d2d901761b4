from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from broker_core.codec.compression import decompress
from broker_core.codec.hashing.java import index_hash, java_hash
from broker_core.codec.ids import UniqueIds
from broker_core.codec.layout import SysFlag
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.text import parse_properties
from broker_core.codec.property_names import (
    BATCH_TOPIC,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
)
from pyspark_rocketmq.errors import WriteError
from pyspark_rocketmq.options.options import SinkOptions
from pyspark_rocketmq.sink.rows import Composer
from pyspark_rocketmq.sink.schema import SinkColumns

pytestmark = pytest.mark.usefixtures("either_way")

NAMES = {
    "topic": "topic",
    "tags": "tags",
    "keys": "keys",
    "properties": "properties",
    "queueId": "queue_id",
    "shardingKey": "sharding_key",
    "delayLevel": "delay_level",
}
TYPES = {
    "body": pa.binary(),
    "topic": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "queueId": pa.int32(),
    "shardingKey": pa.string(),
    "delayLevel": pa.int32(),
}
COUNTS = {"orders": 4, "bills": 3}
OWN_TOPICS = [
    form(name)
    for name in (SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, BATCH_TOPIC, DISCARD_TOPIC, "rmq_sys_x")
    for form in (str.upper, str.lower)
]


def composer(
    columns: list[str], options: dict[str, str], *, first: int = 0, transactional: bool = False
) -> Composer:
    parsed = SinkOptions.parse({"broker": "file:/s", **options})
    found = SinkColumns("body", **{NAMES[name]: name for name in columns if name != "body"})
    return Composer(
        parsed,
        found,
        COUNTS.__getitem__,
        first=first,
        is_transactional=transactional,
        unique_ids=UniqueIds(),
        clock_ms=lambda: 1_700_000_000_000,
    )


def rows(**columns: list[Any]) -> pa.RecordBatch:
    columns.setdefault("body", [b"x"] * len(next(iter(columns.values()))))
    arrays = [
        value if isinstance(value, pa.Array) else pa.array(value, type=TYPES[name])
        for name, value in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def compose(options: dict[str, str] | None = None, **columns: list[Any]) -> MessageBatch:
    batch = rows(**columns)
    given = {} if "topic" in columns else {"topic": "orders"}
    return composer(batch.schema.names, {**given, **(options or {})}).compose(batch)


def refusal(options: dict[str, str] | None = None, **columns: list[Any]) -> str:
    with pytest.raises(WriteError) as caught:
        compose(options, **columns)
    return str(caught.value)


def topics(messages: MessageBatch) -> list[str]:
    return [messages.topics[code] for code in messages.topic_codes.tolist()]


def properties(messages: MessageBatch) -> list[dict[str, str]]:
    found = [parse_properties(text) for text in messages.property_texts.to_pylist()]
    for each in found:
        each.pop("UNIQ_KEY")
    return found


def test_a_row_with_a_body_alone_is_a_message() -> None:
    messages = compose(body=[b"one", b"two"])

    assert messages.bodies.to_pylist() == [b"one", b"two"]
    assert topics(messages) == ["orders", "orders"]
    assert messages.born_timestamps == 1_700_000_000_000
    assert properties(messages) == [{}, {}]


def test_every_message_has_a_unique_key_of_its_own() -> None:
    messages = compose(body=[b"x"] * 100)

    keys = {parse_properties(text)["UNIQ_KEY"] for text in messages.property_texts.to_pylist()}

    assert len(keys) == 100
    assert {len(key) for key in keys} == {32}


def test_text_bodies_are_stored_as_utf_8() -> None:
    messages = compose(body=pa.array(["größe", "x"]))

    assert messages.bodies.to_pylist() == ["größe".encode(), b"x"]


def test_queues_take_turns_from_batch_to_batch() -> None:
    composing = composer(["body"], {"topic": "orders"}, first=2)

    first = composing.compose(rows(body=[b"x"] * 3))
    second = composing.compose(rows(body=[b"x"] * 3))

    assert first.queue_ids.tolist() == [2, 3, 0]
    assert second.queue_ids.tolist() == [1, 2, 3]


def test_each_topic_has_its_own_turns() -> None:
    messages = compose(topic=["orders", "bills", "orders", "bills", "bills", "bills", "orders"])

    assert topics(messages)[:2] == ["orders", "bills"]
    assert messages.queue_ids.tolist() == [0, 0, 1, 1, 2, 0, 2]


def test_one_sharding_key_has_one_queue() -> None:
    messages = compose(shardingKey=["u1", "u2", None, "u1", "", "größe"])

    queues = messages.queue_ids.tolist()
    assert queues[0] == queues[3] == index_hash(java_hash("u1")) % 4
    assert queues[5] == index_hash(java_hash("größe")) % 4
    assert (queues[2], queues[4]) == (2, 0)
    assert [each.get("__SHARDINGKEY") for each in properties(messages)] == [
        "u1",
        "u2",
        None,
        "u1",
        None,
        "größe",
    ]


def test_a_given_queue_goes_before_the_sharding_key() -> None:
    messages = compose(queueId=[3, None, 0], shardingKey=["u1", "u1", None])

    assert messages.queue_ids.tolist() == [3, index_hash(java_hash("u1")) % 4, 0]


@pytest.mark.parametrize("queue_id", [-1, 3])
def test_a_queue_that_the_topic_does_not_have_is_refused(queue_id: int) -> None:
    text = refusal(topic=["orders", "bills"], queueId=[3, queue_id])

    assert f"topic bills has queueId {queue_id}, but the topic has 3 queues" in text


def test_tags_keys_and_properties_are_stored_under_rocketmqs_names() -> None:
    messages = compose(
        tags=["a", None, ""],
        keys=["k1 k2", None, "k3"],
        properties=[[("p", "1"), ("q", "2")], None, [("n", None)]],
    )

    assert properties(messages) == [
        {"TAGS": "a", "KEYS": "k1 k2", "p": "1", "q": "2"},
        {},
        {"KEYS": "k3"},
    ]


@pytest.mark.parametrize("nullable", [True, False])
def test_keys_of_an_array_are_stored_between_spaces(nullable: bool) -> None:
    kind = pa.list_(pa.field("element", pa.string(), nullable=nullable))
    keys = pa.array([["a", "b"], [], ["c"], None], type=kind)

    messages = compose(body=[b"x"] * 4, keys=keys)

    assert [each.get("KEYS") for each in properties(messages)] == ["a b", None, "c", None]


def test_null_elements_of_a_key_array_are_left_out() -> None:
    keys = pa.array([["a", None, "b"], [None], ["c"]], type=pa.list_(pa.string()))

    messages = compose(body=[b"x"] * 3, keys=keys)

    assert [each.get("KEYS") for each in properties(messages)] == ["a b", None, "c"]


def test_properties_may_come_as_pairs() -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    pairs = pa.array([[{"key": "p", "value": b"1"}], [], None], type=pa.list_(pair))

    messages = compose(body=[b"x"] * 3, properties=pairs)

    assert properties(messages) == [{"p": "1"}, {}, {}]


def test_a_slice_of_a_larger_batch_is_composed_like_the_whole() -> None:
    batch = rows(
        body=[b"a", b"b", b"c", b"d"],
        tags=["1", "2", "3", "4"],
        properties=[[("p", "1")], [("p", "2")], [], [("p", "4")]],
    )
    composing = composer(batch.schema.names, {"topic": "orders"})

    messages = composing.compose(batch.slice(1, 3))

    assert messages.bodies.to_pylist() == [b"b", b"c", b"d"]
    assert properties(messages) == [
        {"TAGS": "2", "p": "2"},
        {"TAGS": "3"},
        {"TAGS": "4", "p": "4"},
    ]


@pytest.mark.parametrize("body", [None, b""], ids=["null", "empty"])
def test_a_row_without_a_body_is_refused_with_its_topic(body: bytes | None) -> None:
    text = refusal(topic=["orders", "bills"], body=[b"x", body])

    assert "ROCKETMQ_SINK.EMPTY_BODY" in text
    assert "topic bills" in text


def test_a_body_over_the_limit_is_refused_with_the_numbers() -> None:
    text = refusal({"maxMessageSize": "10"}, body=[b"x" * 10, b"x" * 11])

    assert "body of 11 bytes; the limit is 10 (maxMessageSize)" in text


def test_a_row_without_a_topic_is_refused() -> None:
    assert "ROCKETMQ_SINK.NULL_TOPIC" in refusal(topic=["orders", None])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("KEYS", "the column 'keys'"),
        ("TAGS", "the column 'tags'"),
        ("DELAY", "the column 'delayLevel'"),
        ("__SHARDINGKEY", "the column 'shardingKey'"),
        ("UNIQ_KEY", "Rename it."),
        ("REAL_TOPIC", "Rename it."),
        ("TRAN_MSG", "Rename it."),
        ("__RMQ.TRANSIENT.x", "Rename it."),
    ],
)
def test_a_name_that_rocketmq_keeps_is_refused_with_topic_and_name(name: str, hint: str) -> None:
    text = refusal(topic=["orders", "bills"], properties=[[("a", "b")], [("c", "d"), (name, "x")]])

    assert f"topic bills has the property {name}" in text
    assert hint in text


@pytest.mark.parametrize(
    "columns",
    [
        {"tags": ["a", "b\x01c"]},
        {"keys": ["a", "\x02"]},
        {"shardingKey": ["a", "x\x02y"]},
        {"properties": [[("p", "1")], [("q\x01", "2")]]},
        {"properties": [[("p", "1")], [("q", "\x02")]]},
        {"keys": pa.array([["a"], ["b", "c\x01"]], type=pa.list_(pa.string()))},
        {"tags": ["a", "b\x00"]},
        {"properties": [[("p", "1")], [("q", "\x00" * 1100)]]},
    ],
    ids=["tags", "keys", "shardingKey", "name", "value", "key-element", "zero", "zeros"],
)
def test_texts_that_properties_cannot_hold_are_refused(columns: dict[str, Any]) -> None:
    text = refusal(topic=["orders", "bills"], body=[b"x", b"y"], **columns)

    assert "ROCKETMQ_SINK.ILLEGAL_TEXT" in text
    assert "topic bills" in text


@pytest.mark.parametrize("key", ["a b", ""], ids=["space", "empty"])
def test_a_key_of_an_array_must_be_one_word(key: str) -> None:
    keys = pa.array([["a"], ["b", key]], type=pa.list_(pa.string()))

    text = refusal(topic=["orders", "bills"], body=[b"x", b"y"], keys=keys)

    assert f"topic bills has the key '{key}'" in text


@pytest.mark.parametrize("pair", [("", "x"), ("p", "")], ids=["name", "value"])
def test_empty_names_and_values_of_properties_are_refused(pair: tuple[str, str]) -> None:
    assert "no reader would ever see" in refusal(properties=[[pair]])


def test_a_delayed_message_goes_to_its_level_and_knows_where_it_belongs() -> None:
    messages = compose(
        topic=["orders", "bills", "orders", "bills"],
        delayLevel=[3, None, 0, 18],
        tags=["a", "b", None, None],
    )

    assert topics(messages) == ["SCHEDULE_TOPIC_XXXX", "bills", "orders", "SCHEDULE_TOPIC_XXXX"]
    assert messages.queue_ids.tolist() == [2, 0, 1, 17]
    assert properties(messages) == [
        {"TAGS": "a", "DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"},
        {"TAGS": "b"},
        {},
        {"DELAY": "18", "REAL_TOPIC": "bills", "REAL_QID": "1"},
    ]


@pytest.mark.parametrize("level", [-1, 19])
def test_a_delay_level_that_does_not_exist_is_refused(level: int) -> None:
    text = refusal(delayLevel=[1, level])

    assert f"topic orders has delayLevel {level}; levels are 1 to 18" in text


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_bodies_from_the_threshold_on_are_compressed(kind: str) -> None:
    large, small = b"large " * 50, b"small"

    messages = compose(
        {"compression": kind, "compressionThreshold": "100"}, body=[small, large, small]
    )

    flags = np.asarray(messages.sys_flags).tolist()
    stored = messages.bodies.to_pylist()
    assert (stored[0], stored[2]) == (small, small)
    assert flags[0] == flags[2] == 0
    assert flags[1] & SysFlag.COMPRESSED
    assert len(stored[1]) < len(large)
    assert decompress(stored[1], flags[1]) == large


def test_transactional_messages_say_so_and_name_their_group() -> None:
    batch = rows(body=[b"x"])
    composing = composer(["body"], {"topic": "orders", "producerGroup": "g"}, transactional=True)

    [found] = properties(composing.compose(batch))

    assert found == {"TRAN_MSG": "true", "PGROUP": "g"}


@pytest.mark.parametrize("topic", OWN_TOPICS)
@pytest.mark.parametrize("transactional", [True, False])
def test_a_row_for_one_of_the_brokers_own_topics_is_refused_before_any_queue_is_asked_for(
    topic: str, transactional: bool
) -> None:
    found = composer(["topic"], {}, first=3, transactional=transactional)
    found.compose(rows(body=[b"a", b"b"], topic=["orders", "bills"]))

    with pytest.raises(WriteError, match=rf"OWN_TOPIC\] Row 3 of task 3 .* has topic {topic},"):
        found.compose(rows(body=[b"c", b"d"], topic=["new", topic]))


@pytest.mark.parametrize("broker", ["file:/s", "grpc://h:1", "rocketmq://ns:9876"])
@pytest.mark.parametrize("topic", OWN_TOPICS)
def test_an_option_that_names_one_of_the_brokers_own_topics_is_refused(
    topic: str, broker: str
) -> None:
    with pytest.raises(WriteError, match=rf"OWN_TOPIC\] The option topic has topic {topic},"):
        SinkOptions.parse({"broker": broker, "topic": topic})


def test_traces_may_be_written() -> None:
    assert SinkOptions.parse({"broker": "file:/s", "topic": "RMQ_SYS_TRACE_TOPIC"}).topic
