"""Directories that are no store, or one of a format that is refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.errors import CorruptRecordError, FormatVersionError, StoreNotFoundError
from broker_core.store.check.store import check
from broker_core.types import Mode
from tests.kit import stores


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with stores.create(path) as broker:
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"x")
    return path


def make(root: Path, name: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return root


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_missing_store_is_not_made(tmp_path: Path, mode: Mode) -> None:
    with pytest.raises(StoreNotFoundError, match=r"There is no store at .*missing"):
        open_broker(tmp_path / "missing", mode=mode)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_directory_of_other_things_is_not_a_store(tmp_path: Path, mode: Mode) -> None:
    make(tmp_path, "notes.txt")

    with pytest.raises(StoreNotFoundError, match="is not a store: it has no commitlog"):
        open_broker(tmp_path, mode=mode)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    make(tmp_path, "file")

    with pytest.raises(StoreNotFoundError, match="is a file, not a store"):
        open_broker(tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("consumequeue/CURRENT", "consume queues in RocksDB"),
        ("consumequeue/000012.sst", "consume queues in RocksDB"),
        ("config/rdb/CURRENT", r"RocksDB \(config/rdb\)"),
        ("config/topics/CURRENT", r"RocksDB \(config/topics\)"),
        ("config/consumerOffsets/CURRENT", r"RocksDB \(config/consumerOffsets\)"),
        ("dledger-n0/index/000", r"DLedger store \(dledger-n0\)"),
    ],
)
def test_a_foreign_format_is_refused_by_name(root: Path, name: str, what: str) -> None:
    make(root, name)

    with pytest.raises(FormatVersionError, match=f"{what}.*rocketmq://"):
        open_broker(root)


@pytest.mark.parametrize("name", ["rocksdbstore/CURRENT", "compaction/position-checkpoint"])
def test_directories_that_every_broker_makes_mean_nothing(root: Path, name: str) -> None:
    make(root, name)

    with stores.open_r(root) as broker:
        assert broker.read("orders").num_rows == 1


def test_a_topic_with_batch_queues_is_refused_and_the_others_are_read(root: Path) -> None:
    make(root, "batchconsumequeue/batched/0/00000000000000000000")

    with stores.open_r(root) as broker:
        assert broker.read("orders").num_rows == 1
        with pytest.raises(FormatVersionError, match="Topic batched has batch consume queues"):
            broker.read("batched")


def test_a_topic_configured_for_batch_queues_is_refused(root: Path) -> None:
    path = root / "config" / "topics.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"attributes":{}', '"attributes":{"queue.type":"BatchCQ"}'))

    with (
        stores.open_r(root) as broker,
        pytest.raises(FormatVersionError, match=r"queue\.type=BatchCQ"),
    ):
        broker.offsets("orders")


def test_a_store_without_configuration_has_the_topics_of_its_queues(root: Path) -> None:
    for path in (root / "config").iterdir():
        path.unlink()
    (root / "config").rmdir()

    with stores.open_r(root) as broker:
        assert broker.topics() == ["orders"]
        assert broker.describe("orders").read_queues == 1
        assert broker.read("orders").num_rows == 1


def test_records_of_batch_topics_are_left_alone_by_recovery(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with stores.create(root) as broker:
        for name in ("orders", "batched"):
            broker.create_topic(name, queues=1)
        for number in range(6):
            broker.send(("orders", "batched")[number % 2], b"%d" % number)
    # As a broker leaves it that keeps this topic elsewhere, and was killed.
    shutil.rmtree(root / "consumequeue" / "batched")
    make(root, "batchconsumequeue/batched/0/00000000000000000000")
    make(root, "abort")
    (root / "lock").write_text("lock")
    before = stores.snapshot(root)

    with stores.open_r(root) as reader:
        assert reader.read("orders")["body"].to_pylist() == [b"0", b"2", b"4"]
        assert reader.reader.queues() == [("orders", 0)]
    with pytest.raises(FormatVersionError, match=r"topics batched have batch.*Start and stop"):
        stores.open_rw(root)
    assert {problem.where for problem in check(root)} == {"topic batched"}
    changed = {path for path, seen in stores.snapshot(root).items() if before.get(path) != seen}
    assert changed <= {"lock", "checkpoint"}

    (root / "abort").unlink()
    with stores.open_rw(root) as writer:
        writer.send("orders", b"6")
        assert writer.read("orders")["body"].to_pylist() == [b"0", b"2", b"4", b"6"]
    assert not (root / "consumequeue" / "batched").exists()


def test_queues_without_their_log_are_not_read_as_an_empty_store(root: Path) -> None:
    (root / "commitlog").rename(root.with_name("log"))
    before = stores.snapshot(root)

    with pytest.raises(CorruptRecordError, match=r"queue orders/0, but no commit log in .*config="):
        open_broker(root)
    config = {"storePathCommitLog": str(root.with_name("log"))}
    with open_broker(root, config=config) as broker:
        assert broker.read("orders").num_rows == 1
    assert stores.snapshot(root) == before


def test_a_store_without_a_message_needs_no_log(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store") as broker:
        broker.create_topic("orders", queues=1)
    with stores.open_r(tmp_path / "store") as reader:
        assert reader.read("orders").num_rows == 0
