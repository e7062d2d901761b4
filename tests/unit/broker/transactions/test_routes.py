"""Topics that are deleted or changed between prepare and commit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.catalog import TOPICS_FILE
from broker_core.broker.transactions.api import Transactions
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_records import Decision, stream_tag
from broker_core.codec.message_batch import LOOPBACK, MessageBatch
from broker_core.errors import PermissionDeniedError, TopicNotFoundError
from broker_core.types import AppendResult, BatchRef, LocalTransactionState, Prepared, Receipt
from tests.kit.transactions import (
    ManualClock,
    attempt_id,
    in_pieces,
    open_store,
    outgoing,
    prepare,
    visible,
)

pytestmark = pytest.mark.usefixtures("either_way")

BATCH = BatchRef("query:q", "", 5)
ROWS = [b"row0", b"row1", b"row2", b"row3"]
COMMIT = LocalTransactionState.COMMIT


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store", clock) as opened:
        opened.create_topic("t", queues=2)
        opened.create_topic("other", queues=2)
        yield opened


def prepare_for(transactions: Transactions, *topics: str) -> Receipt:
    """One attempt that prepares rows for some topics, a call for each."""
    parts: list[Prepared] = []
    for number, topic in enumerate(topics):
        messages: MessageBatch = outgoing(topic, ROWS, attempt_id(1))
        prepared = transactions.prepare_batch(BATCH, attempt_id(1), messages, is_first=number == 0)
        parts.append(prepared)
    return Receipt(BATCH, attempt_id(1), tuple(parts))


def close_topic(broker: EmbeddedBroker, topic: str) -> None:
    table = broker.catalog.table()
    broker._admin._save(TOPICS_FILE, table.put(replace(table.topics[topic], perm=4)))


def is_decided(broker: EmbeddedBroker) -> bool:
    return DecisionLookup(broker.reader).decision(stream_tag(BATCH), "") is not None


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("topics", [("t", "other"), ("other", "t")])
def test_a_commit_to_a_topic_that_is_gone_is_refused_and_names_it(
    broker: EmbeddedBroker, rows: int, topics: tuple[str, str]
) -> None:
    transactions = in_pieces(broker, rows)
    receipt = prepare_for(transactions, *topics)
    broker.delete_topic("t")

    with pytest.raises(TopicNotFoundError, match="Topic 't' is gone"):
        transactions.commit_batch(BATCH, [receipt])

    assert "t" not in broker.topics()
    assert visible(broker, "other") == []
    assert not is_decided(broker)
    broker.create_topic("t", queues=2)
    assert not transactions.commit_batch(BATCH, [receipt]).is_repeat
    assert sorted(visible(broker)) == sorted(visible(broker, "other")) == ROWS


def test_a_commit_to_a_topic_that_is_not_writable_is_refused(broker: EmbeddedBroker) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, ROWS)
    half = broker.transactions.prepare("t", b"single", group="g")
    close_topic(broker, "t")

    with pytest.raises(PermissionDeniedError, match="Topic t is not writable"):
        broker.transactions.commit_batch(BATCH, [receipt])
    with pytest.raises(PermissionDeniedError, match="Topic t is not writable"):
        broker.transactions.end(half, COMMIT)

    assert visible(broker) == []
    assert not is_decided(broker)


@pytest.mark.parametrize("rows", [1, 100])
def test_rows_for_queues_that_a_topic_no_longer_has_go_to_others(
    broker: EmbeddedBroker, rows: int
) -> None:
    transactions = in_pieces(broker, rows)
    receipt = prepare_for(transactions, "t")
    half = transactions.prepare("t", b"single", group="g", queue_id=1)
    broker.delete_topic("t")
    broker.create_topic("t", queues=1)

    transactions.commit_batch(BATCH, [receipt])
    transactions.end(half, COMMIT)

    found = broker.read("t", queue_id=0, columns=["body", "queueId"])
    assert found["body"].to_pylist() == [*ROWS, b"single"]
    assert set(found["queueId"].to_pylist()) == {0}
    assert broker.reader.queue_ids("t") == [0]


def test_a_single_message_for_a_topic_that_is_gone_is_refused_and_can_be_rolled_back(
    broker: EmbeddedBroker,
) -> None:
    half = broker.transactions.prepare("t", b"single", group="g")
    broker.delete_topic("t")

    with pytest.raises(TopicNotFoundError, match="Topic 't' is gone"):
        broker.transactions.end(half, COMMIT)
    broker.transactions.end(half, LocalTransactionState.ROLLBACK)

    assert "t" not in broker.topics()
    assert broker.transactions.check_back().waiting == 0


def test_what_is_decided_is_finished_without_the_rows_of_a_topic_that_is_gone(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    receipt = prepare_for(broker.transactions, "t", "other")
    named = ((0, receipt.count),)
    records = DecisionLookup(broker.reader).records([Decision(BATCH, "r", named)], 0, LOOPBACK)
    broker.writer.append(records)
    broker.delete_topic("t")

    assert broker.transactions.check_back().finished == receipt.count

    assert "t" not in broker.topics()
    assert sorted(visible(broker, "other")) == ROWS
    assert caplog.text.count("event=rows_of_missing_topic_dropped topic='t' count=4") == 1
    assert broker.transactions.commit_batch(BATCH, [receipt]).is_repeat


def test_a_topic_that_is_deleted_just_before_the_append_is_seen(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, ROWS)
    append = broker.writer.append

    def delete_first(*arguments: Any, **options: Any) -> AppendResult:
        monkeypatch.undo()
        broker.delete_topic("t")
        return append(*arguments, **options)

    monkeypatch.setattr(broker.writer, "append", delete_first)

    with pytest.raises(TopicNotFoundError, match="Topic 't' is gone"):
        broker.transactions.commit_batch(BATCH, [receipt])

    assert "t" not in broker.topics()
    assert not is_decided(broker)
