"""Streaming reads on a real Spark: starts, limits, triggers, new queues, restarts, data loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.source.lag import Lag, LagListener
from tests.kit.queries import (
    Delivered,
    finish,
    forget_commit,
    logged_batches,
    logged_offset,
    run_available,
    running,
    start,
    stream,
)
from tests.kit.source_store import SourceStore


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def failure(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> str:
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        run_available(spark, options, checkpoint)
    return str(caught.value)


# Starts and restarts


def test_a_restart_reads_what_came_since_and_nothing_twice(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t")
    options = store.options(subscribe="t", startingOffsets="earliest")
    early = store.numbers("t", range(20))

    first = run_available(spark, options, checkpoint)
    late = store.numbers("t", range(20, 30))
    second = run_available(spark, options | {"startingOffsets": "latest"}, checkpoint)
    third = run_available(spark, options, checkpoint)

    assert first.bodies == sorted(early)
    assert second.bodies == sorted(late)
    assert third.batches == {}


def test_the_offset_log_has_the_canonical_text(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("b", 11)
    store.create("a", 1)
    store.send("b", "x", queue=10)

    run_available(spark, store.options(subscribe="b,a", startingOffsets="earliest"), checkpoint)

    text = (checkpoint / "offsets" / "0").read_text().splitlines()[-1]
    start, end = ({str(number): last * (number == 10) for number in range(11)} for last in (0, 1))
    assert text == json.dumps(
        {
            "a": {"broker-a": {"0": 0}},
            "b": {"broker-a": end},
            "@start": {"a": {"broker-a": {"0": 0}}, "b": {"broker-a": start}},
        }
    )


def test_latest_is_pinned_by_an_empty_batch_and_survives_a_crash_of_batch_0(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    store.send("t", "before", "before")
    options = store.options(subscribe="t")

    first = run_available(spark, options, checkpoint)
    pinned = logged_offset(checkpoint, 0)
    store.send("t", "after-1", "after-2")
    forget_commit(checkpoint, 0)
    second = run_available(spark, options, checkpoint)

    assert first.bodies == []
    assert pinned["t"] == pinned["@start"]["t"] == {"broker-a": {"0": 2}}
    assert second.bodies == ["after-1", "after-2"]


def test_a_first_batch_that_is_read_again_begins_where_it_began_whatever_the_options_say(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    store.send("t", "0", "1")
    run_available(spark, store.options(subscribe="t", startingOffsets="earliest"), checkpoint)
    forget_commit(checkpoint, 0)
    store.send("t", "2")

    delivered = run_available(spark, store.options(subscribe="t"), checkpoint)

    assert delivered.sizes == [2, 1]
    assert delivered.bodies == ["0", "1", "2"]


@pytest.mark.parametrize("position", ["earliest", "latest"])
def test_a_batch_that_was_not_committed_is_read_again_with_the_same_rows(
    spark: SparkSession, store: SourceStore, checkpoint: Path, position: str
) -> None:
    store.create("t")
    options = store.options(subscribe="t", startingOffsets=position, maxOffsetsPerTrigger="6")
    if position == "latest":
        run_available(spark, options, checkpoint)
    sent = store.numbers("t", range(10))

    before = run_available(spark, options, checkpoint)
    last = max(before.batches)
    forget_commit(checkpoint, last)
    sent += store.numbers("t", range(10, 15))
    after = run_available(spark, options, checkpoint)

    assert after.batches[last] == before.batches[last]
    together = {**before.batches, **after.batches}
    assert sorted(bytes(row["body"]).decode() for rows in together.values() for row in rows) == (
        sorted(sent)
    )


def test_given_offsets_and_timestamps_start_a_stream(
    spark: SparkSession, store: SourceStore, tmp_path: Path
) -> None:
    store.create("t", 1)
    store.send("t", "0", "1", "2")
    where = {"subscribe": "t", "startingOffsets": '{"t":{"0":1}}'}

    by_offset = run_available(spark, store.options(**where), tmp_path / "offset")
    by_time = run_available(spark, store.options(**where, startingTimestamp="0"), tmp_path / "time")

    assert by_offset.bodies == ["1", "2"]
    assert by_time.bodies == ["0", "1", "2"]


def test_a_filter_that_drops_everything_still_advances(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    store.send("t", *"012345")
    options = store.options(subscribe="t", startingOffsets="earliest", tags="none")

    delivered = run_available(spark, options, checkpoint)

    assert delivered.bodies == []
    assert logged_offset(checkpoint, 0)["t"] == {"broker-a": {"0": 6}}


def test_no_messages_mean_no_batches(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    delivered = Delivered()

    with running(spark, store.options(subscribe="t"), checkpoint, delivered) as query:
        query.processAllAvailable()
        query.processAllAvailable()
        store.send("t", "x")
        query.processAllAvailable()

    assert delivered.bodies == ["x"]
    assert logged_batches(checkpoint) == [0, 1]


# Limits and triggers


def test_a_limit_is_shared_by_backlog(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 3)
    store.numbers("t", range(21), queues=1)
    store.send("t", *[f"b{number}" for number in range(11)], queue=1)
    store.send("t", "c", queue=2)
    options = store.options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="20")

    delivered = run_available(spark, options, checkpoint)

    assert delivered.sizes == [19, 14]
    assert logged_offset(checkpoint, 0)["t"] == {"broker-a": {"0": 12, "1": 6, "2": 1}}


def test_a_limit_in_bytes_makes_small_batches(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    store.send("t", *[str(number) for number in range(12)], size=10_000)
    options = store.options(subscribe="t", startingOffsets="earliest", maxBytesPerTrigger="45000")

    delivered = run_available(spark, options, checkpoint)

    assert delivered.sizes == [4, 4, 4]


def test_trigger_once_ignores_limits(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    store.send("t", *"0123456789")
    options = store.options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="3")
    delivered = Delivered()

    finish(start(stream(spark, options), checkpoint, delivered, once=True))

    assert delivered.sizes == [10]


def test_available_now_ends_at_what_was_there(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    store.send("t", *"0123456789")
    options = store.options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="4")

    class Sending(Delivered):
        def __call__(self, frame: DataFrame, batch_id: int) -> None:
            super().__call__(frame, batch_id)
            store.send("t", f"late-{batch_id}")

    first = run_available(spark, options, checkpoint, Sending())
    second = run_available(spark, options, checkpoint)

    assert first.bodies == list("0123456789")
    assert second.bodies == ["late-0", "late-1", "late-2"]


def test_too_few_messages_wait_for_more(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    store.send("t", "0")
    options = store.options(
        subscribe="t",
        startingOffsets="earliest",
        minOffsetsPerTrigger="3",
        maxTriggerDelay="1h",
    )
    delivered = Delivered()

    with running(spark, options, checkpoint, delivered) as query:
        store.send("t", "1", "2")
        query.processAllAvailable()
        waiting = delivered.bodies
        store.send("t", "3")
        query.processAllAvailable()

    assert waiting == ["0"]
    assert delivered.bodies == list("0123")


# Queues that come and go


def test_new_queues_and_topics_are_read_from_their_first_message(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("a-1", 1)
    store.send("a-1", "old")
    options = store.options(subscribePattern="^a-")
    delivered = Delivered()

    with running(spark, options, checkpoint, delivered) as query:
        store.broker.add_queues("a-1", 2)
        store.send("a-1", "new queue", queue=1)
        store.create("a-2", 1)
        store.send("a-2", "new topic")
        query.processAllAvailable()

    assert delivered.bodies == ["new queue", "new topic"]
    assert logged_offset(checkpoint, max(delivered.batches)) == {
        "a-1": {"broker-a": {"0": 1, "1": 1}},
        "a-2": {"broker-a": {"0": 1}},
    }


def test_a_pattern_waits_for_its_first_topic(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    delivered = Delivered()

    with running(spark, store.options(subscribePattern="^a"), checkpoint, delivered) as query:
        store.create("a", 1)
        store.send("a", "first")
        query.processAllAvailable()

    assert delivered.bodies == ["first"]


def test_a_missing_topic_fails_the_query_and_is_named(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    text = failure(spark, store.options(subscribe="nowhere"), checkpoint)

    assert "[ROCKETMQ_TOPIC_NOT_FOUND] Topic nowhere does not exist" in text


def test_a_deleted_topic_fails_the_query_or_is_forgotten(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("a", 1)
    store.create("b", 1)
    store.send("a", "a0")
    store.send("b", "b0")
    options = store.options(subscribe="a,b", startingOffsets="earliest")
    run_available(spark, options, checkpoint)

    store.broker.delete_topic("b")
    store.send("a", "a1")
    text = failure(spark, options, checkpoint)
    tolerant = run_available(spark, options | {"failOnDataLoss": "false"}, checkpoint)

    assert "[ROCKETMQ_DATA_LOSS.QUEUES_DELETED] The queues b/broker-a/0 are gone" in text
    assert "failOnDataLoss=false" in text
    assert tolerant.bodies == ["a1"]


def test_a_topic_created_anew_is_read_from_its_first_message(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    store.send("t", *"012")
    options = store.options(subscribe="t", startingOffsets="earliest")
    run_available(spark, options, checkpoint)

    store.broker.delete_topic("t")
    store.create("t", 1)
    new = [f"new {number}" for number in range(5)]
    store.send("t", *new)

    assert run_available(spark, options, checkpoint).bodies == new


def test_a_start_with_a_wrong_subscription_leaves_the_checkpoint_as_it_was(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    for topic in ("p1", "p2"):
        store.create(topic, 1)
        store.send(topic, f"{topic}-0")
    options = store.options(startingOffsets="earliest")
    right = options | {"subscribePattern": "^p"}
    run_available(spark, right, checkpoint)
    logged = logged_batches(checkpoint)
    store.send("p1", "p1-1")
    store.send("p2", "p2-1")

    text = failure(spark, options | {"subscribe": "p2"}, checkpoint)

    assert "[ROCKETMQ_DATA_LOSS.QUEUES_NOT_SUBSCRIBED] The queues p1/broker-a/0 exist" in text
    assert logged_batches(checkpoint) == logged
    tolerant = options | {"subscribe": "p2", "failOnDataLoss": "false"}
    assert run_available(spark, tolerant, checkpoint).bodies == ["p2-1"]
    assert run_available(spark, right, checkpoint).bodies == ["p1-1"]


def test_retention_under_a_query_fails_it_or_is_skipped(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    sent = store.send("t", *[f"{number:03d}" for number in range(200)], size=1000)
    options = store.options(subscribe="t", startingOffsets='{"t":{"0":0}}')
    run_available(spark, options | {"maxOffsetsPerTrigger": "1000"}, checkpoint)
    sent += store.send("t", *[f"{number:03d}" for number in range(200, 500)], size=1000)

    store.expire(sent[400])
    earliest = next(iter(store.broker.offsets("t").values()))[0]
    text = failure(spark, options, checkpoint)
    tolerant = run_available(spark, options | {"failOnDataLoss": "false"}, checkpoint)

    assert 200 < earliest <= 400
    assert "[ROCKETMQ_DATA_LOSS.OFFSET_EXPIRED]" in text
    assert f"starts at {earliest}, but 200 is needed; {earliest - 200} messages are gone" in text
    assert [body.strip() for body in tolerant.bodies] == [
        f"{number:03d}" for number in range(earliest, 500)
    ]


# Progress


def test_progress_moves_the_consumer_group_and_a_group_starts_a_query(
    spark: SparkSession, store: SourceStore, tmp_path: Path
) -> None:
    store.create("t")
    store.numbers("t", range(6))
    group = {"consumerGroup": "spark"}
    reporting = store.options(
        subscribe="t", startingOffsets="earliest", commitOffsets="true", **group
    )

    run_available(spark, reporting, tmp_path / "one")
    reported = store.broker.consumer_offsets("spark", "t")
    late = store.numbers("t", range(6, 8))
    continued = run_available(
        spark, store.options(subscribe="t", startingOffsets="group", **group), tmp_path / "two"
    )

    assert sorted((queue.queue_id, offset) for queue, offset in reported.items()) == [
        (0, 3),
        (1, 3),
    ]
    assert continued.bodies == sorted(late)


def test_lag_is_computed_from_progress(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t")
    store.numbers("t", range(10))
    options = store.options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="4")
    lags: list[Lag] = []
    listener = LagListener(lags.append)
    spark.streams.addListener(listener)

    try:
        query = start(stream(spark, options), checkpoint, Delivered(), availableNow=True)
        finish(query)
        progress = query.lastProgress
        context: Any = spark.sparkContext._jsc
        context.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)

    assert progress is not None
    assert progress.sources[0].latestOffset == progress.sources[0].endOffset
    assert [lag.total for lag in lags][:2] == [6, 2]
    assert lags[0].metrics["maxOffsetsBehindLatest"] == "3"


def test_a_live_query_sees_messages_at_once(
    spark: SparkSession, store: SourceStore, checkpoint: Path
) -> None:
    store.create("t", 1)
    delivered = Delivered()

    with running(spark, store.options(subscribe="t"), checkpoint, delivered) as query:
        for number in range(5):
            store.send("t", str(number))
            query.processAllAvailable()
            assert len(delivered.rows) == number + 1

    assert delivered.bodies == list("01234")
