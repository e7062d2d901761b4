from __future__ import annotations

from itertools import pairwise

import pytest

from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.plan.split import split

Span = tuple[str, int, int]


def ranges(*spans: Span) -> list[OffsetRange]:
    return [
        OffsetRange(QueueRef(name, "b", 0), LogicalOffset(start), LogicalOffset(end))
        for name, start, end in spans
    ]


def cuts(name: str, *bounds: int) -> list[Span]:
    return [(name, start, end) for start, end in pairwise(bounds)]


@pytest.mark.parametrize(
    ("given", "min_tasks", "max_messages", "pieces"),
    [
        ([("a", 1, 5)], 4, None, cuts("a", 1, 2, 3, 4, 5)),
        ([("a", 1, 5), ("b", 1, 21)], 4, None, cuts("a", 1, 5) + cuts("b", 1, 7, 14, 21)),
        ([("a", 1, 1), ("b", 1, 21)], 4, None, cuts("b", 1, 6, 11, 16, 21)),
        ([("a", 1, 2), ("b", 1, 1001)], 4, None, cuts("a", 1, 2) + cuts("b", 1, 334, 667, 1001)),
        ([("a", 1, 11)], 3, None, cuts("a", 1, 4, 7, 11)),
        (
            [("a", 0, 10), ("b", 0, 10), ("c", 0, 1)],
            6,
            None,
            cuts("a", 0, 3, 6, 10) + cuts("b", 0, 3, 6, 10) + cuts("c", 0, 1),
        ),
        (
            [("a", 0, 10000), ("b", 0, 15000), ("c", 0, 20000)],
            9,
            None,
            cuts("a", *range(0, 10001, 5000))
            + cuts("b", *range(0, 15001, 5000))
            + cuts("c", *range(0, 20001, 5000)),
        ),
        (
            [("a", 0, 500), ("b", 0, 12000), ("c", 0, 15001)],
            6,
            None,
            cuts("a", 0, 500) + cuts("b", 0, 6000, 12000) + cuts("c", 0, 5000, 10000, 15001),
        ),
        (
            [("a", 0, 1), ("b", 0, 1), ("c", 0, 10000)],
            6,
            None,
            cuts("a", 0, 1) + cuts("b", 0, 1) + cuts("c", 0, 2500, 5000, 7500, 10000),
        ),
        ([("a", 1, 5), ("b", 1, 21)], 1, None, cuts("a", 1, 5) + cuts("b", 1, 21)),
        ([("a", 1, 6)], None, 4, cuts("a", 1, 3, 6)),
        (
            [("a", 1, 40), ("b", 1, 50), ("c", 1, 60)],
            None,
            20,
            cuts("a", 1, 20, 40) + cuts("b", 1, 17, 33, 50) + cuts("c", 1, 20, 40, 60),
        ),
        ([("a", 1, 40)], 4, 20, cuts("a", 1, 10, 20, 30, 40)),
        ([("a", 1, 40)], 1, 20, cuts("a", 1, 20, 40)),
        ([("a", 5, 5), ("b", 9, 3)], None, None, []),
        ([("a", 1, 40)], None, None, cuts("a", 1, 40)),
    ],
)
def test_ranges_are_cut_as_kafka_users_know_it(
    given: list[Span], min_tasks: int | None, max_messages: int | None, pieces: list[Span]
) -> None:
    result = split(ranges(*given), min_tasks=min_tasks, max_messages=max_messages)

    assert [(each.queue.topic, each.start, each.end) for each in result] == pieces
