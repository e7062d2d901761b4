"""Filtered reads of stores that Apache RocketMQ wrote give what its own client was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core.filter.pipeline import MessageFilter, Pipeline
from broker_core.filter.registered import load_registered, registration_of
from broker_core.filter.sqlfilter import SqlFilter
from broker_core.filter.tag_expression import TagFilter
from broker_core.store.reader import StoreReader
from tests.kit import fixtures
from tests.kit.stores import open_r

SECTIONS = ("byTag", "bySql", "byGroup")


def answers(name: str) -> list[tuple[str, dict[str, Any]]]:
    found = fixtures.expected(name)["queries"]
    return [(section, query) for section in SECTIONS for query in found.get(section, [])]


ALL = [
    pytest.param(name, section, query, id=f"{name} {section} {query['expression']}")
    for name in fixtures.NAMES
    for section, query in answers(name)
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("stores")
    return {name: fixtures.extract(name, directory) for name in fixtures.NAMES}


def message_filter(section: str, expression: str) -> MessageFilter:
    if section == "byTag":
        return MessageFilter(tags=TagFilter(expression))
    return MessageFilter(sql=SqlFilter(expression))


def filtered(root: Path, topic: str, work: Pipeline) -> dict[str, list[int]]:
    """The offsets that pass, by queue, without queues of which nothing does."""
    reader = StoreReader(root)
    found = {}
    for name, queue_id in reader.queues():
        if name != topic:
            continue
        start, end = reader.queue_range(topic, queue_id)
        batches = reader.frames(topic, queue_id, start, end, select=work.select_entries)
        offsets = [int(o) for batch in batches for o in work.select_frames(batch).offsets]
        if offsets:
            found[str(queue_id)] = offsets
    return found


def wanted(query: dict[str, Any]) -> dict[str, list[int]]:
    return {queue_id: offsets for queue_id, offsets in query["queueOffsets"].items() if offsets}


@pytest.mark.parametrize(("name", "section", "query"), ALL)
def test_store_gives_the_offsets_that_the_client_got(
    stores: dict[str, Path], name: str, section: str, query: dict[str, Any]
) -> None:
    work = Pipeline(message_filter(section, query["expression"]))

    assert filtered(stores[name], query["topic"], work) == wanted(query)


@pytest.mark.parametrize(
    "query", [pytest.param(q, id=q["group"]) for section, q in answers("bloom-5.5") if "group" in q]
)
def test_bitmaps_spare_work_and_change_nothing(
    stores: dict[str, Path], query: dict[str, Any]
) -> None:
    root = stores["bloom-5.5"]
    registration = registration_of(load_registered(root), query["topic"], query["expression"])
    assert registration is not None
    assert registration.group == query["group"]
    with_bitmaps = Pipeline(message_filter("bySql", query["expression"]), registration)
    without = Pipeline(message_filter("bySql", query["expression"]))

    assert filtered(root, query["topic"], with_bitmaps) == wanted(query)
    assert filtered(root, query["topic"], without) == wanted(query)
    assert with_bitmaps.count.bitmap.dropped > 100
    assert with_bitmaps.count.sql.examined == 480 - with_bitmaps.count.bitmap.dropped
    assert without.count.sql.examined == 480


@pytest.mark.parametrize(
    "query", [pytest.param(q, id=q["group"]) for section, q in answers("bloom-5.5") if "group" in q]
)
def test_an_embedded_read_uses_the_bitmaps_of_a_registered_expression(
    stores: dict[str, Path], query: dict[str, Any]
) -> None:
    topic, expression = query["topic"], query["expression"]
    with open_r(stores["bloom-5.5"]) as broker:
        found = {
            str(queue.queue_id): broker.read(topic, queue.queue_id, sql=expression)
            for queue in broker.offsets(topic)
        }
        after_registered = broker.filter_count
        for queue in broker.offsets(topic):
            broker.read(topic, queue.queue_id, sql=f"({expression})")
        after_another = broker.filter_count - after_registered

    rows = {number: table["queueOffset"].to_pylist() for number, table in found.items()}
    assert {number: offsets for number, offsets in rows.items() if offsets} == wanted(query)
    assert after_registered.bitmap.dropped > 100
    assert after_registered.sql.examined == 480 - after_registered.bitmap.dropped
    assert (after_another.bitmap.examined, after_another.sql.examined) == (0, 480)


def test_bitmaps_are_not_used_once_a_broker_was_killed(tmp_path: Path) -> None:
    root = fixtures.extract("bloom-5.5", tmp_path)
    (root / "abort").write_text("1")

    with open_r(root) as broker:
        broker.read("Filtered", sql="price > 50.5")

    assert broker.filter_count.bitmap.examined == 0
    assert broker.filter_count.sql.examined > 100


def test_an_entry_with_another_messages_bitmap_is_evaluated(tmp_path: Path) -> None:
    root = fixtures.extract("bloom-5.5", tmp_path)
    path = root / "consumequeue" / "Filtered" / "0" / "00000000000000000000"
    with open_r(root) as broker:
        wanted_offsets = broker.read("Filtered", sql="price > 50.5")["queueOffset"].to_pylist()
        used = broker.filter_count.bitmap.dropped
    first = next(offset for offset in wanted_offsets if 20 < offset < 90)
    data = bytearray(path.read_bytes())
    for other in (first - 1, first + 1, first - 9, first + 9):
        data[first * 20 + 12 : first * 20 + 20] = data[other * 20 + 12 : other * 20 + 20]
        path.write_bytes(data)

        with open_r(root) as broker:
            found = broker.read("Filtered", sql="price > 50.5")["queueOffset"].to_pylist()

        assert found == wanted_offsets
    assert used > 50


@pytest.mark.parametrize("damage", ["{", "[]", '{"filterDataByTopic":{"Filtered":7}}'])
def test_a_damaged_list_of_registered_filters_costs_work_and_no_message(
    tmp_path: Path, damage: str
) -> None:
    root = fixtures.extract("bloom-5.5", tmp_path)
    with open_r(root) as broker:
        before = broker.read("Filtered", sql="price > 50.5")
        was_used = broker.filter_count.bitmap.dropped
        for name in ("consumerFilter.json", "consumerFilter.json.bak"):
            (root / "config" / name).write_text(damage)
        after = broker.read("Filtered", sql="price > 50.5")

    assert was_used
    assert after == before
    assert broker.filter_count.bitmap.dropped == was_used


@pytest.mark.parametrize(("name", "section", "query"), ALL)
def test_properties_that_the_client_saw_have_the_same_verdicts(
    name: str, section: str, query: dict[str, Any]
) -> None:
    chosen = message_filter(section, query["expression"])
    queues = fixtures.expected(name)["topics"][query["topic"]]["queues"]

    found = {}
    for queue_id, queue in queues.items():
        messages = [message["properties"] for message in queue["messages"]]
        if chosen.sql:
            passed = [verdict == "true" for verdict in chosen.sql.verdicts(messages)]
        else:
            assert chosen.tags is not None
            tags = pa.array([message.get("TAGS") for message in messages], pa.string())
            passed = chosen.tags.select_texts(tags).tolist()
        offsets = [m["queueOffset"] for m, p in zip(queue["messages"], passed, strict=True) if p]
        if offsets:
            found[queue_id] = offsets

    assert found == wanted(query)
