"""Every case of failOnDataLoss, with both values."""

from __future__ import annotations

import pytest

from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.plan.dataloss import (
    Report,
    check_target,
    kept_offsets,
    plan_ranges,
    policy,
    readable,
)
from pyspark_rocketmq.plan.offsets import Bounds

Q0, Q1 = QueueRef("t", "b", 0), QueueRef("t", "b", 1)


class Tolerant:
    """failOnDataLoss=false, remembering what it was told."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.report: Report = policy(fail=False, warn=self.warnings.append)


def strict(text: str) -> None:
    raise AssertionError(text)


STRICT = policy(fail=True, warn=strict)


@pytest.fixture
def tolerant() -> Tolerant:
    return Tolerant()


def at(*numbers: int) -> dict[QueueRef, LogicalOffset]:
    return {queue: LogicalOffset(number) for queue, number in zip((Q0, Q1), numbers, strict=False)}


def held(*pairs: tuple[int, int]) -> dict[QueueRef, Bounds]:
    return {
        queue: Bounds(LogicalOffset(low), LogicalOffset(high))
        for queue, (low, high) in zip((Q0, Q1), pairs, strict=False)
    }


def spans(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(each.queue.queue_id, each.start, each.end) for each in ranges]


def test_known_queues_are_read_from_where_they_were_left() -> None:
    assert spans(plan_ranges(at(3, 5), at(7, 5), {}, STRICT)) == [(0, 3, 7)]


def test_bounds_of_known_queues_are_not_looked_at_when_planning() -> None:
    assert spans(plan_ranges(at(3), at(7), held((5, 7)), STRICT)) == [(0, 3, 7)]


def test_a_new_queue_is_read_from_earliest() -> None:
    assert spans(plan_ranges(at(3), at(3, 4), held((0, 3), (0, 4)), STRICT)) == [(1, 0, 4)]


def test_case_1_a_new_queue_whose_earliest_is_unknown(tolerant: Tolerant) -> None:
    assert plan_ranges({}, at(4), {}, tolerant.report) == []
    assert "QUEUE_START_UNKNOWN" in tolerant.warnings[0]
    with pytest.raises(DataLossError, match="QUEUE_START_UNKNOWN"):
        plan_ranges({}, at(4), {}, STRICT)


def test_case_2_a_new_queue_that_does_not_start_at_zero(tolerant: Tolerant) -> None:
    ranges = plan_ranges({}, at(9), held((4, 9)), tolerant.report)

    assert spans(ranges) == [(0, 4, 9)]
    assert "NEW_QUEUE_STARTS_LATE" in tolerant.warnings[0]
    with pytest.raises(DataLossError, match=r"t/b/0 is new.*starts at 4"):
        plan_ranges({}, at(9), held((4, 9)), STRICT)


def test_case_3_a_queue_that_vanished(tolerant: Tolerant) -> None:
    ranges = plan_ranges(at(3, 5), at(7), {}, tolerant.report)

    assert spans(ranges) == [(0, 3, 7)]
    assert "QUEUES_DELETED" in tolerant.warnings[0]
    with pytest.raises(DataLossError, match=r"The queues t/b/1 are gone"):
        plan_ranges(at(3, 5), at(7), {}, STRICT)


def test_case_4_a_queue_that_became_shorter(tolerant: Tolerant) -> None:
    assert plan_ranges(at(9), at(4), {}, tolerant.report) == []
    assert "OFFSET_WENT_BACK" in tolerant.warnings[0]
    with pytest.raises(DataLossError, match=r"ends at 4, but was already read to 9"):
        plan_ranges(at(9), at(4), {}, STRICT)


def test_a_start_resolved_just_now_may_lie_after_a_logged_end() -> None:
    assert plan_ranges(at(8), at(3), {}, STRICT, just_resolved=[Q0]) == []


@pytest.mark.parametrize(
    ("case", "wanted", "bounds", "left", "condition"),
    [
        ("5 start expired", (3, 9), (5, 20), (5, 9), "OFFSET_EXPIRED"),
        ("6 all expired", (3, 9), (15, 20), (15, 15), "OFFSET_EXPIRED"),
        ("6 all after latest", (8, 9), (0, 4), (8, 8), "OFFSET_NOT_REACHED"),
        ("7 end cut off", (3, 9), (0, 7), (3, 7), "OFFSET_NOT_REACHED"),
    ],
)
def test_cases_5_to_7_what_a_task_does_not_find(
    case: str,
    wanted: tuple[int, int],
    bounds: tuple[int, int],
    left: tuple[int, int],
    condition: str,
    tolerant: Tolerant,
) -> None:
    del case
    asked = OffsetRange(Q0, LogicalOffset(wanted[0]), LogicalOffset(wanted[1]))
    now = Bounds(LogicalOffset(bounds[0]), LogicalOffset(bounds[1]))

    rest = readable(asked, now, tolerant.report)

    assert (rest.start, rest.end) == left
    assert condition in tolerant.warnings[0]
    with pytest.raises(DataLossError, match=condition):
        readable(asked, now, STRICT)


def test_the_number_of_lost_messages_is_that_of_the_range() -> None:
    asked = OffsetRange(Q0, LogicalOffset(3), LogicalOffset(9))

    with pytest.raises(DataLossError, match=r"starts at 15, but 3 is needed; 6 messages are gone"):
        readable(asked, Bounds(LogicalOffset(15), LogicalOffset(20)), STRICT)


def test_an_empty_range_is_never_loss() -> None:
    asked = OffsetRange(Q0, LogicalOffset(3), LogicalOffset(3))

    assert readable(asked, Bounds(LogicalOffset(15), LogicalOffset(20)), STRICT).size == 0


def test_a_range_that_is_there_is_left_alone() -> None:
    asked = OffsetRange(Q0, LogicalOffset(3), LogicalOffset(9))

    assert readable(asked, Bounds(LogicalOffset(0), LogicalOffset(20)), STRICT) == asked


@pytest.mark.parametrize(
    ("end", "bounds", "condition"),
    [
        (at(5), held((0, 9), (0, 9)), "QUEUES_DIFFER"),
        (at(5, 5), held((0, 9)), "QUEUES_LOST"),
        (at(5, 8), held((0, 9), (0, 9)), "END_AFTER_TARGET"),
        (at(5, 6), held((0, 9), (0, 5)), "END_AFTER_LATEST"),
    ],
)
def test_case_12_a_run_with_a_target_fails_when_the_target_does_not_hold(
    end: dict[QueueRef, LogicalOffset], bounds: dict[QueueRef, Bounds], condition: str
) -> None:
    with pytest.raises(DataLossError, match=rf"ROCKETMQ_AVAILABLE_NOW\.{condition}.*restart"):
        check_target({}, end, at(7, 7), bounds)


def test_a_target_that_holds_is_accepted() -> None:
    check_target({}, at(5, 7), at(7, 7), held((0, 9), (0, 7)))


def test_queues_taken_from_a_living_topic_keep_their_place() -> None:
    assert kept_offsets(at(5, 6), [Q1], {"t"}) == {Q1: 6}


def test_queues_of_a_topic_that_is_gone_are_forgotten() -> None:
    start = {**at(5), QueueRef("gone", "b", 0): LogicalOffset(6)}

    assert kept_offsets(start, start, {"t"}) == at(5)
