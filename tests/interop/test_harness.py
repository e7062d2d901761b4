"""The tools of this suite find what is known to be there, so that others may rely on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.kit.clients import dump, produce, queries_of
from tests.interop.kit.servers import Broker, NameServer
from tests.kit import fixtures

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

# A master delivers the delayed messages of this store, which are long due, as soon as it starts.
DELIVERED_SINCE = {"basic-4.9": {"Delayed"}}


@pytest.mark.parametrize(
    ("name", "version"), [("basic-5.5", "5.5.0"), ("crash-5.5", "5.5.0"), ("basic-4.9", "4.9.7")]
)
def test_client_reads_a_known_store_as_recorded(
    name: str, version: str, name_server: NameServer, tmp_path: Path
) -> None:
    store = fixtures.extract(name, tmp_path)
    expected = fixtures.expected(name)

    with Broker(store, name_server, tmp_path, fixtures.SIZES, version=version) as broker:
        found = dump(broker, queries_of(expected))
        broker.kill()  # The store is a copy; an orderly stop would take ten seconds.

    changed = {topic for topic in expected["topics"] if not _same_topic(topic, expected, found)}
    assert changed == DELIVERED_SINCE.get(name, set())
    assert found["topics"].keys() == expected["topics"].keys()
    assert found["broker"] == expected["broker"]
    assert found["queries"]["byKey"] == expected["queries"]["byKey"]
    assert found["queries"]["byTime"] == expected["queries"]["byTime"]
    assert found["queries"]["byTag"] == expected["queries"]["byTag"]
    assert found["queries"]["bySql"] == expected["queries"]["bySql"]


def test_client_reads_back_what_it_sent(name_server: NameServer, tmp_path: Path) -> None:
    steps = ("plain:Plain:4:40", "zlib:Big:1:5", "lz4:Big:1:5", "zstd:Big:1:5", "batch:Batch:2:40")

    with Broker(tmp_path / "store", name_server, tmp_path, fixtures.SIZES) as broker:
        sent = produce(broker, 1, *steps, "ordered:Ordered:4:20")
        found = dump(broker)
        broker.kill()

    stored = {
        message["uniqKey"]: message for message in messages(found, {m["topic"] for m in sent})
    }
    assert [_stored_as(sent_one, stored[sent_one["uniqKey"]]) for sent_one in sent] == sent
    assert len(stored) == len(sent) == 115


def messages(document: dict[str, Any], topics: set[str]) -> list[dict[str, Any]]:
    queues = [queue for topic in topics for queue in document["topics"][topic]["queues"].values()]
    return [message for queue in queues for message in queue["messages"]]


def _same_topic(topic: str, expected: dict[str, Any], found: dict[str, Any]) -> bool:
    return bool(found["topics"].get(topic) == expected["topics"][topic])


def _stored_as(sent: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Return the acknowledgement with its fields from the store; the broker adds properties."""
    fields = {name: stored[name] for name in sent.keys() & stored.keys()}
    own = {name: stored["properties"].get(name) for name in sent["properties"]}
    return {**sent, **fields, "properties": own}
