"""The same door for `file:`: what a server refuses to clients, an embedded broker refuses too.

Whoever opens a store by its files may do everything, but what they send is data all the same: the
broker's own topics, groups, properties and separators are closed to every public way of writing.
trust.md, 1 (d), 2, 8, 13, 23 and 33.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.text import parse_properties
from broker_core.codec.property_names import OWN_PROPERTIES, RESERVED_PROPERTIES
from broker_core.errors import BrokerError, IllegalMessageError, RequestError
from broker_core.store.check.store import check
from broker_core.types import BatchRef, LocalTransactionState, Receipt
from tests.kit.hostile import SEPARATORS, TEXTS
from tests.kit.hostile_records import QUEUE_IDS
from tests.kit.transactions import attempt_id, open_store, outgoing, prepare, visible
from tests.trust.attacks import OWN_TOPICS

OWN_NAMES = [name for topic in OWN_TOPICS for name in (topic, topic.lower())]
BATCH = BatchRef("query:q", "", 1)
COMMIT = LocalTransactionState.COMMIT

Way = Callable[[EmbeddedBroker, str], Any]
WAYS: dict[str, Way] = {
    "send": lambda broker, topic: broker.send(topic, b"x"),
    "send to a queue": lambda broker, topic: broker.send(topic, b"x", queue_id=0),
    "send later": lambda broker, topic: broker.send(topic, b"x", delay_level=1),
    "append": lambda broker, topic: broker.append(outgoing(topic, [b"x"], attempt_id(9))),
    "prepare": lambda broker, topic: broker.transactions.prepare(topic, b"x", group="g"),
    "prepare a batch": lambda broker, topic: prepare(
        broker.transactions, BATCH, 9, [b"x"], topic=topic
    ),
    "create": lambda broker, topic: broker.create_topic(topic, exist_ok=True),
    "add queues": lambda broker, topic: broker.add_queues(topic, 9),
    "delete": lambda broker, topic: broker.delete_topic(topic),
    "commit an offset": lambda broker, topic: broker.commit_offset("billing", topic, 0, 10**15),
    "commit an offset of one's own": lambda broker, topic: broker.commit_offset(
        "CID_RMQ_SYS_TRANS", topic, 0, 1
    ),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A store with a topic, a delayed message, and what transactions keep."""
    root = tmp_path_factory.mktemp("file") / "store"
    with open_store(root) as broker:
        broker.create_topic("t", queues=2)
        broker.send("t", b"plain")
        broker.send("t", b"later", delay_level=18)
        broker.transactions.commit_batch(BATCH, [prepare(broker.transactions, BATCH, 1, [b"row"])])
        yield broker
    assert check(root) == []


def state(broker: EmbeddedBroker) -> tuple[Any, ...]:
    """All that a refused call must leave as it is."""
    root: Path = broker.reader.root
    broker.reader.refresh()
    files = {path.name: path.read_bytes() for path in (root / "config").glob("*.json")}
    folders = sorted(str(path) for path in root.rglob("*") if path.is_dir())
    return broker.reader.log_range(), files, folders


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_writing_leads_to_the_brokers_own_topics(store: EmbeddedBroker, way: str) -> None:
    before = state(store)
    for topic in OWN_NAMES:
        with pytest.raises(RequestError):
            WAYS[way](store, topic)

    assert state(store) == before


def test_the_brokers_own_groups_stay_where_they_are(store: EmbeddedBroker) -> None:
    before = state(store)
    for group in ("CID_RMQ_SYS_TRANS", "cid_rmq_sys_trans", "CID_RMQ_SYS_ANY"):
        with pytest.raises(RequestError):
            store.commit_offset(group, "t", 0, 1)

    assert state(store) == before


def _sent(broker: EmbeddedBroker, **arguments: Any) -> dict[str, str]:
    result = broker.send("t", b"x", queue_id=0, **arguments)
    return parse_properties(broker.reader.record_at(result.physical_offset).properties)


def _prepared(broker: EmbeddedBroker, **arguments: Any) -> dict[str, str]:
    half = broker.transactions.prepare("t", b"x", queue_id=0, **{"group": "g", **arguments})
    found = parse_properties(broker.reader.record_at(half.physical_offset).properties)
    broker.transactions.end(half, COMMIT)
    return found


Writes = Callable[..., dict[str, str]]


@pytest.mark.parametrize("write", [_sent, _prepared])
def test_no_property_has_a_name_that_rocketmq_reserves(
    store: EmbeddedBroker, write: Writes
) -> None:
    before = state(store)
    for name in RESERVED_PROPERTIES:
        with pytest.raises(IllegalMessageError):
            write(store, properties={name: "1"})

    assert state(store) == before


@pytest.mark.parametrize(
    "write",
    [
        lambda broker, messages: broker.append(messages),
        lambda broker, messages: broker.transactions.prepare_batch(
            BATCH, attempt_id(8), messages, is_first=True
        ),
    ],
    ids=["append", "prepare a batch"],
)
def test_columns_of_messages_have_no_property_of_the_brokers_own(
    store: EmbeddedBroker, write: Callable[[EmbeddedBroker, MessageBatch], object]
) -> None:
    before = state(store)
    for name, size in product(sorted(OWN_PROPERTIES), (1, 20_000)):
        plain = outgoing("t", [b"x" * size], attempt_id(8))
        text = plain.property_texts[0].as_py() + f"{name}\x011\x02".encode()
        forged = replace(plain, properties=pa.array([text], type=pa.binary()))
        with pytest.raises(RequestError):
            write(store, forged)

    assert state(store) == before


@pytest.mark.parametrize("queue_id", [each for each in QUEUE_IDS if each not in (0, 1)])
def test_no_message_makes_a_queue(store: EmbeddedBroker, queue_id: int) -> None:
    before = state(store)
    columns = outgoing("t", [b"x"], attempt_id(7))
    there = replace(columns, queue_ids=columns.queue_ids * 0 + queue_id)
    for write in (
        lambda: store.send("t", b"x", queue_id=queue_id),
        lambda: store.send("t", b"x", queue_id=queue_id, delay_level=1),
        lambda: store.append(there),
        lambda: store.transactions.prepare("t", b"x", group="g", queue_id=queue_id),
        lambda: store.transactions.prepare_batch(BATCH, attempt_id(7), there, is_first=True),
    ):
        with pytest.raises(RequestError):
            write()

    assert state(store) == before


# Every text, with every mark that means something to somebody


@pytest.mark.parametrize(
    ("write", "argument", "name"),
    [
        (_sent, "tags", "TAGS"),
        (_sent, "keys", "KEYS"),
        (_sent, "sharding_key", "__SHARDINGKEY"),
        (_sent, "properties", "colour"),
        (_prepared, "group", "PGROUP"),
        (_prepared, "tags", "TAGS"),
        (_prepared, "keys", "KEYS"),
        (_prepared, "properties", "colour"),
    ],
)
def test_a_text_is_refused_or_read_back_as_the_same_value(
    store: EmbeddedBroker, write: Writes, argument: str, name: str
) -> None:
    plain = write(store)
    for text in TEXTS:
        given = {name: text} if argument == "properties" else text
        try:
            found = write(store, **{argument: given})
        except BrokerError:
            continue
        assert not any(mark in text for mark in SEPARATORS[1:]), f"{text!r} was taken"
        assert found.get(name, "") == text
        assert found.keys() - {name} == plain.keys() - {name}


@pytest.mark.parametrize("field", ["owner", "name", "attempt", "run", "fingerprint"])
def test_texts_of_a_batch_are_refused_or_mean_that_batch_alone(
    store: EmbeddedBroker, field: str
) -> None:
    transactions, before = store.transactions, visible(store)
    for number, text in enumerate(TEXTS):
        batch = BatchRef(f"query:{field}", "", number + 2)
        attempt = attempt_id(0xABC000 + 16 * number + len(field))
        texts: dict[str, Any] = {"run": "r", "fingerprint": f"f{number}"}
        if field == "owner":
            batch = replace(batch, owner=text)
        elif field == "name":
            batch = replace(batch, name=text)
        elif field == "attempt":
            attempt = text
        else:
            texts[field] = text
        try:
            messages = outgoing("t", [b"row"], attempt)
            prepared = transactions.prepare_batch(batch, attempt, messages, is_first=True)
            receipt = Receipt(batch, attempt, (prepared,))
            transactions.commit_batch(batch, [receipt], conflict="write", **texts)
        except BrokerError:
            continue
        before.append(b"row")
        assert transactions.commit_batch(batch, [], **texts).is_repeat
        assert not transactions.is_batch_decided(replace(BATCH, number=2))
        assert sorted(visible(store)) == sorted(before), f"{field}={text!r}"
