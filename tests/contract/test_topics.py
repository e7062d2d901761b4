from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core import (
    InvalidNameError,
    QueueRef,
    RequestError,
    TopicExistsError,
    TopicNotFoundError,
)
from broker_core.api import Broker, TransactionalBroker
from tests.contract.conftest import Place


def test_every_kind_speaks_the_protocol(broker: Broker) -> None:
    assert isinstance(broker, Broker)
    assert isinstance(broker, TransactionalBroker)


def test_a_topic_that_was_made_is_described_and_listed(broker: Broker) -> None:
    made = broker.create_topic("orders", queues=3)

    assert (made.name, made.read_queues, made.write_queues) == ("orders", 3, 3)
    assert made.is_readable
    assert made.is_writable
    assert made.queues == tuple(QueueRef("orders", "broker-a", number) for number in range(3))
    assert broker.describe("orders") == made
    assert broker.topics() == ["orders"]


def test_names_are_sorted(broker: Broker) -> None:
    for name in ("b", "a", "%RETRY%group", "c"):
        broker.create_topic(name)

    assert broker.topics() == ["%RETRY%group", "a", "b", "c"]


def test_a_topic_is_made_once(broker: Broker) -> None:
    broker.create_topic("orders", queues=3)

    with pytest.raises(TopicExistsError, match="orders"):
        broker.create_topic("orders")
    assert broker.create_topic("orders", queues=8, exist_ok=True).read_queues == 3


def test_queues_are_only_added(broker: Broker) -> None:
    broker.create_topic("orders", queues=2)

    assert broker.add_queues("orders", 4).write_queues == 4
    with pytest.raises(RequestError, match="has 4 queues and can't have 3"):
        broker.add_queues("orders", 3)
    assert len(broker.offsets("orders")) == 4


@pytest.mark.parametrize("queues", [0, -1, 65537])
def test_numbers_of_queues_have_limits(broker: Broker, queues: int) -> None:
    with pytest.raises(RequestError, match=f"{queues} queues"):
        broker.create_topic("orders", queues=queues)
    assert broker.topics() == []


@pytest.mark.parametrize("name", ["", "a b", "../etc", "a/b", "x" * 128, "ü"], ids=ascii)
def test_names_that_are_none_are_refused_and_nothing_is_made(broker: Broker, name: str) -> None:
    with pytest.raises(InvalidNameError):
        broker.create_topic(name)
    assert broker.topics() == []


def test_a_deleted_topic_is_gone_and_starts_anew(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    broker.send("orders", b"old", queue_id=0)
    broker.commit_offset("group", "orders", 0, 1)

    broker.delete_topic("orders")

    assert broker.topics() == []
    with pytest.raises(TopicNotFoundError, match="orders"):
        broker.describe("orders")
    broker.create_topic("orders", queues=1)
    assert broker.consumer_offsets("group", "orders") == {}
    broker.send("orders", b"new", queue_id=0)
    assert broker.read("orders").column("body").to_pylist() == [b"new"]


def test_offsets_go_on_after_a_deletion(broker: Broker) -> None:
    """On our own brokers: Apache's starts at 0 again."""
    broker.create_topic("orders", queues=2)
    broker.send("orders", b"old", queue_id=0)
    broker.delete_topic("orders")
    broker.create_topic("orders", queues=3)

    assert list(broker.offsets("orders").values()) == [(1, 1), (0, 0), (0, 0)]
    assert broker.read("orders").num_rows == 0
    assert broker.offset_at("orders", 0, 0) == 1
    assert broker.send("orders", b"new", queue_id=0).queue_offset == 1
    assert broker.read("orders").column("body").to_pylist() == [b"new"]
    assert list(broker.offsets("orders").values()) == [(1, 2), (0, 0), (0, 0)]


def test_a_missing_topic_is_the_same_error_everywhere(broker: Broker) -> None:
    asked: list[Callable[[], object]] = [
        lambda: broker.describe("nope"),
        lambda: broker.offsets("nope"),
        lambda: broker.offset_at("nope", 0, 0),
        lambda: broker.read("nope"),
        lambda: broker.query("nope", "key"),
        lambda: broker.send("nope", b"body"),
        lambda: broker.add_queues("nope", 3),
        lambda: broker.delete_topic("nope"),
        lambda: broker.consumer_offsets("group", "nope"),
        lambda: broker.commit_offset("group", "nope", 0, 0),
    ]

    for ask in asked:
        with pytest.raises(TopicNotFoundError, match="nope"):
            ask()


def test_a_broker_opened_for_reading_changes_nothing(place: Place) -> None:
    place.open().create_topic("orders")
    reader = place.open("r")

    asked: list[Callable[[], object]] = [
        lambda: reader.create_topic("more"),
        lambda: reader.add_queues("orders", 9),
        lambda: reader.delete_topic("orders"),
        lambda: reader.send("orders", b"body"),
        lambda: reader.commit_offset("group", "orders", 0, 0),
        lambda: reader.delete_before(0),
    ]

    for ask in asked:
        with pytest.raises(RequestError, match="mode='r'"):
            ask()
    assert reader.topics() == ["orders"]
