"""A sender remembers topics while it is alone with a store, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.catalog import Catalog
from broker_core.errors import IllegalMessageError, RequestError, TopicNotFoundError
from broker_core.store.writer import StoreWriter
from tests.kit import stores


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with stores.create(tmp_path / "store") as made:
        made.create_topic("orders", queues=2)
        made.send("orders", b"0")
        yield made


@pytest.fixture
def neighbour(broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """Another writer of the same store: its changes come by the files alone."""
    with stores.open_rw(broker.reader.root) as opened:
        broker.send("orders", b"1")
        yield opened


def test_a_lone_sender_looks_at_a_topic_once(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):  # each queue's first message makes files
        broker.send("orders", b"x")
    looks: list[str] = []
    config = Catalog.config

    def counted(catalog: Catalog, topic: str) -> object:
        looks.append(topic)
        return config(catalog, topic)

    monkeypatch.setattr(Catalog, "config", counted)

    for number in range(10):
        broker.send("orders", str(number).encode())

    assert looks == []


def test_a_topic_that_another_writer_deletes_is_gone_for_the_next_send(
    broker: EmbeddedBroker, neighbour: EmbeddedBroker
) -> None:
    neighbour.delete_topic("orders")

    with pytest.raises(TopicNotFoundError):
        broker.send("orders", b"late")

    assert "orders" not in broker.topics()


@pytest.mark.parametrize("who", ["broker", "neighbour"])
def test_queues_that_are_added_are_used_from_the_next_send_on(
    who: str, request: pytest.FixtureRequest, broker: EmbeddedBroker, neighbour: EmbeddedBroker
) -> None:
    del neighbour
    request.getfixturevalue(who).add_queues("orders", 4)

    queues = {broker.send("orders", b"x").queue_id for _ in range(4)}

    assert queues == {0, 1, 2, 3}


def test_a_queue_that_was_added_can_be_named(
    broker: EmbeddedBroker, neighbour: EmbeddedBroker
) -> None:
    neighbour.add_queues("orders", 4)

    sent = broker.send("orders", b"x", queue_id=3)

    assert sent.queue_id == 3


def test_a_topic_made_anew_with_fewer_queues_is_sent_to_as_it_is(
    broker: EmbeddedBroker, neighbour: EmbeddedBroker
) -> None:
    neighbour.delete_topic("orders")
    neighbour.create_topic("orders", queues=1)

    sent = [broker.send("orders", b"x") for _ in range(3)]

    first = sent[0].queue_offset
    assert [(each.queue_id, each.queue_offset - first) for each in sent] == [(0, 0), (0, 1), (0, 2)]
    with pytest.raises(RequestError, match="queues 0 to 0"):
        broker.send("orders", b"x", queue_id=1)


def test_a_neighbour_that_only_sends_is_numbered_behind(
    broker: EmbeddedBroker, neighbour: EmbeddedBroker
) -> None:
    sent = [
        sender.send("orders", b"x", queue_id=0).queue_offset
        for sender in (broker, neighbour, neighbour, broker, neighbour, broker)
    ]

    assert sent == list(range(sent[0], sent[0] + 6))


def test_queues_are_added_behind_a_sender_with_nothing_pending(
    broker: EmbeddedBroker, neighbour: EmbeddedBroker
) -> None:
    """Nobody dispatches for it, which would be another way to learn of the change."""
    broker.writer.flush()
    with pytest.raises(IllegalMessageError):
        broker.send("orders", b"")  # it has looked at the topic now
    neighbour.add_queues("orders", 4)

    queues = {broker.send("orders", b"x").queue_id for _ in range(4)}

    assert queues == {0, 1, 2, 3}


def test_a_change_is_marked_before_it_is_made(
    broker: EmbeddedBroker, neighbour: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is killed in between must not leave senders with a topic that has gone."""
    seen: list[bool] = []
    note_change = StoreWriter.note_change

    def noted(writer: StoreWriter) -> None:
        seen.append("orders" in broker.topics())
        note_change(writer)

    monkeypatch.setattr(StoreWriter, "note_change", noted)

    neighbour.delete_topic("orders")

    assert seen == [True]
