"""Check-back and retention beside half messages and records that older releases let in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions import half as half_messages
from broker_core.codec.layout import MAX_PROPERTIES_BYTES
from broker_core.codec.property_names import DISCARD_TOPIC
from broker_core.errors import IllegalMessageError
from broker_core.types import HalfMessage, LocalTransactionState
from tests.kit.transactions import FILE_BYTES, ManualClock, open_store, visible

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
