from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from broker_core.api import TransactionalBroker
from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.producer import TransactionalProducer
from broker_core.codec.property_names import DISCARD_TOPIC, HALF_TOPIC, TRANSACTION_CHECK_TIMES
from broker_core.errors import IllegalTransitionError, RequestError, UnknownTransactionError
from broker_core.types import HalfMessage, LocalTransactionState, LogicalOffset
from tests.kit.fixtures import SIZES, extract
from tests.kit.transactions import (
    ManualClock,
    half_count,
    open_store,
    put_check_back_progress,
    visible,
)

pytestmark = pytest.mark.usefixtures("either_way")

TIMEOUT_MS, INTERVAL_MS, MAX_CHECKS = 6_000, 30_000, 15


class Listener:
    """Says what it is told to; remembers what it was asked."""

    def __init__(
        self,
        executes: LocalTransactionState,
        checks: LocalTransactionState = LocalTransactionState.UNKNOWN,
    ) -> None:
        self.executes = executes
        self.checks = checks
        self.asked: list[tuple[bytes, str]] = []

    def execute_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        assert half.topic == "t"
        return self.executes

    def check_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        self.asked.append((body, properties[TRANSACTION_CHECK_TIMES]))
        return self.checks


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store", clock) as opened:
        opened.create_topic("t", queues=2)
        yield opened


def prepare(broker: EmbeddedBroker, body: bytes = b"m") -> HalfMessage:
    return broker.transactions.prepare("t", body, group="g", tags="a", queue_id=1)


def test_the_embedded_broker_has_transactions(broker: EmbeddedBroker) -> None:
    assert isinstance(broker, TransactionalBroker)


def test_a_broker_for_reading_has_none(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with (
        EmbeddedBroker.open("r", tmp_path / "store") as reading,
        pytest.raises(RequestError, match="mode='r'"),
    ):
        _ = reading.transactions


def test_a_committed_message_is_visible_with_its_properties(broker: EmbeddedBroker) -> None:
    half = prepare(broker)
    before = visible(broker)

    broker.transactions.end(half, LocalTransactionState.COMMIT)

    rows = broker.read("t", queue_id=1, columns=["body", "tags", "msgId", "properties"])
    assert before == []
    assert rows["body"].to_pylist() == [b"m"]
    assert rows["tags"].to_pylist() == ["a"]
    assert rows["msgId"].to_pylist() == [half.transaction_id]
    assert dict(rows["properties"].to_pylist()[0]) == {
        "UNIQ_KEY": half.transaction_id,
        "TAGS": "a",
        "TRAN_MSG": "true",
        "PGROUP": "g",
        "__transactionId__": half.transaction_id,
    }


@pytest.mark.parametrize("fate", [LocalTransactionState.ROLLBACK, LocalTransactionState.UNKNOWN])
def test_any_other_end_shows_nothing(broker: EmbeddedBroker, fate: LocalTransactionState) -> None:
    broker.transactions.end(prepare(broker), fate)

    assert visible(broker) == []


@pytest.mark.parametrize("first", [LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK])
@pytest.mark.parametrize("second", [LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK])
def test_a_decided_message_is_not_decided_again(
    broker: EmbeddedBroker, first: LocalTransactionState, second: LocalTransactionState
) -> None:
    half = prepare(broker)
    broker.transactions.end(half, first)
    after_first = visible(broker)

    with pytest.raises(IllegalTransitionError, match="decided already"):
        broker.transactions.end(half, second)

    assert visible(broker) == after_first


@pytest.mark.parametrize(
    "change",
    [{"group": "h"}, {"half_offset": LogicalOffset(7)}, {"physical_offset": 3}],
    ids=["group", "offset", "place"],
)
def test_what_is_no_half_message_of_the_group_is_refused(
    broker: EmbeddedBroker, change: dict[str, object]
) -> None:
    strange = replace(prepare(broker), **change)  # type: ignore[arg-type]  # each fits its field

    with pytest.raises(UnknownTransactionError, match="There is no half message"):
        broker.transactions.end(strange, LocalTransactionState.COMMIT)


@pytest.mark.parametrize(
    ("fate", "expected"),
    [
        (LocalTransactionState.COMMIT, [b"m"]),
        (LocalTransactionState.ROLLBACK, []),
        (LocalTransactionState.UNKNOWN, []),
    ],
)
def test_a_producer_ends_a_message_as_its_listener_says(
    broker: EmbeddedBroker, fate: LocalTransactionState, expected: list[bytes]
) -> None:
    producer = TransactionalProducer(broker, "g", Listener(fate))

    half, ended = producer.send("t", b"m")

    assert (visible(broker), ended, half.group) == (expected, fate, "g")


def test_a_listener_that_raises_leaves_the_message_open(broker: EmbeddedBroker) -> None:
    class Broken(Listener):
        def execute_local_transaction(
            self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
        ) -> LocalTransactionState:
            message = "no local transaction today"
            raise OSError(message)

    producer = TransactionalProducer(broker, "g", Broken(LocalTransactionState.COMMIT))

    with pytest.raises(OSError, match="today"):
        producer.send("t", b"m")

    assert broker.transactions.check_back().waiting == 1


@pytest.mark.parametrize(
    ("fate", "expected"),
    [(LocalTransactionState.COMMIT, [b"m"]), (LocalTransactionState.ROLLBACK, [])],
)
def test_check_back_asks_the_listener_about_what_stayed_open(
    broker: EmbeddedBroker, clock: ManualClock, fate: LocalTransactionState, expected: list[bytes]
) -> None:
    listener = Listener(LocalTransactionState.UNKNOWN, checks=fate)
    TransactionalProducer(broker, "g", listener).send("t", b"m")

    young = broker.transactions.check_back()
    clock.advance(TIMEOUT_MS + 1)
    asked = broker.transactions.check_back()
    after = broker.transactions.check_back()

    assert (young.waiting, young.asked) == (1, 0)
    assert (asked.asked, listener.asked) == (1, [(b"m", "1")])
    assert after.waiting == 0
    assert visible(broker) == expected


def test_an_undecided_message_is_given_up_after_fifteen_checks(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    listener = Listener(LocalTransactionState.UNKNOWN)
    TransactionalProducer(broker, "g", listener).send("t", b"m")
    clock.advance(TIMEOUT_MS + 1)

    reports = []
    for _ in range(MAX_CHECKS + 1):
        reports.append(broker.transactions.check_back())
        clock.advance(INTERVAL_MS)

    assert [count for _, count in listener.asked] == [str(n + 1) for n in range(MAX_CHECKS)]
    assert [report.given_up for report in reports] == [0] * MAX_CHECKS + [1]
    assert visible(broker, DISCARD_TOPIC) == [b"m"]
    assert visible(broker) == []


def test_rounds_in_quick_succession_ask_once(broker: EmbeddedBroker, clock: ManualClock) -> None:
    listener = Listener(LocalTransactionState.UNKNOWN)
    TransactionalProducer(broker, "g", listener).send("t", b"m")
    clock.advance(TIMEOUT_MS + 1)

    for _ in range(5):
        broker.transactions.check_back()

    assert len(listener.asked) == 1


def test_the_first_handle_of_a_message_that_was_put_back_is_no_longer_good(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    half = prepare(broker)
    broker.transactions.listen("g", Listener(LocalTransactionState.UNKNOWN))
    clock.advance(TIMEOUT_MS + 1)
    broker.transactions.check_back()

    with pytest.raises(IllegalTransitionError):
        broker.transactions.end(half, LocalTransactionState.COMMIT)

    assert visible(broker) == []


def test_progress_is_kept_where_apache_keeps_it(broker: EmbeddedBroker) -> None:
    for number in range(3):
        broker.transactions.end(prepare(broker, b"%d" % number), LocalTransactionState.ROLLBACK)
    open_half = prepare(broker)

    broker.transactions.check_back()
    while_open = broker.consumer_offsets("CID_RMQ_SYS_TRANS", HALF_TOPIC)
    broker.transactions.end(open_half, LocalTransactionState.COMMIT)
    broker.transactions.check_back()
    after = broker.consumer_offsets("CID_RMQ_SYS_TRANS", HALF_TOPIC)

    assert (list(while_open.values()), list(after.values())) == ([3], [4])


def test_a_message_that_another_broker_checks_can_not_be_ended(broker: EmbeddedBroker) -> None:
    half = prepare(broker)
    put_check_back_progress(broker.reader.root, half.half_offset + 1)

    with pytest.raises(IllegalTransitionError, match="another broker"):
        broker.transactions.end(half, LocalTransactionState.COMMIT)


def test_open_transactions_of_apache_are_checked_until_they_are_given_up(
    tmp_path: Path,
) -> None:
    root = extract("transactions-5.5", tmp_path)
    settings = {**SIZES, "transactionCheckMax": 2, "fileReservedTime": 10**6}
    with EmbeddedBroker.open("apache", root, mode="rw", config=settings) as broker:
        listener = Listener(LocalTransactionState.UNKNOWN, checks=LocalTransactionState.COMMIT)
        before = visible(broker, "Tx")
        halves = half_count(broker)

        first = broker.transactions.check_back()
        broker.transactions.listen("tx-producer", listener)
        second = broker.transactions.check_back()

        assert (first.waiting, first.asked, first.given_up) == (0, 0, 5)
        assert second.waiting == 0
        assert visible(broker, "Tx") == before
        assert len(visible(broker, DISCARD_TOPIC)) == 6 + 5
        assert half_count(broker) == halves


def test_open_transactions_of_apache_are_committed_as_their_producer_says(
    tmp_path: Path,
) -> None:
    root = extract("transactions-5.5", tmp_path)
    settings = {**SIZES, "transactionCheckMax": 9, "fileReservedTime": 10**6}
    with EmbeddedBroker.open("apache", root, mode="rw", config=settings) as broker:
        before = visible(broker, "Tx")
        broker.transactions.listen(
            "tx-producer",
            Listener(LocalTransactionState.UNKNOWN, checks=LocalTransactionState.COMMIT),
        )

        report = broker.transactions.check_back()

        assert report.asked == 5
        assert len(visible(broker, "Tx")) == len(before) + 5
