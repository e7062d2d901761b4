"""Stores that Apache RocketMQ wrote, read through Spark, equal what its own client reads."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker_core.codec.schema import ALL_COLUMNS
from pyspark_rocketmq.plan.subscription import Pattern
from tests.kit import fixtures


def with_messages(document: dict[str, Any]) -> list[str]:
    return sorted(
        topic
        for topic, described in document["topics"].items()
        if any(queue["messages"] for queue in described["queues"].values())
    )


@pytest.fixture(scope="module")
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    name = str(request.param)
    return fixtures.extract(name, tmp_path_factory.mktemp("fixture")), fixtures.expected(name)


@pytest.mark.parametrize("opened", fixtures.NAMES, indirect=True)
def test_every_message_of_every_topic_is_as_the_client_sees_it(
    spark: SparkSession, opened: tuple[Path, dict[str, Any]]
) -> None:
    root, document = opened
    topics = {topic: document["topics"][topic] for topic in with_messages(document)}
    frame = (
        spark.read.format("rocketmq")
        .option("broker", f"file:{root}")
        .option("subscribe", ",".join(topics))
        .option("columns", ",".join(ALL_COLUMNS))
        .load()
    )
    expected = {
        (topic, int(queue_id), message["queueOffset"]): message
        for topic, described in topics.items()
        for queue_id, queue in described["queues"].items()
        for message in queue["messages"]
    }

    rows = {(row.topic, row.queueId, row.queueOffset): row for row in frame.collect()}

    assert rows.keys() == expected.keys()
    for place, row in rows.items():
        message = expected[place]
        properties = message["properties"]
        assert row.properties == properties
        assert row.tags == properties.get("TAGS")
        assert row.keys == properties.get("KEYS")
        assert row.offsetMsgId == message["msgId"]
        assert row.msgId == properties.get("UNIQ_KEY", message["msgId"])
        assert row.physicalOffset == message["commitLogOffset"]
        assert row.storeSize == message["storeSize"]
        assert len(row.body) == message["bodyLength"]
        assert hashlib.sha256(row.body).hexdigest() == message["bodySha256"]
        assert round(row.storeTimestamp.timestamp() * 1000) == message["storeTimestamp"]
        assert round(row.bornTimestamp.timestamp() * 1000) == message["bornTimestamp"]


@pytest.mark.parametrize("opened", ["basic-5.5", "delay-retry-dlq-5.5"], indirect=True)
def test_a_pattern_finds_the_user_s_topics_only(
    spark: SparkSession, opened: tuple[Path, dict[str, Any]]
) -> None:
    root, document = opened
    frame = (
        spark.read.format("rocketmq")
        .option("broker", f"file:{root}")
        .option("subscribePattern", ".*")
        .option("columns", "topic")
        .load()
    )

    found = {row.topic for row in frame.distinct().collect()}

    assert found == set(Pattern("subscribePattern", ".*").needed(with_messages(document)))
    assert found
