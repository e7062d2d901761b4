from __future__ import annotations

import pytest

from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.plan.bounded import (
    QueueRange,
    narrow,
    plan_queue_ranges,
    present,
    split_queue_ranges,
)
from pyspark_rocketmq.plan.offsets import MAX_LONG, Bounds
from pyspark_rocketmq.plan.pushdown import Predicate, Pushed

Q0, Q1 = QueueRef("t", "b", 0), QueueRef("t", "b", 1)
BOUNDS = {
    Q0: Bounds(LogicalOffset(10), LogicalOffset(50)),
    Q1: Bounds(LogicalOffset(0), LogicalOffset(0)),
}
EVERYTHING = Pushed()
Open = dict[QueueRef, LogicalOffset | None]


def ends(zero: int | None, one: int | None) -> Open:
    return {
        queue: None if number is None else LogicalOffset(number)
        for queue, number in ((Q0, zero), (Q1, one))
    }


def test_open_ends_stay_open_also_of_empty_queues() -> None:
    ranges = plan_queue_ranges(ends(None, None), ends(None, None), BOUNDS, EVERYTHING)

    assert ranges == [QueueRange(Q0, None, None), QueueRange(Q1, None, None)]


def test_equal_ends_hold_nothing() -> None:
    ranges = plan_queue_ranges(ends(20, 0), ends(20, 0), BOUNDS, EVERYTHING)

    assert ranges == []


@pytest.mark.parametrize(
    ("start", "end", "numbers"),
    [(30, 20, "from 30 to 20"), (60, None, "from 60 to 50"), (None, 5, "from 10 to 5")],
)
def test_a_read_can_t_run_backwards(start: int | None, end: int | None, numbers: str) -> None:
    with pytest.raises(OptionError, match=rf"RESOLVED_START_AFTER_END.*t/b/0.*{numbers}"):
        plan_queue_ranges(ends(start, None), ends(end, None), BOUNDS, EVERYTHING)


def test_filters_choose_queues_and_offsets() -> None:
    pushed = Pushed(of_queue=(Predicate("queueId", "EqualTo", 0),), start=20, end=30)

    ranges = plan_queue_ranges(ends(None, None), ends(None, None), BOUNDS, pushed)

    assert ranges == [QueueRange(Q0, None, None, LogicalOffset(20), LogicalOffset(30))]


def test_contradicting_filters_leave_no_range() -> None:
    pushed = Pushed(start=30, end=20)

    assert plan_queue_ranges(ends(None, None), ends(None, None), BOUNDS, pushed) == []


def test_no_split_is_made_without_need() -> None:
    ranges = [QueueRange(Q0, None, None), QueueRange(Q1, None, None)]

    assert split_queue_ranges(ranges, BOUNDS, min_tasks=2, max_messages=None) == ranges


def test_a_default_read_is_split_by_what_is_there_and_its_outer_ends_stay_open() -> None:
    ranges = [QueueRange(Q0, None, None), QueueRange(Q1, None, None)]

    cut = split_queue_ranges(ranges, BOUNDS, min_tasks=None, max_messages=20)

    low, middle, high = LogicalOffset(0), LogicalOffset(30), LogicalOffset(MAX_LONG)
    assert cut == [
        QueueRange(Q0, None, None, low, middle),
        QueueRange(Q0, None, None, middle, high),
        QueueRange(Q1, None, None),
    ]
    assert [present(each, BOUNDS[each.queue]).size for each in cut] == [20, 20, 0]


def test_a_window_only_shrinks() -> None:
    each = QueueRange(Q0, None, None, LogicalOffset(5), LogicalOffset(9))

    assert narrow(each, LogicalOffset(3), LogicalOffset(20)) == each
    assert narrow(each, LogicalOffset(7)).low == 7
    assert narrow(each, None, LogicalOffset(8)).high == 8
