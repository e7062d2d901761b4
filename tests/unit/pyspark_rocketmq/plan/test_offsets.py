from __future__ import annotations

import json

import pytest

from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.errors import CheckpointError, OptionError
from pyspark_rocketmq.plan.offsets import SourceOffset, parse_offsets

A0, A2, A10 = (QueueRef("a", "broker-a", number) for number in (0, 2, 10))
B0 = QueueRef("b", "broker-b", 0)


def test_text_is_sorted_by_topic_broker_and_number() -> None:
    offsets = SourceOffset({B0: LogicalOffset(1), A10: LogicalOffset(2), A2: LogicalOffset(3)})

    assert offsets.render() == '{"a":{"broker-a":{"2":3,"10":2}},"b":{"broker-b":{"0":1}}}'


def test_equal_offsets_built_in_another_order_give_one_text() -> None:
    one = SourceOffset({A0: LogicalOffset(1), B0: LogicalOffset(2)})
    other = SourceOffset({B0: LogicalOffset(2), A0: LogicalOffset(1)})

    assert one == other
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_nothing_is_an_offset_too() -> None:
    assert SourceOffset.from_json({}).render() == "{}"


def test_the_start_of_a_first_batch_is_part_of_the_text_and_not_of_the_offset() -> None:
    start, end = ({QueueRef("t", "b", 0): LogicalOffset(number)} for number in (3, 7))

    both = SourceOffset(end, start)
    text = both.render()
    read = SourceOffset.from_json(text)

    assert text == '{"t":{"b":{"0":7}},"@start":{"t":{"b":{"0":3}}}}'
    assert (read.queues, read.start, read.render()) == (end, start, text)
    assert both == SourceOffset(end)
    assert hash(both) == hash(SourceOffset(end))


def test_two_levels_mean_the_topic_s_only_broker() -> None:
    assert SourceOffset.from_json({"a": {"2": 5}}, known=lambda: [A2]) == SourceOffset(
        {A2: LogicalOffset(5)}
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        "null",
        "{",
        [],
        {"a": 1},
        {"a": {"broker-a": {"0": -1}}},
        {"a": {"broker-a": {"x": 1}}},
        {"a": {"broker-a": {"0": "1"}}},
        {"a": {"0": 1}},
        {"logOffset": 3},
    ],
)
def test_another_source_s_offset_is_refused(value: object) -> None:
    with pytest.raises(CheckpointError, match=r"ROCKETMQ_CHECKPOINT.MALFORMED"):
        SourceOffset.from_json(value)


def test_given_numbers_must_name_exactly_the_queues() -> None:
    numbers = parse_offsets("startingOffsets", '{"a":{"0":1,"7":2}}')

    with pytest.raises(OptionError, match=r"Missing: a/broker-a/2; not read: a/broker-a/7"):
        numbers.on([A0, A2])


def test_given_numbers_find_their_queues_in_both_forms() -> None:
    two = parse_offsets("startingOffsets", '{"a":{"0":1,"2":-1}}')
    three = parse_offsets("startingOffsets", '{"a":{"broker-a":{"0":1,"2":-1}}}')

    assert two.on([A0, A2]) == three.on([A0, A2]) == {A0: 1, A2: -1}


def test_two_levels_are_ambiguous_on_two_brokers() -> None:
    numbers = parse_offsets("startingOffsets", '{"a":{"0":1}}')

    with pytest.raises(OptionError, match=r"AMBIGUOUS_BROKER.*broker-a, broker-z"):
        numbers.on([A0, QueueRef("a", "broker-z", 0)])


def test_a_topic_that_is_not_read_is_named() -> None:
    numbers = parse_offsets("startingOffsets", '{"zzz":{"0":1}}')

    with pytest.raises(OptionError, match=r"not read: zzz/0"):
        numbers.on([])
