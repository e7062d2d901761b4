"""Stores that Apache RocketMQ wrote, read as its own client reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.offsets import load_delay_offsets
from broker_core.cli import main
from broker_core.codec.property_names import OP_TOPIC
from tests.kit import fixtures, stores

EXACT_TIMES = tuple(name for name in fixtures.NAMES if not name.endswith("4.9"))
OpenStore = Callable[[str], EmbeddedBroker]


@pytest.fixture(scope="module")
def open_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenStore]:
    """Opens a fixture for reading, unpacking it once for all tests here."""
    opened: dict[str, EmbeddedBroker] = {}

    def open_once(name: str) -> EmbeddedBroker:
        if name not in opened:
            root = fixtures.extract(name, tmp_path_factory.mktemp("stores"))
            opened[name] = stores.open_r(root)
        return opened[name]

    yield open_once
    for broker in opened.values():
        broker.close()


def queries(name: str, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fixtures.expected(name)["queries"][kind]
    return found


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_dump_prints_what_the_client_sees(open_store: OpenStore, name: str) -> None:
    root = open_store(name).reader.root

    result = CliRunner().invoke(main, ["dump", str(root), "--json"], catch_exceptions=False)

    assert (result.exit_code, result.stderr) == (0, "")
    dumped = json.loads(result.stdout)
    known = fixtures.expected(name)["topics"]
    assert {topic: dumped[topic] for topic in known} == known


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_dump_adds_only_topics_that_no_client_can_ask_for(open_store: OpenStore, name: str) -> None:
    root = open_store(name).reader.root

    result = CliRunner().invoke(main, ["dump", str(root), "--json"], catch_exceptions=False)

    extra = json.loads(result.stdout).keys() - fixtures.expected(name)["topics"].keys()
    # 4.9 keeps the topic of transaction outcomes out of its configuration.
    assert extra == ({OP_TOPIC} if name == "basic-4.9" else set())


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_queries_by_key_answer_as_the_client(open_store: OpenStore, name: str) -> None:
    broker = open_store(name)

    found = [
        broker.query(query["topic"], query["key"])["offsetMsgId"].to_pylist()
        for query in queries(name, "byKey")
    ]

    assert found == [query["msgIds"] for query in queries(name, "byKey")]


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_a_complete_query_finds_the_same_where_the_index_is_whole(
    open_store: OpenStore, name: str
) -> None:
    broker = open_store(name)

    found = [
        broker.query(query["topic"], query["key"], limit=1_000_000)["offsetMsgId"].to_pylist()
        for query in queries(name, "byKey")
    ]

    assert found == [query["msgIds"] for query in queries(name, "byKey")]


@pytest.mark.parametrize("name", EXACT_TIMES)
def test_searches_by_time_answer_as_the_client(open_store: OpenStore, name: str) -> None:
    broker = open_store(name)

    found = [
        broker.offset_at(query["topic"], query["queueId"], query["timestamp"])
        for query in queries(name, "byTime")
    ]

    assert found == [query["offset"] for query in queries(name, "byTime")]


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_searches_by_time_find_the_first_message_not_before(
    open_store: OpenStore, name: str
) -> None:
    broker = open_store(name)
    topics = fixtures.expected(name)["topics"]

    for query in queries(name, "byTime"):
        queue = topics[query["topic"]]["queues"][str(query["queueId"])]
        late = [
            message["queueOffset"]
            for message in queue["messages"]
            if message["storeTimestamp"] >= query["timestamp"]
        ]
        found = broker.offset_at(query["topic"], query["queueId"], query["timestamp"])
        assert found == min(late, default=queue["maxOffset"])


@pytest.mark.parametrize("name", fixtures.NAMES)
@pytest.mark.parametrize("kind", ["tags", "sql"])
def test_filtered_reads_give_what_filtered_pulls_delivered(
    open_store: OpenStore, name: str, kind: str
) -> None:
    broker = open_store(name)

    for query in queries(name, "byTag" if kind == "tags" else "bySql"):
        found = {
            queue: broker.read(
                query["topic"], int(queue), columns=["queueOffset"], **{kind: query["expression"]}
            )["queueOffset"].to_pylist()
            for queue in query["queueOffsets"]
        }
        assert found == query["queueOffsets"], query["expression"]


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_the_log_ends_where_the_broker_says(open_store: OpenStore, name: str) -> None:
    expected = fixtures.expected(name)

    found = open_store(name).reader.log_range()

    assert found == (expected["commitLogMinOffset"], expected["commitLogMaxOffset"])


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_consumer_and_delay_offsets_are_those_of_the_broker(
    open_store: OpenStore, name: str
) -> None:
    broker = open_store(name)
    expected = fixtures.expected(name)

    for key, offsets in expected["consumerOffsets"].items():
        topic, _, group = key.partition("@")
        found = broker.consumer_offsets(group, topic)
        assert {str(queue.queue_id): offset for queue, offset in found.items()} == offsets
    delays = load_delay_offsets(broker.reader.root / "config" / "delayOffset.json")
    assert {str(level): offset for level, offset in delays.items()} == expected["delayOffsets"]


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_every_message_is_found_by_both_of_its_ids(open_store: OpenStore, name: str) -> None:
    broker = open_store(name)
    topics = fixtures.expected(name)["topics"]
    messages = [
        message
        for topic in topics.values()
        for queue in topic["queues"].values()
        for message in queue["messages"][:2]
    ]

    by_offset = [broker.message(message["msgId"]) for message in messages]
    by_unique = [broker.message(message["uniqKey"]) for message in messages if message["uniqKey"]]

    assert [row["offsetMsgId"][0].as_py() for row in by_offset] == [m["msgId"] for m in messages]
    assert [row["msgId"][0].as_py() for row in by_unique] == [
        message["uniqKey"] for message in messages if message["uniqKey"]
    ]


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_reading_changes_and_creates_nothing(tmp_path: Path, name: str) -> None:
    root = fixtures.extract(name, tmp_path)
    before = stores.snapshot(root)

    with stores.open_r(root) as broker:
        for topic in broker.topics():
            for queue, (start, end) in broker.offsets(topic).items():
                broker.read(topic, queue.queue_id, start, end)
                broker.offset_at(topic, queue.queue_id, 0)
        for query in queries(name, "byKey")[:5]:
            broker.query(query["topic"], query["key"])
        broker.reader.log_range()

    assert stores.snapshot(root) == before
