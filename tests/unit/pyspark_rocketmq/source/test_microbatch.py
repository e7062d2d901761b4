from __future__ import annotations

from typing import Any

import pytest

from broker_core.errors import BrokerError, TopicNotFoundError, UnavailableError
from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.errors import (
    BrokerUnavailableError,
    DataLossError,
    OptionError,
    SubscriptionError,
)
from pyspark_rocketmq.options.options import SourceOptions
from pyspark_rocketmq.plan.offsets import SourceOffset
from pyspark_rocketmq.plan.rate_limit import TriggerLimits
from pyspark_rocketmq.source.microbatch import IDLE_PAUSE_MS, GroupProgress, MicroBatches
from pyspark_rocketmq.source.offset_reader import OffsetReader
from tests.kit.clock import ManualClock
from tests.kit.memory_broker import MemoryBroker

Q0, Q1, Q2 = (QueueRef("t", "broker-a", number) for number in range(3))
ALL = TriggerLimits()


class Run:
    """One run of a query over a broker in memory."""

    def __init__(self, broker: MemoryBroker, **options: str) -> None:
        texts = {"broker": "memory:", "fetchOffset.retryIntervalMs": "10", **options}
        if not {"subscribePattern", "assign"} & texts.keys():
            texts["subscribe"] = texts.get("subscribe", "t")
        self.options = SourceOptions.parse(texts).for_stream()
        self.clock = ManualClock()
        opener: Any = lambda: broker  # noqa: E731 - a Broker as far as the source needs one
        offset_reader = OffsetReader(opener, "memory:", self.options.retry, self.clock)
        group = self.options.consumer_group if self.options.commit_offsets else None
        progress = GroupProgress(opener, group) if group else None
        self.batches = MicroBatches(self.options, offset_reader, self.clock, progress)

    def advance(self, start: SourceOffset, limits: TriggerLimits | None = None) -> SourceOffset:
        return self.batches.advance(start, self.options.limits if limits is None else limits)

    def spans(self, start: SourceOffset, end: SourceOffset) -> list[tuple[int, int, int]]:
        planned = self.batches.plan(start, end)
        return [(each.queue.queue_id, each.start, each.end) for each in planned]


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic("t", 2)
    broker.put(Q0, *[b"x"] * 10)
    broker.put(Q1, *[b"x"] * 4)
    return broker


def at(*numbers: int) -> SourceOffset:
    queues = (QueueRef("t", "broker-a", number) for number in range(len(numbers)))
    return SourceOffset(dict(zip(queues, map(LogicalOffset, numbers), strict=True)))


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


def test_a_replayed_first_batch_that_ended_before_today_s_latest_reads_nothing(
    broker: MemoryBroker,
) -> None:
    run = Run(broker)

    start = run.batches.initial()

    assert run.spans(start, at(3, 4)) == []


def test_a_queue_that_came_before_the_first_batch_was_replayed_is_new_and_not_gone(
    broker: MemoryBroker,
) -> None:
    run = Run(broker)
    broker.create_topic("t", 3)
    broker.put(Q2, b"new")

    start = run.batches.initial()

    assert start == at(10, 4, 1)
    assert run.spans(start, at(10, 4)) == []
    assert run.spans(at(10, 4), run.advance(at(10, 4))) == [(2, 0, 1)]


def test_a_topic_deleted_before_the_first_batch_of_a_fresh_query_is_data_loss(
    broker: MemoryBroker,
) -> None:
    broker.create_topic("u", 1)
    run = Run(broker, subscribe="t,u", startingOffsets="earliest")
    start = run.batches.initial()
    broker.delete_topic("u")

    end = run.advance(start)

    with pytest.raises(DataLossError, match=r"QUEUES_DELETED.*u/broker-a/0"):
        run.batches.plan(start, end)


def test_a_replayed_first_batch_needs_no_second_pin(broker: MemoryBroker) -> None:
    run = Run(broker)

    run.spans(run.batches.initial(), at(10, 4))
    broker.put(Q0, b"new")

    assert run.advance(at(10, 4)) == at(11, 4)


def test_a_given_start_beyond_the_end_is_data_loss(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets='{"t":{"0":99,"1":0}}')

    start = run.batches.initial()
    end = run.advance(start)

    assert end == at(10, 4)
    with pytest.raises(DataLossError, match=r"OFFSET_WENT_BACK.*ends at 10.*read to 99"):
        run.batches.plan(start, end)


def test_a_group_starts_where_it_stands(broker: MemoryBroker) -> None:
    broker.groups["g", Q1] = LogicalOffset(3)

    run = Run(broker, startingOffsets="group", consumerGroup="g")

    assert run.batches.initial() == at(0, 3)


def test_start_offsets_must_cover_the_queues(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets='{"t":{"0":0}}')

    with pytest.raises(OptionError, match=r"NOT_THE_ASSIGNED_QUEUES.*Missing: t/broker-a/1"):
        run.batches.initial()


# New and vanished queues


def test_new_queues_are_read_from_their_first_message(broker: MemoryBroker) -> None:
    run = Run(broker)
    broker.create_topic("t", 3)
    broker.put(Q2, b"a", b"b")

    end = run.advance(at(10, 4))

    assert end == at(10, 4, 2)
    assert run.spans(at(10, 4), end) == [(2, 0, 2)]


def test_a_new_queue_that_lost_messages_is_data_loss(broker: MemoryBroker) -> None:
    broker.create_topic("t", 3)
    broker.put(Q2, b"a", b"b")
    broker.expire(Q2, 1)

    with pytest.raises(DataLossError, match="NEW_QUEUE_STARTS_LATE"):
        Run(broker).spans(at(10, 4), at(10, 4, 2))
    assert Run(broker, failOnDataLoss="false").spans(at(10, 4), at(10, 4, 2)) == [(2, 1, 2)]


def test_a_deleted_topic_is_data_loss_and_not_a_missing_topic(broker: MemoryBroker) -> None:
    broker.create_topic("u", 1)
    run = Run(broker, subscribe="t,u")
    start = SourceOffset({**at(10, 4), QueueRef("u", "broker-a", 0): LogicalOffset(0)})
    broker.delete_topic("u")

    end = run.advance(start)

    assert end == at(10, 4)
    with pytest.raises(DataLossError, match=r"QUEUES_DELETED.*u/broker-a/0"):
        run.batches.plan(start, end)


def test_a_tolerated_deletion_forgets_the_topic(broker: MemoryBroker) -> None:
    broker.create_topic("u", 1)
    run = Run(broker, subscribePattern=".", failOnDataLoss="false")
    start = SourceOffset({**at(9, 4), QueueRef("u", "broker-a", 0): LogicalOffset(0)})
    broker.delete_topic("u")

    end = run.advance(start)

    assert end == at(10, 4)
    assert run.spans(start, end) == [(0, 9, 10)]


def test_a_topic_that_was_forgotten_stays_forgotten_until_it_returns(
    broker: MemoryBroker,
) -> None:
    run = Run(broker, subscribe="t,u", failOnDataLoss="false")

    assert run.advance(at(9, 4)) == at(10, 4)
    broker.create_topic("u", 1)
    broker.put(QueueRef("u", "broker-a", 0), b"x")
    end = run.advance(at(10, 4))

    assert [str(each.queue) for each in run.batches.plan(at(10, 4), end)] == ["u/broker-a/0"]


def test_a_strict_query_does_not_forget_a_topic_that_it_names(broker: MemoryBroker) -> None:
    with pytest.raises(SubscriptionError, match="Topic u"):
        Run(broker, subscribe="t,u").advance(at(9, 4))


def test_an_offset_without_queues_is_never_written(broker: MemoryBroker) -> None:
    run = Run(broker, subscribePattern="t")
    broker.delete_topic("t")

    assert run.advance(at(10, 4)) == at(10, 4)


def test_a_pattern_without_match_waits_for_topics(broker: MemoryBroker) -> None:
    run = Run(broker, subscribePattern="later", startingOffsets="latest")

    start = run.batches.initial()
    assert start == run.advance(start) == SourceOffset({})
    broker.create_topic("later", 1)
    broker.put(QueueRef("later", "broker-a", 0), b"x")
    end = run.advance(start)

    assert [(str(each.queue), each.start, each.end) for each in run.batches.plan(start, end)] == [
        ("later/broker-a/0", 0, 1)
    ]


def test_a_missing_topic_fails_after_all_attempts_and_is_named(broker: MemoryBroker) -> None:
    run = Run(broker, subscribe="nowhere")

    with pytest.raises(SubscriptionError, match=r"Topic nowhere does not exist.*subscribe"):
        run.batches.initial()
    assert run.clock.slept_ms == [10, 10]


def test_a_shorter_queue_is_asked_about_again_before_it_is_believed(broker: MemoryBroker) -> None:
    run = Run(broker)
    broker.cut(Q0, 6)

    end = run.advance(at(10, 4))

    assert end == at(6, 4)
    assert run.clock.slept_ms == [10, 10]
    with pytest.raises(DataLossError, match=r"OFFSET_WENT_BACK.*ends at 6.*read to 10"):
        run.batches.plan(at(10, 4), end)


def test_a_tolerated_shorter_queue_goes_on_from_its_end(broker: MemoryBroker) -> None:
    run = Run(broker, failOnDataLoss="false")
    broker.cut(Q0, 6)

    end = run.advance(at(10, 4))

    assert run.spans(at(10, 4), end) == []
    broker.put(Q0, b"x")
    assert run.spans(end, run.advance(end)) == [(0, 6, 7)]


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


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_lost_target_fails_whatever_the_query_thinks_of_loss(
    broker: MemoryBroker, fail_on_data_loss: str
) -> None:
    run = Run(
        broker,
        startingOffsets="earliest",
        failOnDataLoss=fail_on_data_loss,
        maxOffsetsPerTrigger="7",
    )
    run.batches.prepare_available_now()
    end = run.advance(at(0, 0))

    broker.cut(Q0, 2)

    with pytest.raises(DataLossError, match=r"ROCKETMQ_AVAILABLE_NOW.END_AFTER_LATEST"):
        run.batches.plan(at(0, 0), end)


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
