"""Transactions of ours under Apache's broker: served when committed, looked after when open."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec.property_names import DISCARD_TOPIC
from broker_core.errors import IllegalTransitionError
from broker_core.types import BatchRef, LocalTransactionState, Receipt
from tests.interop.kit.clients import dump
from tests.interop.kit.ours import check_ours, dump_ours, used_topics
from tests.interop.kit.servers import Broker, NameServer
from tests.kit.fixtures import SIZES
from tests.kit.transactions import open_store, prepare, visible

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

COMMITTED = BatchRef("query:q", "", 1)
OPEN = BatchRef("query:q", "", 2)
PATIENCE_S = 120
CHECKS = {"transactionTimeOut": 500, "transactionCheckInterval": 1000, "transactionCheckMax": 2}


UNDECIDED = [b"undecided-%d" % number + b"." * 1000 for number in range(30)]
UNDECIDED.append(b"undecided, large" + b"." * 20_000)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def bodies(name: str, count: int) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


def write_transactions(store: Path) -> Receipt:
    """Committed, rolled back and open ones, by the batch and singly; the receipt of an open one."""
    with open_store(store) as broker:
        broker.create_topic("t", queues=2)
        own = broker.transactions
        own.commit_batch(COMMITTED, [prepare(own, COMMITTED, 1, bodies("batch", 20))])
        own.abort_batch(OPEN, [prepare(own, OPEN, 2, bodies("aborted", 4))])
        for name, fate in (
            ("yes", LocalTransactionState.COMMIT),
            ("no", LocalTransactionState.ROLLBACK),
            ("open", LocalTransactionState.UNKNOWN),
        ):
            own.end(own.prepare("t", name.encode(), group="g"), fate)
        return prepare(own, OPEN, 3, UNDECIDED, born_ms=now_ms())


def shown(broker: EmbeddedBroker) -> list[bytes]:
    return sorted(visible(broker))


def test_apache_serves_committed_transactions_only(name_server: NameServer, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_transactions(store)
    ours = used_topics(dump_ours(store))

    with Broker(store, name_server, tmp_path, SIZES) as broker:
        theirs = used_topics(dump(broker)["topics"])

    assert theirs == ours
    messages = [each for queue in theirs["t"]["queues"].values() for each in queue["messages"]]
    assert len(messages) == 21
    assert all(each["sysFlag"] & 0xC == 0x8 for each in messages)


def test_apache_gives_up_what_stays_open_and_we_respect_it(
    name_server: NameServer, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    receipt = write_transactions(store)

    with Broker(store, name_server, tmp_path, {**SIZES, **CHECKS}):
        given_up = _wait_for_discards(store, 1 + receipt.count)
    check_ours(store)

    assert receipt.count > 2  # blocks, and one message that is too large for any
    assert given_up.count(b"open") == 1
    assert all(any(body in each for each in given_up) for body in UNDECIDED)
    with open_store(store) as broker:
        with pytest.raises(IllegalTransitionError, match="rolled back since"):
            broker.transactions.commit_batch(OPEN, [receipt])
        again = prepare(broker.transactions, OPEN, 4, bodies("again", 3), born_ms=now_ms())
        broker.transactions.commit_batch(OPEN, [again])
        broker.transactions.check_back()
        assert shown(broker) == sorted([b"yes", *bodies("batch", 20), *bodies("again", 3)])


def _wait_for_discards(store: Path, count: int) -> list[bytes]:
    """Follow the discard topic, while Apache's broker writes it, until it holds so many."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with open_broker(f"file:{store}") as reader:
            found = reader.read(DISCARD_TOPIC, columns=["body"])["body"].to_pylist()
        if len(found) >= count:
            return [bytes(body) for body in found]
        time.sleep(0.2)
    message = f"Apache's broker gave up {len(found)} messages, not {count}"
    raise AssertionError(message)
