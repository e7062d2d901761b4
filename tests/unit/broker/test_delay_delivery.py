"""Delayed messages: due in time, in order, once, and where Apache's broker would put them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from broker_core.broker.delay_delivery import DELAY_OFFSETS_FILE, DelayDelivery
from broker_core.clients.embedded import EmbeddedBroker
from broker_core.types import BatchRef, Receipt
from tests.kit.transactions import ManualClock, attempt_id, open_store, outgoing


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store", clock) as opened:
        opened.create_topic("t", queues=2)
        yield opened


@pytest.fixture
def delivery(broker: EmbeddedBroker, clock: ManualClock) -> DelayDelivery:
    return DelayDelivery(broker.reader, broker.writer, broker.catalog, clock)


def bodies(broker: EmbeddedBroker, queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = broker.read("t", queue_id=queue_id).column("body").to_pylist()
    return found


def test_a_message_is_delivered_when_it_is_due(
    broker: EmbeddedBroker, delivery: DelayDelivery, clock: ManualClock
) -> None:
    broker.send("t", b"five", queue_id=0, delay_level=2)
    broker.send("t", b"one", queue_id=0, delay_level=1)

    seen = []
    for _ in range(6):
        seen.append((delivery.round(), bodies(broker)))
        clock.advance(1000)

    assert seen == [
        (0, []),
        (1, [b"one"]),
        (0, [b"one"]),
        (0, [b"one"]),
        (0, [b"one"]),
        (1, [b"one", b"five"]),
    ]


def test_a_delivered_message_is_as_it_was_sent(
    broker: EmbeddedBroker, delivery: DelayDelivery, clock: ManualClock
) -> None:
    sent = broker.send(
        "t", b"x", tags="A", keys=["k"], properties={"p": "v"}, queue_id=1, delay_level=1
    )
    clock.advance(1000)

    delivery.round()

    columns = ["queueId", "msgId", "tags", "keys", "properties", "preparedTransactionOffset"]
    [row] = broker.read("t", queue_id=1, columns=columns, tags="A").to_pylist()
    assert row["properties"][-3:] == [("DELAY", "1"), ("REAL_TOPIC", "t"), ("REAL_QID", "1")]
    assert (row["queueId"], row["msgId"], row["keys"]) == (1, sent.msg_id, "k")
    assert row["preparedTransactionOffset"] == 0
    assert broker.message(sent.msg_id).column("topic").to_pylist() == ["t"]


def test_progress_is_kept_as_apache_keeps_it(
    broker: EmbeddedBroker, delivery: DelayDelivery, clock: ManualClock
) -> None:
    for number in range(3):
        broker.send("t", b"%d" % number, queue_id=0, delay_level=3)
    clock.advance(10_000)

    assert delivery.round() == 3

    document = json.loads((broker.reader.root / DELAY_OFFSETS_FILE).read_text("utf-8"))
    assert document["offsetTable"] == {"3": 3}
    again = DelayDelivery(broker.reader, broker.writer, broker.catalog, clock)
    assert again.round() == 0
    assert bodies(broker) == [b"0", b"1", b"2"]


def test_a_clock_that_was_set_back_holds_nothing_up(
    broker: EmbeddedBroker, delivery: DelayDelivery, clock: ManualClock
) -> None:
    broker.send("t", b"x", queue_id=0, delay_level=1)
    clock.advance(-3_600_000)

    assert delivery.round() == 1


def test_what_is_for_a_topic_that_is_gone_is_dropped_and_told(
    broker: EmbeddedBroker,
    delivery: DelayDelivery,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.create_topic("gone", queues=1)
    broker.send("gone", b"lost", delay_level=1)
    broker.send("t", b"kept", queue_id=0, delay_level=1)
    broker.delete_topic("gone")
    clock.advance(1000)

    assert delivery.round() == 2

    assert bodies(broker) == [b"kept"]
    assert "gone" not in broker.topics()
    assert "event=delayed_dropped topic=gone" in caplog.text


def test_a_committed_transaction_may_be_delayed(
    broker: EmbeddedBroker, delivery: DelayDelivery, clock: ManualClock
) -> None:
    batch = BatchRef("query:q", "", 1)
    messages = outgoing("SCHEDULE_TOPIC_XXXX", [b"x"], attempt_id(1), queues=1)
    text = messages.properties[0].as_py() + b"DELAY\x011\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02"
    delayed = replace(messages, properties=pa.array([text], type=pa.binary()))
    prepared = broker.transactions.prepare_batch(batch, attempt_id(1), delayed, is_first=True)
    broker.transactions.commit_batch(batch, [Receipt(batch, attempt_id(1), (prepared,))])
    before = bodies(broker)
    clock.advance(1000)

    assert delivery.round() == 1

    assert before == []
    assert bodies(broker) == [b"x"]
