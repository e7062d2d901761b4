"""Consumer offsets: what is written, how often it is parsed, and how many groups there may be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import open_broker
from broker_core.broker import offsets
from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.offsets import (
    CONSUMER_OFFSETS_FILE,
    ConsumerOffsets,
    ConsumerOffsetsFile,
    consumer_offsets_file,
)
from broker_core.codec.property_names import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from broker_core.errors import CorruptRecordError, RequestError, StorageError
from broker_core.store import config_files
from broker_core.store.io.files import OsFiles
from broker_core.types import BatchRef, LocalTransactionState
from tests.kit import stores
from tests.kit.served import served
from tests.kit.transactions import prepare, visible

Table = dict[str, dict[str, int]]

OWN: Table = {
    f"{HALF_TOPIC}@{TRANSACTION_GROUP}": {"0": 0},
    f"{OP_TOPIC}@{TRANSACTION_GROUP}": {"0": 0},
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with stores.create(tmp_path / "store") as opened:
        opened.create_topic("t", queues=2)
        yield opened


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files of consumer offsets that were parsed, in order."""
    found: list[Path] = []
    load = config_files.load

    def counting(path: Path) -> dict[str, Any]:
        if path.name == CONSUMER_OFFSETS_FILE.name:
            found.append(path)
        return load(path)

    monkeypatch.setattr(config_files, "load", counting)
    return found


def file_of(broker: EmbeddedBroker) -> Path:
    return broker.reader.root / CONSUMER_OFFSETS_FILE


def written(path: Path, table: Table, **rest: object) -> Path:
    """Write a table as another process would."""
    config_files.persist(OsFiles(), path, {"offsetTable": table, **rest})
    return path


def groups(count: int, topic: str = "t") -> Table:
    return {f"{topic}@group-{number}": {"0": number, "1": 7} for number in range(count)}


def table_on_disk(broker: EmbeddedBroker) -> Table:
    table: Table = json.loads(file_of(broker).read_text("utf-8"))["offsetTable"]
    return table


# What is written

KEYS = st.builds("{}@{}".format, *([st.sampled_from(["t", "t2", "é\n", "T", "tA"])] * 2)) | st.just(
    '"@\\'
)
QUEUES = st.dictionaries(st.integers(0, 12).map(str), st.integers(0, 1 << 62), max_size=4)
REST = st.dictionaries(
    st.sampled_from(["aaa", "pullOffsetTable", "zzz"]),
    st.sampled_from([{}, [], 3, "a\nb", {"t@g": {"0": 1, "n": [1, {"offsetTable": {}}]}}]),
)


@pytest.mark.property
@given(
    st.dictionaries(KEYS, QUEUES),
    REST,
    st.lists(st.tuples(st.sampled_from("tTgé"), st.sampled_from("tT"), st.integers(0, 12))),
    st.booleans(),
)
def test_the_text_is_what_the_whole_document_renders_to(
    tmp_path_factory: pytest.TempPathFactory,
    table: Table,
    rest: dict[str, Any],
    changes: list[tuple[str, str, int]],
    is_deleted: bool,
) -> None:
    document = {**rest, "offsetTable": table, "dataVersion": {"counter": 3, "timestamp": 1}}
    path = tmp_path_factory.getbasetemp() / "rendered.json"
    path.write_text(config_files.render(document), encoding="utf-8")

    loaded = ConsumerOffsets.load(path)
    for number, (group, topic, queue_id) in enumerate(changes):
        loaded = loaded.put(group, topic, queue_id, number)
        table.setdefault(f"{topic}@{group}", {})[str(queue_id)] = number
    if is_deleted:
        loaded = loaded.without_topic("t")
        table = {key: queues for key, queues in table.items() if key.partition("@")[0] != "t"}

    version = {"counter": 4, "stateVersion": 0, "timestamp": 9}
    expected = {**rest, "offsetTable": table, "dataVersion": version}
    assert loaded.next_version(now_ms=9).encoded() == config_files.render(expected).encode()
    assert len(loaded) == len(table)
    for key, queues in table.items():
        topic, _, group = key.partition("@")
        assert loaded.of(group, topic) == {int(queue): queues[queue] for queue in queues}
        assert loaded.has(group, topic)
    topics = [key.partition("@")[0] for key in table]
    assert all(loaded.group_count(name) == topics.count(name) for name in ("t", "t2", "T", "tA"))


def test_what_is_kept_after_a_write_is_what_would_be_parsed(broker: EmbeddedBroker) -> None:
    written(file_of(broker), groups(3), pullOffsetTable={"t@g": {"0": 1}})

    broker.commit_offset("group-1", "t", 1, 11)
    broker.commit_offset("new", "t", 0, 4)

    kept = consumer_offsets_file(broker.reader.root).table()
    assert kept == ConsumerOffsets.load(file_of(broker))
    text = file_of(broker).read_text("utf-8")
    assert text == config_files.render(json.loads(text))
    assert json.loads(text)["dataVersion"]["counter"] == 2
    assert json.loads(text)["pullOffsetTable"] == {"t@g": {"0": 1}}


def test_a_write_that_fails_is_not_remembered(tmp_path: Path) -> None:
    class NoRename(OsFiles):
        def rename(self, source: Path, target: Path) -> None:
            if target.name == CONSUMER_OFFSETS_FILE.name:
                raise OSError(5, "no")
            super().rename(source, target)

    file = ConsumerOffsetsFile(tmp_path)
    file.save(OsFiles(), file.table().put("g", "t", 0, 1), now_ms=1)

    with pytest.raises(StorageError):
        file.save(NoRename(), file.table().put("g", "t", 0, 2), now_ms=2)

    assert file.table().of("g", "t") == {0: 1}


def test_a_long_table_is_rendered_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "_PART_ENTRIES", 3)
    table = ConsumerOffsets()
    for number in range(10):
        assert json.loads(table.encoded())["offsetTable"] == groups(number)
        assert table.encoded() == config_files.render(json.loads(table.encoded())).encode()
        table = table.put(f"group-{number}", "t", 0, number).put(f"group-{number}", "t", 1, 7)


# How often it is parsed


def test_commits_parse_the_offsets_once(broker: EmbeddedBroker, parsed: list[Path]) -> None:
    written(file_of(broker), groups(10_000))
    transactions = broker.transactions

    for number in range(20):
        batch = BatchRef("query", "", number)
        transactions.commit_batch(batch, [prepare(transactions, batch, number + 1, [b"row"])])
        half = transactions.prepare("t", b"one", group="g")
        transactions.end(half, LocalTransactionState.COMMIT)
        transactions.check_back()

    assert len(visible(broker)) == 40
    assert len(parsed) == 1
    assert len(table_on_disk(broker)) == 10_000 + len(OWN)


def test_offsets_that_are_committed_are_not_parsed_again(
    broker: EmbeddedBroker, parsed: list[Path]
) -> None:
    with stores.open_rw(broker.reader.root) as other:
        for number in range(10):
            broker.commit_offset(f"g{number}", "t", 0, number)
            assert list(other.consumer_offsets(f"g{number}", "t").values()) == [number]
            other.commit_offset("shared", "t", 1, number)
    broker.delete_topic("t")
    broker.create_topic("t", queues=2)

    assert broker.consumer_offsets("shared", "t") == {}
    assert len(parsed) == 1


def test_threads_parse_the_offsets_once(tmp_path: Path, parsed: list[Path]) -> None:
    written(tmp_path / CONSUMER_OFFSETS_FILE, groups(1000))
    file = ConsumerOffsetsFile(tmp_path)
    together = threading.Barrier(8)

    def look(_: int) -> int:
        together.wait()
        return len(file.table())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(look, range(8))) == [1000] * 8
    assert len(parsed) == 1


def test_a_process_that_was_forked_has_a_lock_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = consumer_offsets_file(tmp_path)
    assert consumer_offsets_file(tmp_path) is ours

    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert consumer_offsets_file(tmp_path) is not ours


# Writes of others

OTHER_PROCESS = """
import sys
from broker_core import open_broker
with open_broker(sys.argv[1], mode="rw") as broker:
    broker.commit_offset("theirs", "t", 1, 5)
"""


def test_an_offset_that_another_process_commits_is_seen(
    broker: EmbeddedBroker, parsed: list[Path]
) -> None:
    broker.commit_offset("ours", "t", 0, 1)
    address = f"file:{broker.reader.root}"

    subprocess.run([sys.executable, "-c", OTHER_PROCESS, address], check=True)
    seen = broker.consumer_offsets("theirs", "t")
    broker.commit_offset("ours", "t", 0, 2)

    assert list(seen.values()) == [5]
    assert table_on_disk(broker) == {"t@ours": {"0": 2}, "t@theirs": {"1": 5}}
    assert len(parsed) == 2


def test_each_write_of_others_is_seen_at_once(broker: EmbeddedBroker) -> None:
    for number in range(10, 60):
        written(file_of(broker), {"t@g": {"0": number}})
        assert list(broker.consumer_offsets("g", "t").values()) == [number]


def test_a_write_is_seen_though_inode_length_and_time_came_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ConsumerOffsetsFile(tmp_path), ConsumerOffsetsFile(tmp_path)
    ours.save(OsFiles(), ours.table().put("g", "t", 0, 1), now_ms=1)
    again = config_files.versions(tmp_path / CONSUMER_OFFSETS_FILE)
    monkeypatch.setattr(config_files, "versions", lambda _: again)
    assert theirs.table().of("g", "t") == {0: 1}

    for number in range(2, 5):
        ours.save(OsFiles(), ours.table().put("g", "t", 0, number), now_ms=1)
        assert theirs.table().of("g", "t") == {0: number}


def test_offsets_in_place_of_a_broker_of_apache_are_seen(broker: EmbeddedBroker) -> None:
    broker.commit_offset("g", "t", 0, 1)

    file_of(broker).write_text('{"offsetTable":{"t@g":{0:12,1:7}}}', encoding="utf-8")

    assert list(broker.consumer_offsets("g", "t").values()) == [12, 7]


def test_damage_is_told_each_time_until_it_is_mended(broker: EmbeddedBroker) -> None:
    broker.commit_offset("g", "t", 0, 1)
    before = file_of(broker).read_bytes()
    file_of(broker).write_text('{"offsetTable":{"t@g":{"0":"x"}}}', encoding="utf-8")

    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="'x' is no number"):
            broker.commit_offset("g", "t", 0, 2)
    file_of(broker).write_bytes(before)

    assert list(broker.consumer_offsets("g", "t").values()) == [1]


# How many groups there may be


def test_groups_of_a_topic_have_a_limit(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store", maxConsumerGroupsPerTopic=3) as broker:
        for topic in ("t", "t2"):
            broker.create_topic(topic, queues=2)
        for number in range(3):
            broker.commit_offset(f"g{number}", "t", 0, 1)
        before = stores.snapshot(broker.reader.root)

        for _ in range(2):
            with pytest.raises(RequestError) as caught:
                broker.commit_offset("g3", "t", 0, 1)
        assert stores.snapshot(broker.reader.root) == before
        assert str(caught.value) == (
            f"Group g3 is new to topic t in {tmp_path}/store, which has the offsets of 3 groups; "
            "the limit is 3. Nothing was written: commit as a group that the topic has, or raise "
            "maxConsumerGroupsPerTopic in the broker's configuration."
        )

        broker.commit_offset("g2", "t", 1, 9)
        broker.commit_offset("g3", "t2", 0, 1)
        broker.delete_topic("t")
        broker.create_topic("t", queues=2)
        broker.commit_offset("g3", "t", 0, 1)


def test_groups_beyond_a_limit_that_were_there_before_go_on(tmp_path: Path) -> None:
    limits = {"maxConsumerGroupsPerTopic": 2, "maxConsumerOffsets": 4}
    with stores.create(tmp_path / "store", **limits) as broker:
        broker.create_topic("t", queues=2)
        written(file_of(broker), groups(10))

        broker.commit_offset("group-9", "t", 0, 1)

        with pytest.raises(RequestError, match="the offsets of 10 groups; the limit is 2"):
            broker.commit_offset("new", "t", 0, 1)


def test_all_offsets_together_have_a_limit(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store", maxConsumerOffsets=3) as broker:
        for topic in ("a", "b"):
            broker.create_topic(topic, queues=1)
        written(file_of(broker), OWN | {"a@g": {"0": 1}, "a@h": {"0": 1}})

        broker.commit_offset("g", "b", 0, 1)
        before = stores.snapshot(broker.reader.root)

        with pytest.raises(RequestError) as caught:
            broker.commit_offset("h", "b", 0, 1)
        assert stores.snapshot(broker.reader.root) == before
        assert str(caught.value) == (
            f"Group h is new to topic b, and {tmp_path}/store has offsets for 3 pairs of topic and "
            "group; the limit is 3. Nothing was written: delete topics that are not used any more, "
            "or raise maxConsumerOffsets in the broker's configuration."
        )
        broker.commit_offset("g", "b", 0, 2)


def test_the_group_of_check_back_has_room_and_takes_none(tmp_path: Path) -> None:
    limits = {"maxConsumerGroupsPerTopic": 0, "maxConsumerOffsets": 0}
    with stores.create(tmp_path / "store", **limits) as broker:
        broker.create_topic("t", queues=2)
        half = broker.transactions.prepare("t", b"one", group="g")
        broker.transactions.end(half, LocalTransactionState.COMMIT)
        broker.transactions.check_back()

        assert table_on_disk(broker).keys() == OWN.keys()
        with pytest.raises(RequestError, match="the offsets of 0 groups; the limit is 0"):
            broker.commit_offset("g", "t", 0, 1)


def test_the_group_of_check_back_is_none_of_a_topics_groups(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store", maxConsumerGroupsPerTopic=1) as broker:
        broker.create_topic("t", queues=2)
        written(file_of(broker), {f"t@{TRANSACTION_GROUP}": {"0": 0}})

        broker.commit_offset("g", "t", 0, 1)

        with pytest.raises(RequestError, match="the offsets of 1 groups; the limit is 1"):
            broker.commit_offset("h", "t", 0, 1)


def test_a_refusal_takes_no_lock_and_parses_nothing(
    tmp_path: Path, parsed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with stores.create(tmp_path / "store", maxConsumerGroupsPerTopic=1) as broker:
        broker.create_topic("t", queues=2)
        broker.commit_offset("g", "t", 0, 1)
        turns: list[str] = []
        with monkeypatch.context() as patched:
            patched.setattr(broker.writer, "turn", turns.append)
            for number in range(20):
                with pytest.raises(RequestError, match="the limit is 1"):
                    broker.commit_offset(f"new-{number}", "t", 0, 1)

    assert (turns, len(parsed)) == ([], 1)


def test_a_group_that_comes_while_another_waits_for_the_lock_is_counted(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store", maxConsumerGroupsPerTopic=2) as broker:
        broker.create_topic("t", queues=2)
        with ThreadPoolExecutor(8) as pool, broker.writer.turn("hold the lock"):
            admin = broker._admin
            tries = [pool.submit(admin.commit_offset, f"g{n}", "t", 0, 1) for n in range(8)]
        errors = [each.exception() for each in tries]

        assert errors.count(None) == 2
        assert all(error is None or isinstance(error, RequestError) for error in errors)
        assert len(table_on_disk(broker)) == 2


def test_a_server_refuses_one_group_too_many(tmp_path: Path) -> None:
    with (
        served(tmp_path / "store", {"maxConsumerGroupsPerTopic": "2"}) as process,
        open_broker(process.address, mode="rw") as client,
    ):
        client.create_topic("t", queues=2)
        client.commit_offset("a", "t", 0, 1)
        client.commit_offset("b", "t", 0, 1)

        with pytest.raises(RequestError, match=r"new to topic t .* raise maxConsumerGroupsPer"):
            client.commit_offset("c", "t", 0, 1)

        client.commit_offset("b", "t", 1, 2)
        assert list(client.consumer_offsets("b", "t").values()) == [1, 2]
        assert client.consumer_offsets("c", "t") == {}
