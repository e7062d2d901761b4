from __future__ import annotations

import pytest

from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.plan.offsets import Bounds
from pyspark_rocketmq.plan.rate_limit import (
    TriggerLimits,
    backlog,
    batch_end,
    byte_shares,
    is_worth_a_batch,
    limit_messages,
)

Offsets = dict[QueueRef, LogicalOffset]


def queue(number: int, topic: str = "t") -> QueueRef:
    return QueueRef(topic, "b", number)


def offsets(*numbers: int) -> Offsets:
    return {queue(index): LogicalOffset(number) for index, number in enumerate(numbers)}


def bounds(end: Offsets, earliest: int = 0) -> dict[QueueRef, Bounds]:
    return {each: Bounds(LogicalOffset(earliest), latest) for each, latest in end.items()}


@pytest.mark.parametrize(
    ("sizes", "limit", "shares"),
    [
        ((101, 11, 1), 10, (8, 1, 1)),
        ((93, 10, 0), 10, (9, 1, 0)),
        ((21, 11, 1), 20, (12, 6, 1)),
        ((15, 0, 0, 0, 0), 5, (5, 0, 0, 0, 0)),
        ((5,), 2**63 - 1, (5,)),
        ((1,) * 100, 10, (1,) * 100),
        ((0, 0), 10, (0, 0)),
    ],
)
def test_a_limit_is_shared_by_backlog(
    sizes: tuple[int, ...], limit: int, shares: tuple[int, ...]
) -> None:
    start, end = offsets(*[1000] * len(sizes)), offsets(*[1000 + size for size in sizes])

    limited = limit_messages(backlog(start, end, bounds(end)), end, limit)

    assert tuple(limited[each] - 1000 for each in start) == shares


def test_a_far_offset_does_not_overflow() -> None:
    start, end = offsets(2**63 - 10), offsets(2**63 - 1)

    limited = limit_messages(backlog(start, end, bounds(end)), end, 2**63 - 1)

    assert limited == end


def test_new_queues_are_counted_from_their_earliest_message() -> None:
    end = offsets(100)

    waiting = backlog({}, end, bounds(end, earliest=90))

    assert waiting == {queue(0): OffsetRange(queue(0), LogicalOffset(90), LogicalOffset(100))}


def test_a_new_queue_with_unknown_earliest_keeps_its_end() -> None:
    end = offsets(100)

    assert limit_messages(backlog({}, end, {}), end, 5) == end


def test_a_queue_that_went_back_keeps_its_shorter_end() -> None:
    start, end = offsets(50, 0), offsets(3, 100)

    limited = limit_messages(backlog(start, end, bounds(end)), end, 10)

    assert limited == offsets(3, 10)


@pytest.mark.parametrize(
    ("new", "waited_ms", "is_worth"),
    [(9, 0, False), (10, 0, True), (9, 499, False), (9, 500, True), (0, 500, True)],
)
def test_a_batch_waits_for_enough_messages_or_enough_time(
    new: int, waited_ms: int, is_worth: bool
) -> None:
    limits = TriggerLimits(min_messages=10, max_delay_ms=500)

    answer = is_worth_a_batch(offsets(5), offsets(5 + new), limits, waited_ms)

    assert answer is is_worth


def test_without_a_minimum_no_batch_waits() -> None:
    assert is_worth_a_batch(offsets(5), offsets(5), TriggerLimits(max_messages=3), 0)


def test_a_new_queue_counts_from_zero_for_the_minimum() -> None:
    assert is_worth_a_batch({}, offsets(10), TriggerLimits(min_messages=10), 0)


def test_bytes_are_shared_by_backlog_and_measured() -> None:
    start, end = offsets(0, 0), offsets(30, 10)
    asked: dict[QueueRef, int] = {}

    def measure(wanted: OffsetRange, size_bytes: int) -> LogicalOffset:
        asked[wanted.queue] = size_bytes
        return LogicalOffset(wanted.start + 2)

    limited = batch_end(start, end, bounds(end), TriggerLimits(max_bytes=400), measure)

    assert asked == {queue(0): 300, queue(1): 100}
    assert limited == offsets(2, 2)


def test_both_limits_hold_together() -> None:
    start, end = offsets(0), offsets(100)
    ranges: list[OffsetRange] = []

    def measure(wanted: OffsetRange, size_bytes: int) -> LogicalOffset:
        ranges.append(wanted)
        return LogicalOffset(min(wanted.end, size_bytes))

    limited = batch_end(
        start, end, bounds(end), TriggerLimits(max_messages=10, max_bytes=4), measure
    )

    assert [each.end for each in ranges] == [10]
    assert limited == offsets(4)


def test_no_limit_admits_everything() -> None:
    def measure(_wanted: OffsetRange, _size_bytes: int) -> LogicalOffset:
        raise AssertionError

    end = offsets(7, 8)

    assert batch_end(offsets(0, 0), end, bounds(end), TriggerLimits(), measure) == end


def test_even_one_byte_lets_every_queue_move() -> None:
    start, end = offsets(0, 0), offsets(1000, 1)

    assert min(byte_shares(backlog(start, end, bounds(end)), 1).values()) == 1
