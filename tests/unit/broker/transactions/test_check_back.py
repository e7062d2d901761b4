"""Check-back and retention beside half messages and records that older releases let in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions import half as half_messages
from broker_core.broker.transactions.decision_records import BatchAttempt, Decision
from broker_core.codec.layout import MAX_PROPERTIES_BYTES
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import BATCH_TOPIC, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from broker_core.errors import IllegalMessageError, IllegalTransitionError
from broker_core.types import BatchRef, HalfMessage, LocalTransactionState
from tests.kit.transactions import FILE_BYTES, ManualClock, attempt_id, open_store, visible
from tests.kit.transactions import prepare as prepare_batch

TIMEOUT_MS, INTERVAL_MS = 6_000, 30_000


class Listener:
    """Commits whatever it is asked about, and remembers it."""

    def __init__(self, state: LocalTransactionState = LocalTransactionState.COMMIT) -> None:
        self.state = state
        self.asked: list[bytes] = []

    def execute_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    def check_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        self.asked.append(body)
        return self.state


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store", clock) as opened:
        opened.create_topic("t", queues=2)
        yield opened


def prepare(broker: EmbeddedBroker, body: bytes, padding: int = 0) -> HalfMessage:
    properties = {"p": "x" * padding} if padding else None
    return broker.transactions.prepare("t", body, group="g", properties=properties)


def largest(prepares: Callable[[int], object], most: int) -> int:
    """The largest number with which a half message is still prepared."""
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        try:
            prepares(middle)
            low = middle
        except IllegalMessageError:
            high = middle
    return low


def largest_padding(broker: EmbeddedBroker) -> int:
    return largest(lambda length: prepare(broker, b"try", length), MAX_PROPERTIES_BYTES)


def fill(broker: EmbeddedBroker, files: int = 2) -> None:
    for _ in range(files):
        broker.send("t", b"x" * (FILE_BYTES * 3 // 4))


# No room to be copied


def test_the_longest_half_message_can_be_asked_about_as_often_as_any(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    listener = Listener(LocalTransactionState.UNKNOWN)
    padding = largest_padding(broker)
    broker.transactions.listen("g", listener)
    clock.advance(TIMEOUT_MS + 1)
    for _ in range(12):
        broker.transactions.check_back()
        clock.advance(INTERVAL_MS)

    assert padding > MAX_PROPERTIES_BYTES - 400
    assert len(set(listener.asked)) == 1
    assert len(listener.asked) % 12 == 0
    assert visible(broker, DISCARD_TOPIC) == []


def test_a_half_message_that_could_not_be_put_back_is_refused(broker: EmbeddedBroker) -> None:
    padding = largest_padding(broker)

    with pytest.raises(IllegalMessageError, match="as a half message, the limit is 32712"):
        prepare(broker, b"m", padding + 1)


def test_the_largest_half_message_can_be_asked_about(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    listener = Listener()
    size = largest(lambda length: prepare(broker, b"m" * length), FILE_BYTES)
    broker.transactions.listen("g", listener)
    clock.advance(TIMEOUT_MS + 1)

    assert broker.transactions.check_back().waiting == 0
    assert max(map(len, listener.asked)) == size
    assert visible(broker, DISCARD_TOPIC) == []


def test_one_without_room_is_given_up_alone(
    broker: EmbeddedBroker,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(half_messages, "MAX_HALF_PROPERTIES_BYTES", MAX_PROPERTIES_BYTES)
    listener = Listener()
    prepare(broker, b"before")
    prepare(broker, b"long", largest_padding(broker))
    prepare(broker, b"after")
    broker.transactions.listen("g", listener)
    clock.advance(TIMEOUT_MS + 1)

    report = broker.transactions.check_back()
    broker.transactions.check_back()

    assert report.waiting == 0
    assert {b"before", b"after"} <= set(listener.asked)
    assert b"long" not in listener.asked
    assert b"long" in visible(broker, DISCARD_TOPIC)
    assert {b"before", b"after"} <= set(visible(broker))
    assert "event=half_message_not_copied" in caplog.text


def test_retention_saves_one_without_room(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_messages, "MAX_HALF_PROPERTIES_BYTES", MAX_PROPERTIES_BYTES)
    padding = largest_padding(broker)
    prepare(broker, b"long", padding)
    fill(broker, 16)

    assert broker.delete_before(FILE_BYTES) >= FILE_BYTES
    assert visible(broker, DISCARD_TOPIC) == []
    assert broker.transactions.check_back().waiting > 0


# Odd records of older releases and other brokers

EVIL = BatchRef("query:evil", "", 1)


def put(
    broker: EmbeddedBroker, topic: str, body: bytes, properties: Mapping[str, str], queue: int = 0
) -> None:
    """Append a record to a topic of the broker's own."""
    broker.writer.append(
        MessageBatch(
            [topic],
            np.zeros(1, dtype=np.int32),
            np.array([queue], dtype=np.int32),
            pa.array([body], type=pa.binary()),
            pa.array([format_properties(properties)], type=pa.binary()),
        )
    )


def put_record(broker: EmbeddedBroker, record: BatchAttempt | Decision) -> None:
    put(broker, BATCH_TOPIC, record.body(), {"TAGS": record.tag})


def put_decided(broker: EmbeddedBroker, properties: Mapping[str, str]) -> None:
    """A half message with these properties, of a batch that is decided and not finished."""
    attempt, start = attempt_id(77), broker.reader.queue_range(HALF_TOPIC, 0)[1]
    put_record(broker, BatchAttempt(EVIL, attempt))
    named = {"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": f"{attempt}{1:012X}"}
    put(broker, HALF_TOPIC, b"noise" * 10, {**named, **properties})
    put_record(broker, Decision(EVIL, "r", ((start, start + 1),)))


def serves_others(broker: EmbeddedBroker, clock: ManualClock) -> bool:
    """Check-back finishes another's decision, asks others, and retention deletes."""
    good = replace(EVIL, owner="query:good")
    receipt = prepare_batch(broker.transactions, good, 5, [b"decided"])
    start = int(receipt.prepared[0].start)
    put_record(broker, Decision(good, "r", ((start, start + receipt.count),)))
    broker.transactions.listen("g", Listener())
    prepare(broker, b"single")
    clock.advance(TIMEOUT_MS + 1)
    broker.transactions.check_back()
    found = set(visible(broker))
    fill(broker, 4)
    return {b"decided", b"single"} <= found and broker.delete_before(FILE_BYTES) >= FILE_BYTES


@pytest.mark.parametrize(
    "properties",
    [
        {"HALF_BLOCK": "2", "REAL_TOPIC": "t", "REAL_QID": "0"},
        {"HALF_BLOCK": "two", "REAL_TOPIC": "t", "REAL_QID": "0"},
        {"REAL_TOPIC": "t", "REAL_QID": "none"},
        {},
    ],
)
def test_a_decision_that_can_not_be_finished_stops_nobody_else(
    broker: EmbeddedBroker,
    clock: ManualClock,
    properties: Mapping[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.transactions.check_back()
    put_decided(broker, properties)

    assert serves_others(broker, clock)
    assert "event=decision_not_finished" in caplog.text


@pytest.mark.parametrize("topic", ["../../x", OP_TOPIC])
def test_decided_rows_for_no_topic_of_a_client_are_dropped(
    broker: EmbeddedBroker, clock: ManualClock, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.transactions.check_back()
    put_decided(broker, {"REAL_TOPIC": topic, "REAL_QID": "0"})

    assert serves_others(broker, clock)
    assert f"event=rows_of_missing_topic_dropped topic={topic!r} count=1" in caplog.text


@pytest.mark.parametrize("ranges", [((0, 10**15),), ((-3, 1),), ((0, 1),) * 1000])
def test_a_decision_about_what_never_was_stops_nobody_else(
    broker: EmbeddedBroker,
    clock: ManualClock,
    ranges: tuple[tuple[int, int], ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    prepare_batch(broker.transactions, EVIL, 1, [b"evil"])
    put_record(broker, Decision(EVIL, "r", ranges))

    assert serves_others(broker, clock)
    assert "event=decision_not_finished" in caplog.text


def test_what_a_decision_names_waits_for_as_long_as_it_can_not_be_finished(
    broker: EmbeddedBroker,
) -> None:
    broker.transactions.check_back()
    put_decided(broker, {})

    assert [broker.transactions.check_back().waiting for _ in range(2)] == [1, 1]


def test_an_op_message_settles_nothing_that_comes_behind_it(
    broker: EmbeddedBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    receipt = prepare_batch(broker.transactions, EVIL, 1, [b"rolled back"])
    put(broker, OP_TOPIC, b"".join(b"%d," % number for number in range(900)), {"TAGS": "d"})
    late = prepare_batch(broker.transactions, replace(EVIL, number=2), 2, [b"late"])

    with pytest.raises(IllegalTransitionError):
        broker.transactions.commit_batch(EVIL, [receipt])
    broker.transactions.commit_batch(late.batch, [late])

    assert visible(broker) == [b"late"]
    assert serves_others(broker, clock)
    assert "reason=half_messages_not_there_yet" in caplog.text


def test_a_record_of_the_journal_that_is_no_text_does_not_stop_retention(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    broker.transactions.check_back()
    body = b'{"kind":"done","owner":"\xff\xfe","name":"","batch":1,"run":"r","keep":true}'
    put(broker, BATCH_TOPIC, body, {"TAGS": "query:evil#"})

    assert serves_others(broker, clock)
