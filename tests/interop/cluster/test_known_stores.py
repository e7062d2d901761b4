"""Stores of known content behind a real broker: we read what the official client read."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any

import pytest

from broker_core.api import Broker as OurBroker
from broker_core.filter.pipeline import MessageFilter
from broker_core.types import LogicalOffset, OffsetRange
from tests.interop.cluster.opening import opened
from tests.interop.cluster.rows import queues_of
from tests.interop.kit.servers import Broker, NameServer
from tests.kit import fixtures

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

# A master delivers the delayed messages of these stores, which are long due, once it is up.
DELIVERED_SINCE = {"basic-4.9": {"Delayed"}, "delay-retry-dlq-5.5": {"Delayed", "%RETRY%worker"}}
_NOTHING = LogicalOffset(0), LogicalOffset(0)
STORES = [
    ("basic-5.5", "5.5.0"),
    ("basic-4.9", "4.9.7"),
    ("transactions-5.5", "5.5.0"),
    ("delay-retry-dlq-5.5", "5.5.0"),
]


@pytest.mark.parametrize(("name", "version"), STORES)
def test_every_message_is_read_as_the_official_client_reads_it(
    name: str, version: str, name_server: NameServer, tmp_path: Path
) -> None:
    store, expected = fixtures.extract(name, tmp_path), fixtures.expected(name)

    with Broker(store, name_server, tmp_path, fixtures.SIZES, version=version) as broker:
        with opened(name_server.address, mode="r") as ours:
            topics = ours.topics()
            found = {topic: queues_of(ours, topic) for topic in expected["topics"]}
            by_filter = _filtered(ours, expected)
            growing = DELIVERED_SINCE.get(name, set())
            by_key = _by_key(ours, _but(growing, expected["queries"]["byKey"]))
            by_time = _by_time(ours, _but(growing, expected["queries"]["byTime"]), found)
        broker.kill()  # The store is a copy; an orderly stop would take ten seconds.

    wanted = {topic: document["queues"] for topic, document in expected["topics"].items()}
    assert [topic for topic in wanted if not _begins_with(found[topic], wanted[topic])] == []
    assert {topic for topic in wanted if found[topic] != wanted[topic]} <= growing
    assert wanted.keys() <= set(topics)
    assert by_filter == [
        *(answer["queueOffsets"] for answer in expected["queries"]["byTag"]),
        *(answer["queueOffsets"] for answer in expected["queries"]["bySql"]),
    ]
    assert by_key == []
    assert by_time == []


def _begins_with(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether all queues hold what they are to hold, before anything else."""
    return found.keys() == wanted.keys() and all(
        found[number]["messages"][: len(queue["messages"])] == queue["messages"]
        for number, queue in wanted.items()
    )


def _filtered(ours: OurBroker, expected: dict[str, Any]) -> list[dict[str, list[int]]]:
    """What filtered reads deliver, by queue."""
    asked = [
        *((query, MessageFilter.of(query["expression"])) for query in expected["queries"]["byTag"]),
        *(
            (query, MessageFilter.of(sql=query["expression"]))
            for query in expected["queries"]["bySql"]
        ),
    ]
    answers = []
    for query, message_filter in asked:
        found = {}
        for number in query["queueOffsets"]:
            (queue,) = (
                queue
                for queue in ours.describe(query["topic"]).queues
                if str(queue.queue_id) == number
            )
            known = expected["topics"][query["topic"]]["queues"].get(number)
            low, high = (known["minOffset"], known["maxOffset"]) if known else _NOTHING
            batches = ours.pull(OffsetRange(queue, low, high), message_filter=message_filter)
            found[number] = [offset for frames in batches for offset in frames.offsets.tolist()]
        answers.append(found)
    return answers


def _but(topics: set[str], queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [query for query in queries if query["topic"] not in topics]


def _by_key(ours: OurBroker, queries: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """The keys whose answer differs from the official client's, with ours."""
    wrong = []
    for query in queries:
        found = ours.query(query["topic"], query["key"]).column("offsetMsgId").to_pylist()
        if found != query["msgIds"]:
            wrong.append((query["key"], found))
    return wrong


def _by_time(
    ours: OurBroker, queries: list[dict[str, Any]], found: dict[str, Any]
) -> list[tuple[str, int, int]]:
    """The questions by time to which our answer is not the first message stored at or after it."""
    wrong = []
    for query in queries:
        topic, queue_id, time_ms = query["topic"], query["queueId"], query["timestamp"]
        queue = found[topic].get(str(queue_id), {"minOffset": 0, "messages": []})
        times = [message["storeTimestamp"] for message in queue["messages"]]
        first = queue["minOffset"] + bisect_left(times, time_ms)
        if ours.offset_at(topic, queue_id, time_ms) != first:
            wrong.append((topic, queue_id, time_ms))
    return wrong
