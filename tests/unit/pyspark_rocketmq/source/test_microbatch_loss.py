"""Queues that come, go and shrink under a query: what is data loss, and what is read then."""

from __future__ import annotations

import pytest

from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.errors import DataLossError, SubscriptionError
from pyspark_rocketmq.plan.offsets import SourceOffset
from tests.kit.memory_broker import MemoryBroker
from tests.kit.query_run import Q0, Q2, Run, at, ten_and_four


@pytest.fixture
def broker() -> MemoryBroker:
    return ten_and_four()


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

    with pytest.raises(DataLossError, match=r"QUEUES_DELETED.*u/broker-a/0"):
        run.advance(start)
    with pytest.raises(DataLossError, match=r"QUEUES_DELETED.*u/broker-a/0"):
        run.batches.plan(start, at(10, 4))


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
    broker.delete_topic("t")

    with pytest.raises(DataLossError, match="QUEUES_DELETED"):
        Run(broker, subscribePattern="t").advance(at(10, 4))
    run = Run(broker, subscribePattern="t", failOnDataLoss="false")
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

    with pytest.raises(DataLossError, match=r"OFFSET_WENT_BACK.*ends at 6.*read to 10"):
        run.advance(at(10, 4))
    assert run.clock.slept_ms == [10, 10]
    with pytest.raises(DataLossError, match=r"OFFSET_WENT_BACK.*ends at 6.*read to 10"):
        run.batches.plan(at(10, 4), at(6, 4))


def test_a_tolerated_shorter_queue_goes_on_from_its_end(broker: MemoryBroker) -> None:
    run = Run(broker, failOnDataLoss="false")
    broker.cut(Q0, 6)

    end = run.advance(at(10, 4))

    assert run.spans(at(10, 4), end) == []
    broker.put(Q0, b"x")
    assert run.spans(end, run.advance(end)) == [(0, 6, 7)]


def test_a_topic_deleted_before_the_first_batch_of_a_fresh_query_is_data_loss(
    broker: MemoryBroker,
) -> None:
    broker.create_topic("u", 1)
    run = Run(broker, subscribe="t,u", startingOffsets="earliest")
    start = run.batches.initial()
    broker.delete_topic("u")

    with pytest.raises(DataLossError, match=r"QUEUES_DELETED.*u/broker-a/0"):
        run.advance(start)


def test_a_given_start_beyond_the_end_is_data_loss(broker: MemoryBroker) -> None:
    run = Run(broker, startingOffsets='{"t":{"0":99,"1":0}}')

    start = run.batches.initial()

    with pytest.raises(DataLossError, match=r"OFFSET_WENT_BACK.*ends at 10.*read to 99"):
        run.advance(start)


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


# Queues that are not chosen any more

U0 = QueueRef("u", "broker-a", 0)
NARROWER = [
    {"subscribe": "t"},
    {"subscribePattern": "^t"},
    {"assign": '{"t":[0,1]}'},
]


@pytest.fixture
def both(broker: MemoryBroker) -> MemoryBroker:
    """Topics t and u, of which a query with the pattern "." has read (9, 4) and 1."""
    broker.create_topic("u", 1)
    broker.put(U0, b"u0", b"u1")
    return broker


BOTH = SourceOffset({**at(9, 4), U0: LogicalOffset(1)})


@pytest.mark.parametrize("options", NARROWER, ids=str)
def test_queues_that_are_not_chosen_any_more_are_told_from_deleted_ones(
    both: MemoryBroker, options: dict[str, str]
) -> None:
    with pytest.raises(DataLossError, match=r"QUEUES_NOT_SUBSCRIBED.*u/broker-a/0 exist"):
        Run(both, **options).advance(BOTH)
    with pytest.raises(DataLossError, match=r"QUEUES_NOT_SUBSCRIBED.*u/broker-a/0 exist"):
        Run(both, **options).batches.plan(BOTH, at(10, 4))

    run = Run(both, subscribePattern=".")
    end = run.advance(BOTH)
    assert [str(each.queue) for each in run.batches.plan(BOTH, end)] == [str(Q0), str(U0)]


@pytest.mark.parametrize("is_available_now", [False, True])
@pytest.mark.parametrize("options", NARROWER, ids=str)
def test_a_tolerant_query_keeps_the_offsets_of_queues_that_are_left_out(
    both: MemoryBroker,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    is_available_now: bool,
) -> None:
    run = Run(both, failOnDataLoss="false", **options)
    if is_available_now:
        run.batches.prepare_available_now()

    end = run.advance(BOTH)

    assert end == SourceOffset({**at(10, 4), U0: LogicalOffset(1)})
    assert run.spans(BOTH, end) == [(0, 9, 10)]
    assert run.advance(end) == end
    assert caplog.text.count("QUEUES_NOT_SUBSCRIBED") == 1
    run = Run(both, subscribePattern=".")
    assert run.spans(end, run.advance(end)) == [(0, 1, 2)]


def test_a_pattern_that_chooses_nothing_any_more_is_refused(both: MemoryBroker) -> None:
    with pytest.raises(DataLossError, match="QUEUES_NOT_SUBSCRIBED"):
        Run(both, subscribePattern="^nothing").advance(BOTH)


def test_a_broker_of_another_name_is_refused(both: MemoryBroker) -> None:
    renamed = MemoryBroker()
    renamed.create_topic("t", 2, broker_name="broker-b")
    renamed.create_topic("u", 1, broker_name="broker-b")

    with pytest.raises(DataLossError, match=r"QUEUES_DELETED.*t/broker-a/0"):
        Run(renamed, subscribePattern=".").advance(BOTH)


def test_a_new_queue_that_lost_messages_is_refused_before_its_end_is_logged(
    both: MemoryBroker,
) -> None:
    both.expire(U0, 1)

    with pytest.raises(DataLossError, match="NEW_QUEUE_STARTS_LATE"):
        Run(both, subscribe="t,u").advance(at(10, 4))
    assert Run(both).advance(at(10, 4)) == at(10, 4)


def test_messages_that_are_gone_are_refused_before_the_end_is_logged(broker: MemoryBroker) -> None:
    """A broker that was given by mistake may begin after the checkpoint."""
    other = ten_and_four()
    other.expire(Q0, 8)
    broker.put(Q0, b"next")

    with pytest.raises(DataLossError, match=r"OFFSET_EXPIRED.*starts at 8, but 5 is needed"):
        Run(other).advance(at(5, 4))
    assert Run(other).advance(at(8, 4)) == at(10, 4)
    assert Run(other, failOnDataLoss="false").advance(at(5, 4)) == at(10, 4)
    assert Run(broker).advance(at(5, 4)) == at(11, 4)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_logged_batch_is_read_as_it_was_logged_whatever_is_subscribed_now(
    both: MemoryBroker, fail_on_data_loss: str
) -> None:
    """Its queue u is new in it, so its start is not in the log but on the broker."""
    run = Run(both, subscribe="t", failOnDataLoss=fail_on_data_loss)

    assert run.spans(at(9, 4), SourceOffset({**at(10, 4), U0: LogicalOffset(2)})) == [
        (0, 9, 10),
        (0, 0, 2),
    ]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_first_batch_of_an_older_version_and_other_options_is_refused(
    both: MemoryBroker, start: str
) -> None:
    """Its start is in no log, and these options do not tell where it was for u."""
    logged = SourceOffset({**at(10, 4), U0: LogicalOffset(2)})
    run = Run(both, subscribe="t", startingOffsets=start)

    with pytest.raises(DataLossError, match=r"QUEUES_NOT_SUBSCRIBED.*u/broker-a/0"):
        run.batches.plan(run.batches.initial(), logged)


def test_a_pinned_first_batch_stays_empty_with_other_options(both: MemoryBroker) -> None:
    first = Run(both, subscribe="t,u", startingOffsets="latest")
    logged = first.advance(first.batches.initial())
    run = Run(both, subscribe="t", startingOffsets="latest")

    assert logged == SourceOffset({**at(10, 4), U0: LogicalOffset(2)})
    assert run.batches.plan(run.batches.initial(), logged) == []


def test_a_topic_that_is_missing_for_a_moment_is_asked_for_again(
    both: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out of the first answer only, as a route does that is being changed."""
    topics = both.topics
    monkeypatch.setattr(both, "topics", lambda: [each for each in topics() if each != "u"])

    end = Run(both, subscribePattern=".").advance(BOTH)

    assert end == SourceOffset({**at(10, 4), U0: LogicalOffset(1)})
