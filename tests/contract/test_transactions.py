from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest

from broker_core import IllegalTransitionError, UnknownTransactionError
from broker_core.api import BrokerTransactions, TransactionalBroker
from broker_core.broker.transactions.producer import TransactionalProducer
from broker_core.types import (
    BatchOutcome,
    BatchRef,
    HalfMessage,
    LocalTransactionState,
    PhysicalOffset,
)
from tests.contract.conftest import AnyBroker
from tests.kit.transactions import prepare

BATCH = BatchRef("query:q", "", 5)


@pytest.fixture
def transactions(broker: AnyBroker) -> BrokerTransactions:
    broker.create_topic("t", queues=2)
    return broker.transactions


def visible(broker: AnyBroker) -> list[bytes]:
    tables = [broker.read("t", queue_id=queue) for queue in (0, 1)]
    return sorted(body for table in tables for body in table.column("body").to_pylist())


def bodies(count: int, name: str = "m") -> list[bytes]:
    return [f"{name}-{number:03d}".encode() for number in range(count)]


# Batches


def test_a_batch_is_visible_once_it_is_committed(
    broker: AnyBroker, transactions: BrokerTransactions
) -> None:
    receipt = prepare(transactions, BATCH, 1, bodies(5))
    before = visible(broker)

    outcome = transactions.commit_batch(BATCH, [receipt], run="r1")

    assert before == []
    assert visible(broker) == bodies(5)
    assert outcome == BatchOutcome(is_repeat=False, run="r1")


def test_a_repeated_commit_changes_nothing(
    broker: AnyBroker, transactions: BrokerTransactions
) -> None:
    receipt = prepare(transactions, BATCH, 1, bodies(4))
    transactions.commit_batch(BATCH, [receipt], run="first", flush="sync")

    again = transactions.commit_batch(BATCH, [receipt], run="second")
    replayed = transactions.commit_batch(BATCH, [prepare(transactions, BATCH, 2, bodies(4))])

    assert again == replayed == BatchOutcome(is_repeat=True, run="first")
    assert visible(broker) == bodies(4)
    assert transactions.is_batch_decided(BATCH)
    assert not transactions.is_batch_decided(replace(BATCH, number=6))


def test_an_aborted_batch_stays_invisible_and_can_be_tried_again(
    broker: AnyBroker, transactions: BrokerTransactions
) -> None:
    transactions.abort_batch(BATCH, [prepare(transactions, BATCH, 1, bodies(3, "lost"))])

    transactions.commit_batch(BATCH, [prepare(transactions, BATCH, 2, bodies(3))])

    assert visible(broker) == bodies(3)


def test_what_was_aborted_can_not_be_committed(
    broker: AnyBroker, transactions: BrokerTransactions
) -> None:
    receipt = prepare(transactions, BATCH, 1, bodies(3))
    transactions.abort_batch(BATCH, [receipt])

    with pytest.raises(IllegalTransitionError, match="have been rolled back"):
        transactions.commit_batch(BATCH, [receipt])
    assert visible(broker) == []


def test_a_batch_of_several_chunks_is_prepared_whole(
    broker: AnyBroker, transactions: BrokerTransactions
) -> None:
    large = [body.ljust(60_000) for body in bodies(100)]

    transactions.commit_batch(BATCH, [prepare(transactions, BATCH, 1, large)])

    assert visible(broker) == large


# Single messages


class Ledger:
    """A listener whose answers are given in advance; notes what it was asked."""

    def __init__(
        self,
        executed: LocalTransactionState,
        checked: LocalTransactionState = LocalTransactionState.UNKNOWN,
    ) -> None:
        self._executed = executed
        self._checked = checked
        self.was_asked = threading.Event()

    def execute_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        return self._executed

    def check_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        self.was_asked.set()
        return self._checked


@pytest.mark.parametrize(
    ("fate", "expected"),
    [
        (LocalTransactionState.COMMIT, [b"pay"]),
        (LocalTransactionState.ROLLBACK, []),
        (LocalTransactionState.UNKNOWN, []),
    ],
)
def test_a_message_is_visible_if_its_local_transaction_committed(
    broker: AnyBroker,
    transactions: BrokerTransactions,
    fate: LocalTransactionState,
    expected: list[bytes],
) -> None:
    producer = TransactionalProducer(broker, "group", Ledger(fate))

    producer.send("t", b"pay", tags="A", keys=["k"], properties={"p": "v"}, queue_id=1)

    assert visible(broker) == expected


def test_a_transaction_is_ended_once(broker: AnyBroker, transactions: BrokerTransactions) -> None:
    half = transactions.prepare("t", b"pay", group="group")
    transactions.end(half, LocalTransactionState.COMMIT)

    with pytest.raises(IllegalTransitionError, match="decided already"):
        transactions.end(half, LocalTransactionState.ROLLBACK)
    assert visible(broker) == [b"pay"]


def test_a_transaction_of_others_can_not_be_ended(
    broker: AnyBroker, transactions: BrokerTransactions
) -> None:
    half = transactions.prepare("t", b"pay", group="group")

    with pytest.raises(UnknownTransactionError, match="group thieves"):
        transactions.end(replace(half, group="thieves"), LocalTransactionState.COMMIT)
    with pytest.raises(UnknownTransactionError, match="no half message"):
        transactions.end(
            replace(half, physical_offset=PhysicalOffset(1 << 40)), LocalTransactionState.COMMIT
        )
    assert visible(broker) == []
    assert isinstance(broker, TransactionalBroker)
