"""Topics that a send creates, where autoCreateTopicEnable is on, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core import (
    Broker,
    BrokerError,
    PermissionDeniedError,
    RequestError,
    TopicNotFoundError,
    open_broker,
)
from broker_core.service.auth.credentials import hash_secret
from tests.contract.test_messages import outgoing
from tests.kit.served import served

ON = {"autoCreateTopicEnable": "true", "defaultTopicQueueNums": "3"}


def test_a_send_to_an_unknown_topic_creates_it(tmp_path: Path) -> None:
    with served(tmp_path / "store", ON) as process, open_broker(process.address, "rw") as broker:
        sent = broker.send("news", b"first", queue_id=2)
        broker.append(outgoing(b"second", topic="more"))

        assert sent.queue_offset == 0
        assert broker.topics() == ["more", "news"]
        assert broker.describe("news").write_queues == 3
        assert broker.read("news", 2).column("body").to_pylist() == [b"first"]
        assert broker.read("more", 0).column("body").to_pylist() == [b"second"]


def test_a_topic_that_exists_keeps_its_queues(tmp_path: Path) -> None:
    with served(tmp_path / "store", ON) as process, open_broker(process.address, "rw") as broker:
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"x")

        assert broker.describe("orders").write_queues == 1


def test_a_send_to_an_unknown_topic_is_refused_by_default(tmp_path: Path) -> None:
    with served(tmp_path / "store") as process, open_broker(process.address, "rw") as broker:
        with pytest.raises(TopicNotFoundError, match="Topic news does not exist"):
            broker.send("news", b"x")
        with pytest.raises(TopicNotFoundError, match="Topic news does not exist"):
            broker.append(outgoing(b"x", topic="news"))

        assert broker.topics() == []


def test_a_missing_topic_tells_nothing_of_others_nor_of_the_store(tmp_path: Path) -> None:
    calls: dict[str, Callable[[Broker], object]] = {
        "describe": lambda broker: broker.describe("order"),
        "send": lambda broker: broker.send("order", b"x"),
        "append": lambda broker: broker.append(outgoing(b"x", topic="order")),
        "read": lambda broker: broker.read("order"),
        "message": lambda broker: broker.message("0" * 32),
        "offset_at": lambda broker: broker.offset_at("orders", 0, 0, broker_name="broker-b"),
    }
    with served(tmp_path / "store") as process, open_broker(process.address, "rw") as broker:
        broker.create_topic("orders", queues=1)
        for name, call in calls.items():
            with pytest.raises(BrokerError) as caught:
                call(broker)

            told = str(caught.value)
            assert str(tmp_path) not in told, name
            assert name == "offset_at" or "orders" not in told, name


def test_reading_never_creates_a_topic(tmp_path: Path) -> None:
    with served(tmp_path / "store", ON) as process, open_broker(process.address, "rw") as broker:
        for read in (broker.read, broker.offsets, broker.describe):
            with pytest.raises(TopicNotFoundError):
                read("news")

        assert broker.topics() == []


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_a_topic_of_the_brokers_own_is_never_created_for_a_sender(
    tmp_path: Path, topic: str
) -> None:
    with served(tmp_path / "store", ON) as process, open_broker(process.address, "rw") as broker:
        with pytest.raises((RequestError, TopicNotFoundError)):
            broker.send(topic, b"x")

        assert broker.topics() == []


def test_the_right_to_publish_is_enough_and_needed(tmp_path: Path) -> None:
    rules = [{"topics": "news-*", "rights": ["publish"]}]
    users = {"users": [{"name": "etl", "secret": hash_secret("hush"), "rules": rules}]}
    credentials = tmp_path / "credentials.json"
    credentials.write_text(json.dumps(users), "utf-8")
    settings = {**ON, "grpcCredentialsFile": str(credentials)}

    with served(tmp_path / "store", settings) as process:
        with open_broker(process.address, "rw", token="etl.hush", retry_ms=0) as broker:
            broker.send("news-1", b"x")
            with pytest.raises(PermissionDeniedError):
                broker.send("secrets", b"x")
        with process.pool.broker() as own:
            assert own.topics() == ["news-1"]


def test_an_embedded_store_creates_topics_only_when_told_to(tmp_path: Path) -> None:
    with (
        open_broker(tmp_path / "store", "rw", create=True, config=ON) as broker,
        pytest.raises(TopicNotFoundError),
    ):
        broker.send("news", b"x")
