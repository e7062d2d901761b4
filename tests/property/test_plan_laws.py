"""Laws of planning, over inputs that hypothesis makes up."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.plan.dataloss import plan_ranges, policy, readable
from pyspark_rocketmq.plan.offsets import Bounds, SourceOffset, parse_offsets
from pyspark_rocketmq.plan.rate_limit import backlog, limit_messages
from pyspark_rocketmq.plan.split import split

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
QUEUES = st.builds(QueueRef, NAMES, NAMES, st.integers(0, 2000))
OFFSETS = st.integers(0, 2**63 - 1).map(LogicalOffset)
SMALL = st.integers(0, 50).map(LogicalOffset)
FEW_QUEUES = st.builds(QueueRef, st.sampled_from("ab"), st.just("b"), st.integers(0, 3))
PLACES = st.dictionaries(FEW_QUEUES, SMALL)
TOLERANT = policy(fail=False, warn=lambda _text: None)


@st.composite
def ranges(draw: st.DrawFn) -> list[OffsetRange]:
    queues = draw(st.lists(FEW_QUEUES, unique=True))
    starts = [draw(st.integers(0, 1000)) for _ in queues]
    sizes = [draw(st.integers(0, 3000)) for _ in queues]
    return [
        OffsetRange(queue, LogicalOffset(start), LogicalOffset(start + size))
        for queue, start, size in zip(queues, starts, sizes, strict=True)
    ]


@st.composite
def bounds(draw: st.DrawFn) -> dict[QueueRef, Bounds]:
    lows = draw(PLACES)
    return {
        queue: Bounds(low, LogicalOffset(low + draw(st.integers(0, 30))))
        for queue, low in lows.items()
    }


@given(st.dictionaries(QUEUES, OFFSETS))
def test_an_offset_survives_its_text(offsets: dict[QueueRef, LogicalOffset]) -> None:
    offset = SourceOffset(offsets)

    assert SourceOffset.from_json(offset.render()) == offset
    assert SourceOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(st.dictionaries(QUEUES, OFFSETS), st.randoms(use_true_random=False))
def test_the_text_does_not_depend_on_how_the_offset_was_built(
    offsets: dict[QueueRef, LogicalOffset], random: Random
) -> None:
    items = list(offsets.items())
    random.shuffle(items)

    assert SourceOffset(dict(items)).render() == SourceOffset(offsets).render()


@given(st.dictionaries(QUEUES, OFFSETS, min_size=1))
def test_an_offset_s_text_is_a_valid_start(offsets: dict[QueueRef, LogicalOffset]) -> None:
    text = SourceOffset(offsets).render()

    assert parse_offsets("startingOffsets", text).on(offsets.keys()) == offsets


@given(ranges(), st.none() | st.integers(1, 40), st.none() | st.integers(1, 5000))
def test_splitting_keeps_every_message_once_and_in_order(
    given_ranges: list[OffsetRange], min_tasks: int | None, max_messages: int | None
) -> None:
    pieces = split(given_ranges, min_tasks=min_tasks, max_messages=max_messages)

    assert all(each.size > 0 for each in pieces)
    joined: list[OffsetRange] = []
    for piece in pieces:
        if joined and joined[-1].queue == piece.queue:
            assert joined[-1].end == piece.start
            joined[-1] = OffsetRange(piece.queue, joined[-1].start, piece.end)
        else:
            joined.append(piece)
    assert joined == [each for each in given_ranges if each.size > 0]


@given(ranges(), st.none() | st.integers(1, 40), st.integers(1, 5000))
def test_no_task_gets_more_messages_than_allowed(
    given_ranges: list[OffsetRange], min_tasks: int | None, max_messages: int
) -> None:
    pieces = split(given_ranges, min_tasks=min_tasks, max_messages=max_messages)

    assert all(each.size <= max_messages for each in pieces)


@given(ranges(), st.integers(1, 1000))
def test_admission_keeps_the_limit_but_for_one_message_a_queue(
    given_ranges: list[OffsetRange], limit: int
) -> None:
    start = {each.queue: each.start for each in given_ranges}
    end = {each.queue: each.end for each in given_ranges}
    held = {each.queue: Bounds(each.start, each.end) for each in given_ranges}

    waiting = backlog(start, end, held)
    limited = limit_messages(waiting, end, limit)

    read = {queue: limited[queue] - start[queue] for queue in waiting}
    assert all(start[queue] < limited[queue] <= end[queue] for queue in waiting)
    assert sum(size for size in read.values() if size > 1) <= limit
    assert sum(read.values()) <= limit + len(waiting)


@given(ranges(), st.integers(1, 1000))
def test_repeated_admission_reads_everything_and_starves_nobody(
    given_ranges: list[OffsetRange], limit: int
) -> None:
    place = {each.queue: each.start for each in given_ranges}
    end = {each.queue: each.end for each in given_ranges}
    total = sum(each.size for each in given_ranges)

    for _ in range(total + 1):
        place = limit_messages(backlog(place, end, {}), end, limit)

    assert place == end


@given(PLACES, PLACES, bounds())
def test_planned_ranges_are_those_between_the_offsets(
    start: dict[QueueRef, LogicalOffset],
    end: dict[QueueRef, LogicalOffset],
    held: dict[QueueRef, Bounds],
) -> None:
    planned = plan_ranges(start, end, held, TOLERANT)

    assert [each.queue for each in planned] == sorted({each.queue for each in planned})
    for each in planned:
        assert each.end == end[each.queue]
        assert each.start == (start[each.queue] if each.queue in start else held[each.queue][0])


@given(PLACES, SMALL, SMALL)
def test_two_batches_read_what_one_would(
    start: dict[QueueRef, LogicalOffset], first: LogicalOffset, second: LogicalOffset
) -> None:
    middle = {queue: LogicalOffset(place + first) for queue, place in start.items()}
    end = {queue: LogicalOffset(place + second) for queue, place in middle.items()}

    once = plan_ranges(start, end, {}, TOLERANT)
    twice = plan_ranges(start, middle, {}, TOLERANT) + plan_ranges(middle, end, {}, TOLERANT)

    def messages(found: list[OffsetRange]) -> list[tuple[QueueRef, int]]:
        return sorted(
            (each.queue, number) for each in found for number in range(each.start, each.end)
        )

    assert messages(once) == messages(twice)


@given(SMALL, SMALL, SMALL, SMALL)
def test_what_is_readable_is_what_was_asked_for_and_is_there(
    start: LogicalOffset, size: LogicalOffset, low: LogicalOffset, more: LogicalOffset
) -> None:
    queue = QueueRef("t", "b", 0)
    wanted = OffsetRange(queue, start, LogicalOffset(start + size))
    held = Bounds(low, LogicalOffset(low + more))

    rest = readable(wanted, held, TOLERANT)

    there = set(range(wanted.start, wanted.end)) & set(range(held.earliest, held.latest))
    assert set(range(rest.start, rest.end)) == there
