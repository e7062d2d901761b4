from __future__ import annotations

import pickle

import pytest

from broker_core.codec.schema import DEFAULT_COLUMNS
from pyspark_rocketmq.errors import ConnectorError, OptionError
from pyspark_rocketmq.options.options import SinkOptions, SourceOptions, advice
from pyspark_rocketmq.options.table import TABLE, Scope
from pyspark_rocketmq.plan.offsets import QueueKey
from pyspark_rocketmq.plan.starting_offsets import (
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
)
from pyspark_rocketmq.plan.subscription import Assigned, Pattern, Topics

BASE = {"broker": "file:/store", "subscribe": "orders"}
OFFSETS = '{"orders":{"broker-a":{"0":23,"1":-1}}}'


def parse(**options: str) -> SourceOptions:
    """The base options with some more; `a__b` is `a.b`."""
    return SourceOptions.parse(BASE | {key.replace("__", "."): v for key, v in options.items()})


def refusal(options: dict[str, str]) -> str:
    """The text of the error that these options cause."""
    with pytest.raises(ConnectorError) as caught:
        SourceOptions.parse(options)
    return str(caught.value)


def test_the_least_that_must_be_said_is_enough() -> None:
    options = parse()

    assert options.subscription == Topics("subscribe", ("orders",))
    assert options.columns == DEFAULT_COLUMNS
    assert options.starting is None
    assert not options.limits


def test_keys_are_read_in_any_case() -> None:
    options = SourceOptions.parse(
        {"BROKER": "file:/Store", "Subscribe": "Orders", "MAXOFFSETSPERTRIGGER": "5"}
    )

    assert options.client.address == "file:/Store"
    assert options.subscription == Topics("Subscribe".lower(), ("Orders",))
    assert options.limits.max_messages == 5


def test_options_pickle() -> None:
    options = parse(startingOffsets=OFFSETS, secretKey="hush", sql="a > 1")

    assert pickle.loads(pickle.dumps(options)) == options


def test_secrets_are_not_shown() -> None:
    options = parse(secretKey="hush", token="hush", securityToken="hush")

    assert "hush" not in repr(options)
    assert options.client.secret_key is not None
    assert options.client.secret_key.reveal() == "hush"


# Which broker


def test_a_missing_broker_is_named_also_when_kafka_s_option_is_there() -> None:
    text = refusal({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})

    assert "[ROCKETMQ_OPTION.MISSING] Option broker is required" in text


@pytest.mark.parametrize("scheme", ["grpc", "rocketmq", "grpcs"])
def test_an_address_with_credentials_is_refused_unprinted(scheme: str) -> None:
    text = refusal({"broker": f"{scheme}://bob:hush@host:1", "subscribe": "t"})

    assert "[ROCKETMQ_OPTION.INVALID_ADDRESS] Option broker: " in text
    assert "hush" not in text
    assert "bob" not in text


def test_an_unknown_scheme_is_refused() -> None:
    assert "INVALID_ADDRESS" in refusal({"broker": "http://h:1", "subscribe": "t"})


# Which queues


def test_topics_are_trimmed_and_empties_dropped() -> None:
    assert parse(subscribe=" b, a ,,").subscription == Topics("subscribe", ("a", "b"))


def test_topic_is_another_name_for_subscribe() -> None:
    options = SourceOptions.parse({"broker": "s", "topic": "orders"})

    assert options.subscription == Topics("topic", ("orders",))


def test_a_pattern_is_kept() -> None:
    options = SourceOptions.parse({"broker": "s", "subscribePattern": " ord.* "})

    assert options.subscription == Pattern("subscribePattern", "ord.*")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('{"t":{"b":[0,1]}}', {QueueKey("t", "b", 0), QueueKey("t", "b", 1)}),
        (' {"t":[2]} ', {QueueKey("t", "", 2)}),
    ],
)
def test_single_queues_are_assigned(text: str, keys: set[QueueKey]) -> None:
    options = SourceOptions.parse({"broker": "s", "assign": text})

    assert options.subscription == Assigned("assign", frozenset(keys))


@pytest.mark.parametrize(
    ("strategies", "fragments"),
    [
        ({}, ["NO_STRATEGY", "subscribe, subscribePattern, assign"]),
        ({"subscribe": "a", "topic": "b"}, ["SEVERAL_STRATEGIES", "subscribe and topic"]),
        ({"subscribe": "a", "assign": "{}"}, ["SEVERAL_STRATEGIES", "subscribe and assign"]),
        ({"subscribe": " , "}, ["OPTION.EMPTY", "subscribe is ','"]),
        ({"subscribePattern": "  "}, ["OPTION.EMPTY", "subscribePattern"]),
        ({"subscribePattern": "(a"}, ["OPTION.INVALID", "(a", "regular expression"]),
        ({"assign": "t:0"}, ["OPTION.INVALID", '{"orders":{"broker-a":[0,1]}}', "t:0"]),
        ({"assign": "{}"}, ["OPTION.EMPTY"]),
        ({"assign": '{"t":{"b":3}}'}, ["OPTION.INVALID"]),
        ({"assign": '{"t":["0"]}'}, ["OPTION.INVALID"]),
        ({"assign": '{"t":[-1]}'}, ["OPTION.INVALID"]),
    ],
)
def test_anything_but_one_good_strategy_is_refused(
    strategies: dict[str, str], fragments: list[str]
) -> None:
    text = refusal({"broker": "s"} | strategies)

    assert all(fragment in text for fragment in fragments)


# Which messages


@pytest.mark.parametrize("text", ["earliest", "EarLiEst", " earliest "])
def test_keywords_are_read_in_any_case(text: str) -> None:
    assert parse(startingOffsets=text).starting == Earliest()


def test_a_timestamp_beats_timestamps_per_queue_which_beat_offsets() -> None:
    times = '{"orders":{"0":5}}'

    all_three = parse(
        startingTimestamp="7", startingOffsetsByTimestamp="{broken", startingOffsets="broken"
    )
    lower_two = parse(startingOffsetsByTimestamp=times, startingOffsets="broken")

    assert all_three.starting == AtTime("startingTimestamp", 7)
    assert isinstance(lower_two.starting, AtTimes)


def test_ends_have_the_same_precedence() -> None:
    options = parse(endingTimestamp="7", endingOffsetsByTimestamp="{", endingOffsets="earliest")

    assert options.ending == AtTime("endingTimestamp", 7)


def test_offsets_are_read_from_json() -> None:
    starting = parse(startingOffsets=OFFSETS).starting

    assert isinstance(starting, AtOffsets)
    assert starting.numbers.numbers == {
        QueueKey("orders", "broker-a", 0): 23,
        QueueKey("orders", "broker-a", 1): -1,
    }


def test_a_group_is_a_place_to_start() -> None:
    assert parse(startingOffsets="group", consumerGroup="g").starting == AtGroup("g")


@pytest.mark.parametrize(
    "option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"]
)
@pytest.mark.parametrize(
    "text",
    [
        "tomorrow",
        "{",
        "[]",
        '{"t":3}',
        '{"t":{"0":"3"}}',
        '{"t":{"x":3}}',
        '{"t":{"0":1.5}}',
        '{"t":{"0":true}}',
        '{"t":{"0":1,"0":2}}',
        '{"t":{"b":{"0":1},"1":2}}',
        '{"t":{"0":9223372036854775808}}',
    ],
)
def test_malformed_offsets_are_refused_with_an_example(option: str, text: str) -> None:
    shown = refusal(BASE | {option: text})

    assert f"[ROCKETMQ_OPTION.INVALID] Option {option} is '{text}'" in shown
    assert '{"orders":{"broker-a":{"0":' in shown


def test_an_offset_below_earliest_is_refused() -> None:
    assert "OPTION.INVALID" in refusal(BASE | {"startingOffsets": '{"t":{"0":-3}}'})


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"startingTimestamp": "yesterday"}, ["startingTimestamp is 'yesterday'", "milliseconds"]),
        ({"endingTimestamp": "1.0"}, ["endingTimestamp is '1.0'"]),
        ({"startingOffsetsByTimestampStrategy": "sometimes"}, ["one of error, latest"]),
        ({"endingOffsets": "earliest"}, ["END_IS_EARLIEST", "endingOffsets"]),
        ({"endingOffsets": '{"t":{"b":{"1":-2}}}'}, ["END_IS_EARLIEST", "for t/b/1"]),
        ({"startingOffsets": "group"}, ["OPTION.MISSING", "consumerGroup", "group starts"]),
        ({"commitOffsets": "true"}, ["OPTION.MISSING", "consumerGroup", "commitOffsets"]),
        ({"tags": "A", "sql": "a > 1"}, ["OPTION.CONFLICT", "tags and sql"]),
        (
            {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"},
            ["minOffsetsPerTrigger is 11", "maxOffsetsPerTrigger, which is 10"],
        ),
        ({"sql": "price >"}, ["ROCKETMQ_OPTION.INVALID_FILTER", "Option sql", "^"]),
        ({"tags": "||"}, ["ROCKETMQ_OPTION.INVALID_FILTER", "Option tags"]),
        ({"maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger is '0'"]),
        ({"maxOffsetsPerTrigger": "-5"}, ["maxOffsetsPerTrigger is '-5'"]),
        ({"minPartitions": "0"}, ["minPartitions is '0'"]),
        ({"maxRecordsPerPartition": "-1"}, ["maxRecordsPerPartition is '-1'"]),
        ({"maxBytesPerTrigger": "1k"}, ["maxBytesPerTrigger is '1k'"]),
        ({"failOnDataLoss": "no"}, ["failOnDataLoss is 'no'", "true or false"]),
        ({"columns": "body,wat"}, ["UNKNOWN_COLUMN", "wat"]),
        ({"columns": " "}, ["OPTION.EMPTY", "columns"]),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            ["START_AFTER_END", "startingTimestamp is 9", "endingTimestamp is 8"],
        ),
        (
            {"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":8}}'},
            ["START_AFTER_END", "9", "8", "t/0"],
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"b":{"0":9}}}',
                "endingOffsetsByTimestamp": '{"t":{"b":{"0":8}}}',
            },
            ["START_AFTER_END", "t/b/0"],
        ),
        (
            {"startingOffsets": '{"t":{"0":1,"1":1}}', "endingOffsets": '{"t":{"0":8}}'},
            ["QUEUES_DIFFER", "Only in startingOffsets: t/1; only in endingOffsets: none"],
        ),
    ],
)
def test_what_is_wrong_for_any_read_is_refused_at_once(
    options: dict[str, str], fragments: list[str]
) -> None:
    text = refusal(BASE | options)

    assert all(fragment in text for fragment in fragments), text


def test_given_numbers_that_may_be_in_order_are_left_to_the_broker() -> None:
    parse(startingOffsets='{"t":{"b":{"0":9}}}', endingOffsets='{"t":{"0":10}}')
    parse(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":-1}}')
    parse(startingOffsets='{"t":{"0":9}}', endingOffsetsByTimestamp='{"t":{"0":8}}')


# Which columns


def test_properties_can_join_the_default_columns() -> None:
    assert parse(includeProperties="true").columns == (*DEFAULT_COLUMNS, "properties")


def test_named_columns_are_all_there_is() -> None:
    assert parse(columns="body", includeProperties="true").columns == ("body",)


# Stream and batch


def test_a_stream_starts_at_latest_and_a_batch_at_earliest() -> None:
    assert parse().for_stream().starting == Latest()
    assert parse().for_batch().starting == Earliest()
    assert parse().for_batch().ending == Latest()


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("endingOffsets", "latest"),
        ("endingOffsets", OFFSETS),
        ("endingTimestamp", "5"),
        ("endingOffsetsByTimestamp", '{"orders":{"0":5}}'),
    ],
)
def test_a_stream_has_no_end(option: str, text: str) -> None:
    options = SourceOptions.parse(BASE | {option: text})

    with pytest.raises(OptionError, match=f"NOT_IN_STREAM.*{option}"):
        options.for_stream()


def test_a_batch_can_t_start_at_latest() -> None:
    with pytest.raises(OptionError, match=r"START_IS_LATEST.*startingOffsets"):
        parse(startingOffsets="latest").for_batch()
    with pytest.raises(OptionError, match=r"START_IS_LATEST.*orders/broker-a/1"):
        parse(startingOffsets=OFFSETS).for_batch()


def test_a_stream_may_start_at_latest_queue_by_queue() -> None:
    assert isinstance(parse(startingOffsets=OFFSETS).for_stream().starting, AtOffsets)


# Advice


@pytest.mark.parametrize(
    ("option", "fragment"),
    [
        ("maxOffsetPerTrigger", "Did you mean maxOffsetsPerTrigger?"),
        ("kafka.bootstrap.servers", "use broker"),
        ("includeHeaders", "use includeProperties"),
        ("kafka.group.id", "use consumerGroup"),
        ("kafka.fetch.min.bytes", "Kafka client's setting"),
        ("zzzz", "unknown"),
        ("delivery", "delivery has no effect here"),
    ],
)
def test_an_option_without_effect_is_mentioned(option: str, fragment: str) -> None:
    sentences = advice(BASE | {option: "x"}, Scope.READ)

    assert len(sentences) == 1
    assert fragment in sentences[0]


def test_values_are_never_part_of_advice() -> None:
    assert "hush" not in str(advice(BASE | {"secretKeyy": "hush"}, Scope.READ))


def test_the_end_of_a_filter_that_rocketmq_ignores_is_mentioned() -> None:
    sentences = advice(BASE | {"sql": "zone LIKE 'e%'"}, Scope.READ)

    assert len(sentences) == 1
    assert "LIKE 'e%'" in sentences[0]


def test_known_options_and_spark_s_own_need_no_advice() -> None:
    given = dict.fromkeys(TABLE, "x") | {"path": "x", "checkpointLocation": "x"}
    del given["sql"]

    assert advice(given, Scope.READ | Scope.WRITE) == []


# The sink


def test_sink_options_have_their_defaults() -> None:
    options = SinkOptions.parse({"broker": "file:/store"})

    assert options.topic is None
    assert options.delivery is None
    assert options.compression == "none"
    assert options.max_message_bytes == 4194304


def test_sink_options_are_checked() -> None:
    with pytest.raises(OptionError, match="one of exactly-once, at-least-once"):
        SinkOptions.parse({"broker": "s", "delivery": "maybe"})
