from __future__ import annotations

import pytest

from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.plan.offsets import Bounds, parse_offsets, parse_times
from pyspark_rocketmq.plan.starting_offsets import (
    Answers,
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    OffsetSpec,
    late_bound_end,
    late_bound_start,
    resolve_start,
    times_needed,
)

Q0, Q1 = QueueRef("t", "b", 0), QueueRef("t", "b", 1)
BOUNDS = {
    Q0: Bounds(LogicalOffset(10), LogicalOffset(20)),
    Q1: Bounds(LogicalOffset(0), LogicalOffset(5)),
}
NOTHING = Answers()


def at(text: str) -> AtOffsets:
    return AtOffsets(parse_offsets("startingOffsets", text))


@pytest.mark.parametrize(
    ("position", "starts", "is_movable"),
    [
        (Earliest(), (10, 0), False),
        (Latest(), (20, 5), True),
        (at('{"t":{"0":12,"1":3}}'), (12, 3), False),
        (at('{"t":{"0":-2,"1":3}}'), (10, 3), False),
        (at('{"t":{"0":-2,"1":-1}}'), (10, 5), True),
        (at('{"t":{"0":99,"1":0}}'), (99, 0), False),
    ],
)
def test_a_position_becomes_numbers(
    position: OffsetSpec, starts: tuple[int, int], is_movable: bool
) -> None:
    start = resolve_start(position, BOUNDS, NOTHING)

    assert (start.offsets[Q0], start.offsets[Q1]) == starts
    assert start.is_movable is is_movable


def test_only_numbers_that_the_user_wrote_are_given() -> None:
    assert resolve_start(at('{"t":{"0":-2,"1":3}}'), BOUNDS, NOTHING).given == {Q1}
    assert resolve_start(Earliest(), BOUNDS, NOTHING).given == frozenset()


def test_a_group_starts_where_it_stands_and_else_at_earliest() -> None:
    start = resolve_start(AtGroup("g"), BOUNDS, Answers(of_group={Q1: LogicalOffset(3)}))

    assert start.offsets == {Q0: 10, Q1: 3}
    assert start.is_movable


def test_times_are_asked_for_once_per_queue() -> None:
    times = AtTimes(parse_times("startingOffsetsByTimestamp", '{"t":{"0":7,"1":8}}'))

    assert times_needed(AtTime("startingTimestamp", 5), [Q0, Q1]) == {Q0: 5, Q1: 5}
    assert times_needed(times, [Q0, Q1]) == {Q0: 7, Q1: 8}
    assert times_needed(Earliest(), [Q0, Q1]) == {}


def test_a_timestamp_starts_at_the_answer() -> None:
    answers = Answers(by_time={Q0: LogicalOffset(15), Q1: LogicalOffset(0)})

    start = resolve_start(AtTime("startingTimestamp", 5), BOUNDS, answers)

    assert start.offsets == {Q0: 15, Q1: 0}
    assert not start.is_movable


def test_a_start_timestamp_without_a_message_fails_or_means_latest() -> None:
    answers = Answers(by_time={Q0: LogicalOffset(15), Q1: LogicalOffset(5)})
    position = AtTime("startingTimestamp", 77)

    tolerant = resolve_start(position, BOUNDS, answers, late_is_latest=True)

    assert tolerant.offsets == {Q0: 15, Q1: 5}
    assert tolerant.is_movable
    with pytest.raises(OptionError, match=r"TIMESTAMP_NOT_FOUND.*t/b/1.*77 ms"):
        resolve_start(position, BOUNDS, answers)


def test_an_end_timestamp_without_a_message_is_latest() -> None:
    answers = Answers(by_time={Q0: LogicalOffset(15), Q1: LogicalOffset(5)})

    assert late_bound_end(AtTime("endingTimestamp", 77), BOUNDS, answers) == {Q0: 15, Q1: None}


def test_open_ends_stay_open() -> None:
    mixed = at('{"t":{"0":-2,"1":3}}')
    ends = at('{"t":{"0":-1,"1":4}}')

    assert late_bound_start(mixed, BOUNDS, NOTHING) == {Q0: None, Q1: 3}
    assert late_bound_end(ends, BOUNDS, NOTHING) == {Q0: None, Q1: 4}
    assert late_bound_start(Earliest(), BOUNDS, NOTHING) == {Q0: None, Q1: None}
    assert late_bound_end(Latest(), BOUNDS, NOTHING) == {Q0: None, Q1: None}


def test_numbers_must_cover_the_queues() -> None:
    with pytest.raises(OptionError, match=r"NOT_THE_ASSIGNED_QUEUES.*Missing: t/b/1"):
        resolve_start(at('{"t":{"0":12}}'), BOUNDS, NOTHING)
