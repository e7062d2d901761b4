from __future__ import annotations

import pytest

from broker_core.errors import BrokerError, TopicNotFoundError, UnavailableError
from broker_core.types import LogicalOffset
from pyspark_rocketmq.errors import BrokerUnavailableError, DataLossError, OptionError
from pyspark_rocketmq.plan.offsets import SourceOffset
from pyspark_rocketmq.plan.rate_limit import TriggerLimits
from pyspark_rocketmq.source.microbatch import IDLE_PAUSE_MS
from tests.kit.memory_broker import MemoryBroker
from tests.kit.query_run import Q0, Q1, Q2, Run, at, ten_and_four

ALL = TriggerLimits()


@pytest.fixture
def broker() -> MemoryBroker:
    return ten_and_four()


# Where a query starts


def test_latest_is_pinned_by_an_empty_first_batch(broker: MemoryBroker) -> None:
    run = Run(broker)

    start = run.batches.initial()
    broker.put(Q0, b"new")
    first = run.advance(start)
    second = run.advance(first)

    assert start == first == at(10, 4)
    assert second == at(11, 4)


def test_the_initial_offset_does_not_change_within_a_run(broker: MemoryBroker) -> None:
    run = Run(broker)

    before = run.batches.initial()
    broker.put(Q0, b"new")

    assert run.batches.initial() == before


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "earliest"},
        {"startingOffsets": '{"t":{"0":0,"1":0}}'},
        {"startingTimestamp": "0"},
    ],
)
def test_starts_that_can_t_jump_over_messages_are_not_pinned(
    broker: MemoryBroker, options: dict[str, str]
) -> None:
    run = Run(broker, **options)

    assert run.batches.initial() == at(0, 0)
    assert run.advance(run.batches.initial()) == at(10, 4)


def test_a_mixed_start_is_pinned(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets='{"t":{"0":3,"1":-1}}')

    assert run.advance(run.batches.initial()) == run.batches.initial() == at(3, 4)


def test_a_restarted_query_is_not_pinned(broker: MemoryBroker) -> None:
    run = Run(broker)

    assert run.advance(at(2, 2)) == at(10, 4)


def first_batch(broker: MemoryBroker, **options: str) -> SourceOffset:
    """The end of a first batch as Spark has logged it when the run dies."""
    run = Run(broker, **options)
    return logged(run.advance(run.batches.initial()))


def logged(end: SourceOffset) -> SourceOffset:
    return SourceOffset.from_json(end.render())


STARTS = [
    {"startingOffsets": "earliest"},
    {"startingOffsets": "latest"},
    {"startingOffsets": "group", "consumerGroup": "g"},
    {"startingOffsets": '{"t":{"0":3,"1":0}}'},
    {"startingTimestamp": str(2**62), "startingOffsetsByTimestampStrategy": "latest"},
]


@pytest.mark.parametrize("then", STARTS, ids=str)
@pytest.mark.parametrize("first", STARTS, ids=str)
def test_a_replayed_first_batch_reads_what_was_logged_whatever_the_start_is_now(
    broker: MemoryBroker, first: dict[str, str], then: dict[str, str]
) -> None:
    broker.groups["g", Q0] = LogicalOffset(4)
    run = Run(broker, **first)
    start = run.batches.initial()
    end = run.advance(start)
    planned = run.spans(start, logged(end))
    broker.put(Q0, b"new")

    again = Run(broker, **then)
    replayed = again.spans(again.batches.initial(), logged(end))
    following = again.spans(logged(end), again.advance(logged(end)))

    assert replayed == planned
    assert following[0] == (0, end[Q0], 11)


def test_only_the_end_of_the_first_batch_says_where_it_began(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets="earliest", maxOffsetsPerTrigger="7")

    start = run.batches.initial()
    first = run.advance(start)
    run.spans(start, first)
    second = run.advance(first)

    assert (first.start, second.start) == (start.queues, None)


def test_an_idle_query_answers_with_the_text_that_was_logged(broker: MemoryBroker) -> None:
    end = first_batch(broker, startingOffsets="earliest")
    run = Run(broker)

    idle = run.advance(end)

    assert idle.render() == end.render()
    assert run.spans(end, idle) == []


def test_a_queue_that_came_before_the_first_batch_was_replayed_is_new_and_not_gone(
    broker: MemoryBroker,
) -> None:
    end = first_batch(broker)
    run = Run(broker)
    broker.create_topic("t", 3)
    broker.put(Q2, b"new")

    start = run.batches.initial()

    assert start == at(10, 4, 1)
    assert run.spans(start, end) == []
    assert run.spans(end, run.advance(end)) == [(2, 0, 1)]


def test_a_replayed_first_batch_needs_no_second_pin(broker: MemoryBroker) -> None:
    end = first_batch(broker)
    run = Run(broker)

    run.spans(run.batches.initial(), end)
    broker.put(Q0, b"new")

    assert run.advance(end) == at(11, 4)


@pytest.mark.parametrize("start", STARTS[1:], ids=str)
def test_a_first_batch_of_an_older_version_that_may_have_had_messages_is_refused(
    broker: MemoryBroker, start: dict[str, str]
) -> None:
    """That version logged ends alone, and these options would read from elsewhere."""
    broker.groups["g", Q0] = LogicalOffset(4)
    strict, tolerant = Run(broker, **start), Run(broker, failOnDataLoss="false", **start)

    with pytest.raises(DataLossError, match=r"FIRST_START_UNKNOWN.*t/broker-a/0.*not be read"):
        strict.spans(strict.batches.initial(), at(8, 4))

    begin = tolerant.batches.initial()
    assert [each for each in tolerant.spans(begin, at(8, 4)) if each[0] == 0] == (
        [(0, begin[Q0], 8)] if begin[Q0] < 8 else []
    )


def test_a_first_batch_of_an_older_version_that_skips_nothing_is_read(
    broker: MemoryBroker,
) -> None:
    run, other = Run(broker, startingOffsets="earliest"), Run(broker)

    assert run.spans(run.batches.initial(), at(3, 4)) == [(0, 0, 3), (1, 0, 4)]
    assert other.spans(other.batches.initial(), at(0, 0)) == []
    assert other.advance(at(0, 0)) == at(10, 4)


def test_a_group_starts_where_it_stands(broker: MemoryBroker) -> None:
    broker.groups["g", Q1] = LogicalOffset(3)

    run = Run(broker, startingOffsets="group", consumerGroup="g")

    assert run.batches.initial() == at(0, 3)


def test_start_offsets_must_cover_the_queues(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets='{"t":{"0":0}}')

    with pytest.raises(OptionError, match=r"NOT_THE_ASSIGNED_QUEUES.*Missing: t/broker-a/1"):
        run.batches.initial()


# How much at once


def test_a_limit_holds_for_each_batch(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets="earliest", maxOffsetsPerTrigger="7")

    first = run.advance(at(0, 0))
    second = run.advance(first)

    assert (first, second) == (at(5, 2), at(10, 4))


def test_trigger_once_ignores_limits(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets="earliest", maxOffsetsPerTrigger="1")

    assert run.advance(at(0, 0), ALL) == at(10, 4)


def test_bytes_are_limited_by_what_the_records_take(broker: MemoryBroker) -> None:
    size = len(broker.queues[Q0].records[0])
    run = Run(broker, startingOffsets="earliest", maxBytesPerTrigger=str(size * 7))

    end = run.advance(at(0, 0))

    assert end == at(5, 2)


def test_a_limit_of_one_byte_still_moves(broker: MemoryBroker) -> None:
    run = Run(broker, maxBytesPerTrigger="1")

    assert run.advance(at(0, 0)) == at(1, 1)


def test_too_few_messages_wait_until_the_delay_is_over(broker: MemoryBroker) -> None:
    run = Run(broker, minOffsetsPerTrigger="20", maxTriggerDelay="1s")

    first = run.advance(at(0, 0))
    broker.put(Q0, b"x")
    waiting = run.advance(first)
    run.clock.pass_ms(1000)
    late = run.advance(waiting)

    assert first == waiting == at(10, 4)
    assert late == at(11, 4)


def test_enough_messages_do_not_wait(broker: MemoryBroker) -> None:
    run = Run(broker, minOffsetsPerTrigger="2", maxTriggerDelay="1h")
    first = run.advance(at(0, 0))

    broker.put(Q0, b"x", b"y")

    assert run.advance(first) == at(12, 4)


# AvailableNow


def test_a_run_with_a_target_ends_there(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    run.batches.prepare_available_now()

    first = run.advance(at(0, 0))
    broker.put(Q0, *[b"late"] * 5)
    broker.create_topic("t", 3)
    broker.put(Q2, b"late")
    second = run.advance(first)
    third = run.advance(second)

    assert (first, second, third) == (at(5, 2), at(10, 4), at(10, 4))
    assert run.spans(first, second) == [(0, 5, 10), (1, 2, 4)]


def test_a_replayed_batch_is_not_judged_by_the_target(broker: MemoryBroker) -> None:
    run = Run(broker)
    run.batches.prepare_available_now()

    assert run.spans(at(0, 0), at(10, 4)) == [(0, 0, 10), (1, 0, 4)]


def test_a_latest_start_with_a_target_reads_nothing_but_ends(broker: MemoryBroker) -> None:
    run = Run(broker)
    run.batches.prepare_available_now()

    start = run.batches.initial()
    first = run.advance(start)

    assert run.advance(first) == first == start


# Talking to the broker


def test_a_broker_that_is_busy_is_asked_again(broker: MemoryBroker) -> None:
    broker.failures = [UnavailableError("busy"), UnavailableError("busy")]

    assert Run(broker).advance(at(0, 0)) == at(10, 4)


def test_a_broker_that_stays_away_fails_the_query(broker: MemoryBroker) -> None:
    broker.failures = [UnavailableError("busy")] * 3

    with pytest.raises(BrokerUnavailableError, match=r"in 3 attempts: busy"):
        Run(broker).advance(at(0, 0))


def test_an_idle_query_does_not_hammer_the_broker_and_answers_fresh(broker: MemoryBroker) -> None:
    run = Run(broker)
    here = run.advance(at(10, 4))

    broker.put(Q0, b"x")
    there = run.advance(here)

    assert run.clock.slept_ms == [IDLE_PAUSE_MS]
    assert there == at(11, 4)


def test_a_busy_query_never_pauses(broker: MemoryBroker) -> None:
    run = Run(broker, maxOffsetsPerTrigger="3")

    run.advance(run.advance(run.advance(at(0, 0))))

    assert run.clock.slept_ms == []


def test_planning_known_queues_needs_no_question(broker: MemoryBroker) -> None:
    run = Run(broker)

    run.batches.plan(at(0, 0), at(10, 4))

    assert broker.calls == []


def test_the_latest_that_is_reported_is_what_was_last_seen(broker: MemoryBroker) -> None:
    run = Run(broker, maxOffsetsPerTrigger="2")

    assert run.batches.latest() is None
    run.advance(at(0, 0))

    assert run.batches.latest() == at(10, 4)


def test_tasks_are_cut_as_asked(broker: MemoryBroker) -> None:
    run = Run(broker, maxRecordsPerPartition="5")

    assert run.spans(at(0, 0), at(10, 4)) == [(0, 0, 5), (0, 5, 10), (1, 0, 4)]


# Consumer groups


def test_progress_is_reported_as_soon_as_a_batch_is_done(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets="earliest", commitOffsets="true", consumerGroup="g")

    end = run.advance(run.batches.initial())
    before = dict(broker.groups)
    run.advance(end)

    assert before == {}
    assert broker.groups == {("g", Q0): 10, ("g", Q1): 4}


def test_progress_is_reported_once_per_batch(broker: MemoryBroker) -> None:
    run = Run(broker, commitOffsets="true", consumerGroup="g")

    run.advance(at(10, 4))
    run.batches.commit(at(10, 4))
    run.advance(at(10, 4))

    assert broker.calls.count("commit_offset") == 2


@pytest.mark.parametrize("error", [UnavailableError("busy"), TopicNotFoundError("gone")])
def test_progress_that_can_t_be_reported_stops_nothing_and_is_reported_later(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture, error: BrokerError
) -> None:
    run = Run(broker, commitOffsets="true", consumerGroup="g")
    broker.failures = [error]

    end = run.advance(at(9, 4))
    run.batches.commit(at(9, 4))

    assert end == at(10, 4)
    assert f"event=progress_not_reported group=g error={error}" in caplog.text
    assert broker.groups == {("g", Q0): 9, ("g", Q1): 4}


def test_only_queues_that_moved_are_reported(broker: MemoryBroker) -> None:
    run = Run(broker, commitOffsets="true", consumerGroup="g")

    run.batches.commit(at(9, 4))
    run.batches.commit(at(10, 4))

    assert broker.calls.count("commit_offset") == 3


def test_nothing_is_reported_unless_asked_for(broker: MemoryBroker) -> None:
    run = Run(broker, consumerGroup="g")

    run.advance(run.advance(at(0, 0)))

    assert broker.groups == {}
