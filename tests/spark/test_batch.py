"""Batch reads on a real Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.kit.source_store import SourceStore


def load(spark: SparkSession, store: SourceStore, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(**store.options(**options)).load()


def bodies(frame: DataFrame) -> list[str]:
    return sorted(bytes(row["body"]).decode().strip() for row in frame.select("body").collect())


def places(frame: DataFrame) -> list[tuple[int, int]]:
    rows = frame.select("queueId", "queueOffset").collect()
    return sorted((row["queueId"], row["queueOffset"]) for row in rows)


def failure(frame: DataFrame) -> str:
    with pytest.raises(Exception, match="ROCKETMQ") as caught:
        frame.collect()
    return str(caught.value)


def offsets(**queues: int) -> str:
    return json.dumps({"t": {"broker-a": {key.removeprefix("q"): n for key, n in queues.items()}}})


@pytest.fixture
def filled(store: SourceStore) -> SourceStore:
    """Topic `t`: five messages in queue 0, three in queue 1."""
    store.create("t")
    store.send("t", "a0", "a1", "a2", "a3", "a4")
    store.send("t", "b0", "b1", "b2", queue=1)
    return store


def test_everything_is_read_with_the_ten_columns(spark: SparkSession, store: SourceStore) -> None:
    store.create("t", 1)
    sent = store.broker.send("t", b"hello", tags="A", keys=["k1", "k2"], properties={"p": "1"})
    plain = store.broker.send("t", b"plain")

    first, second = load(spark, store, subscribe="t").orderBy("queueOffset").collect()

    assert first.asDict() | {"bornTimestamp": None, "storeTimestamp": None} == {
        "topic": "t",
        "brokerName": "broker-a",
        "queueId": 0,
        "queueOffset": 0,
        "msgId": sent.msg_id,
        "tags": "A",
        "keys": "k1 k2",
        "body": bytearray(b"hello"),
        "bornTimestamp": None,
        "storeTimestamp": None,
    }
    assert first.storeTimestamp >= first.bornTimestamp
    assert (second.msgId, second.tags, second.keys) == (plain.msg_id, None, None)


def test_other_columns_come_on_request(spark: SparkSession, store: SourceStore) -> None:
    store.create("t", 1)
    sent = store.broker.send("t", b"x", properties={"region": "eu"})
    wanted = "property:region,physicalOffset,offsetMsgId,property:none,sysFlag,properties"

    row = load(spark, store, subscribe="t", columns=wanted).collect()[0]

    assert (row.region, row.physicalOffset, row.none) == ("eu", sent.physical_offset, None)
    assert row.offsetMsgId == sent.offset_msg_id
    assert row.properties["region"] == "eu"


def test_properties_can_join_the_default_columns(spark: SparkSession, filled: SourceStore) -> None:
    frame = load(spark, filled, subscribe="t", includeProperties="true")

    assert frame.columns[-1] == "properties"
    assert frame.count() == 8


def test_a_dataframe_used_again_sees_new_messages(spark: SparkSession, filled: SourceStore) -> None:
    frame = load(spark, filled, subscribe="t")
    before = frame.count()

    filled.send("t", "a5")

    assert (before, frame.count()) == (8, 9)
    assert frame.union(frame).count() == 18


def test_given_ends_are_static_and_open_ones_are_not(
    spark: SparkSession, filled: SourceStore
) -> None:
    frame = load(
        spark,
        filled,
        subscribe="t",
        startingOffsets=offsets(q0=-2, q1=1),
        endingOffsets=offsets(q0=2, q1=-1),
    )
    before = places(frame)

    filled.send("t", "a5")
    filled.send("t", "b3", queue=1)

    assert before == [(0, 0), (0, 1), (1, 1), (1, 2)]
    assert places(frame) == [*before, (1, 3)]


def test_equal_ends_read_nothing(spark: SparkSession, filled: SourceStore) -> None:
    both = offsets(q0=2, q1=0)

    frame = load(spark, filled, subscribe="t", startingOffsets=both, endingOffsets=both)

    assert places(frame) == []


def test_two_level_offsets_mean_the_one_broker(spark: SparkSession, filled: SourceStore) -> None:
    frame = load(spark, filled, subscribe="t", startingOffsets='{"t":{"0":4,"1":2}}')

    assert places(frame) == [(0, 4), (1, 2)]


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (
            {"startingOffsets": '{"t":{"0":4}}'},
            ["NOT_THE_ASSIGNED_QUEUES", "Missing: t/broker-a/1"],
        ),
        (
            {"startingOffsets": '{"t":{"0":9,"1":0}}'},
            ["RESOLVED_START_AFTER_END", "t/broker-a/0", "9 to 5"],
        ),
        ({"startingTimestamp": "99999999999999"}, ["TIMESTAMP_NOT_FOUND", "99999999999999"]),
        ({"subscribe": "nowhere"}, ["ROCKETMQ_TOPIC_NOT_FOUND", "Topic nowhere"]),
    ],
    ids=["not all queues", "beyond the end", "no message that young", "no topic"],
)
def test_what_only_the_broker_knows_is_refused_at_the_action(
    spark: SparkSession, filled: SourceStore, options: dict[str, str], texts: list[str]
) -> None:
    text = failure(load(spark, filled, **({"subscribe": "t"} | options)))

    assert all(each in text for each in texts), text


def test_timestamps_choose_by_store_time(spark: SparkSession, filled: SourceStore) -> None:
    times = {
        row.queueOffset: row.storeTimestamp.timestamp()
        for row in load(spark, filled, subscribe="t").where("queueId = 0").collect()
    }
    middle = str(round(times[2] * 1000))
    expected = [offset for offset, time in times.items() if time >= times[2]]
    assigned: dict[str, Any] = {"assign": '{"t":[0]}'}

    after = load(spark, filled, **assigned, startingTimestamp=middle)
    before = load(spark, filled, **assigned, endingTimestamp=middle)
    future = load(spark, filled, **assigned, endingTimestamp="99999999999999")
    late = load(
        spark,
        filled,
        **assigned,
        startingTimestamp="99999999999999",
        startingOffsetsByTimestampStrategy="latest",
    )

    assert places(after) == [(0, offset) for offset in sorted(expected)]
    assert places(before) == [(0, offset) for offset in range(5) if offset not in expected]
    assert len(places(future)) == 5
    assert places(late) == []


def test_queues_can_be_assigned_and_missing_ones_are_left_out(
    spark: SparkSession, filled: SourceStore
) -> None:
    frame = load(spark, filled, assign='{"t":{"broker-a":[1,7]}}')

    assert bodies(frame) == ["b0", "b1", "b2"]


def test_a_pattern_joins_topics_but_no_system_topic(
    spark: SparkSession, filled: SourceStore
) -> None:
    filled.create("other-t", 1)
    filled.send("other-t", "c0")
    filled.create("%RETRY%t", 1)
    filled.send("%RETRY%t", "never")

    assert bodies(load(spark, filled, subscribePattern="t$")) == [
        *[f"a{n}" for n in range(5)],
        *[f"b{n}" for n in range(3)],
        "c0",
    ]
    assert bodies(load(spark, filled, subscribe="%RETRY%t")) == ["never"]
    assert load(spark, filled, subscribePattern="^nothing$").count() == 0


def test_ranges_are_cut_into_tasks(spark: SparkSession, filled: SourceStore) -> None:
    def tasks(**options: str) -> list[int]:
        frame = load(spark, filled, subscribe="t", **options)
        counts = frame.groupBy(F.spark_partition_id()).count().collect()
        return sorted(row["count"] for row in counts)

    assert tasks() == [3, 5]
    assert tasks(maxRecordsPerPartition="2") == [1, 1, 2, 2, 2]
    assert tasks(minPartitions="8") == [1] * 8


def test_tags_and_sql_choose_messages_in_the_task(spark: SparkSession, store: SourceStore) -> None:
    store.create("t", 1)
    for number in range(6):
        tag = "even" if number % 2 == 0 else "odd"
        store.broker.send("t", b"%d" % number, tags=tag, properties={"n": str(number)})

    assert bodies(load(spark, store, subscribe="t", tags="odd || none")) == ["1", "3", "5"]
    assert bodies(load(spark, store, subscribe="t", tags="*")) == list("012345")
    assert bodies(load(spark, store, subscribe="t", sql="n BETWEEN 2 AND 4")) == list("234")


def test_expired_messages_fail_or_are_skipped(spark: SparkSession, store: SourceStore) -> None:
    store.create("t", 1)
    sent = store.send("t", *[str(number) for number in range(300)], size=1000)
    store.expire(sent[150])
    earliest = next(iter(store.broker.offsets("t").values()))[0]
    assert 0 < earliest <= 150
    given = {"subscribe": "t", "startingOffsets": '{"t":{"0":10}}', "columns": "body,queueOffset"}

    tolerant = load(spark, store, **given, failOnDataLoss="false")
    text = failure(load(spark, store, **given))

    assert len(bodies(tolerant)) == 300 - earliest
    assert "[ROCKETMQ_DATA_LOSS.OFFSET_EXPIRED]" in text
    assert f"starts at {earliest}, but 10 is needed; {earliest - 10} messages are gone" in text
    assert len(bodies(load(spark, store, subscribe="t"))) == 300 - earliest


def test_a_temporary_view_passes_options(spark: SparkSession, filled: SourceStore) -> None:
    options = filled.options(subscribe="t", columns="queueId")
    listed = ", ".join(f"`{key}` '{value}'" for key, value in options.items())
    spark.sql(f"CREATE TEMPORARY VIEW messages USING rocketmq OPTIONS ({listed})")

    rows = spark.sql("SELECT queueId, count(*) FROM messages GROUP BY 1 ORDER BY 1").collect()

    spark.catalog.dropTempView("messages")
    assert [tuple(row) for row in rows] == [(0, 5), (1, 3)]


def test_a_store_that_is_not_there_is_named(spark: SparkSession, store: SourceStore) -> None:
    options = store.options(subscribe="t") | {"broker": "file:/nowhere/at/all"}

    text = failure(spark.read.format("rocketmq").options(**options).load())

    assert "[ROCKETMQ_BROKER.FAILED]" in text
    assert "/nowhere/at/all" in text
