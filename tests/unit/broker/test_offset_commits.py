"""Commits of consumer offsets: which are written together, and who waits for a write."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.offsets import CONSUMER_OFFSETS_FILE, consumer_offsets_file
from broker_core.errors import RequestError, StorageError
from broker_core.service.broker_pool import BrokerPool
from broker_core.store import config_files
from broker_core.store.io.files import Files
from broker_core.store.lock import lock_holder
from broker_core.store.settings import StoreSettings
from tests.kit.raw_calls import wait_until


class SlowWrites:
    """Writes of the consumer offsets, each of which waits until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.may_go_on = threading.Event()
        self._write = config_files.persist_encoded
        monkeypatch.setattr(config_files, "persist_encoded", self._slow)

    def _slow(self, files: Files, path: Path, document: bytes) -> None:
        if path.name == CONSUMER_OFFSETS_FILE.name:
            self.begun += 1
            assert self.may_go_on.wait(30)
        self._write(files, path, document)


def waiting_commits(root: Path) -> int:
    return len(consumer_offsets_file(root)._commits)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[BrokerPool]:
    settings = StoreSettings.load({"maxConsumerGroupsPerTopic": 4})
    opened = BrokerPool.open(tmp_path / "store", settings, create=True)
    with opened.broker() as broker:
        broker.create_topic("t", queues=2)
    yield opened
    opened.close()


def test_commits_that_wait_are_written_together(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowWrites(monkeypatch)
    root = pool.writer.root

    def commit(number: int) -> str:
        with pool.broker() as broker:
            try:
                broker.commit_offset(f"g{number}", "t", 0, number)
            except RequestError as error:
                return str(error)
            return ""

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(commit, 0)
        wait_until(lambda: slow.begun == 1, "a write")
        others = [threads.submit(commit, number) for number in range(1, 8)]
        wait_until(lambda: waiting_commits(root) == 7, "commits that wait")
        slow.may_go_on.set()
        errors = [each.result(30) for each in (first, *others)]

    assert slow.begun == 2
    done = [number for number, error in enumerate(errors) if not error]
    # The others of a group do not suffer from those that find no room.
    assert len(done) == 4
    assert sum("the limit is 4" in error for error in errors) == 4
    table = json.loads((root / CONSUMER_OFFSETS_FILE).read_text("utf-8"))["offsetTable"]
    assert table == {f"t@g{number}": {"0": number} for number in done}


def test_a_write_that_fails_is_told_to_all_whose_commits_it_had(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowWrites(monkeypatch)

    def commit(number: int) -> None:
        with pool.broker() as broker:
            broker.commit_offset("g", "t", 0, number)

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(commit, 1)
        wait_until(lambda: slow.begun == 1, "a write")
        others = [threads.submit(commit, number) for number in (2, 3)]
        wait_until(lambda: waiting_commits(pool.writer.root) == 2, "commits that wait")

        def fails(*_: object) -> None:
            raise StorageError("full")

        monkeypatch.setattr(slow, "_write", fails)
        slow.may_go_on.set()
        for each in (first, *others):
            with pytest.raises(StorageError, match="full"):
                each.result(30)


def test_appends_of_a_server_do_not_wait_for_the_write_of_offsets(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowWrites(monkeypatch)

    def commit() -> None:
        with pool.broker() as broker:
            broker.commit_offset("g", "t", 0, 1)

    def append() -> None:
        with pool.broker() as broker:
            broker.send("t", b"x")
            broker.create_topic("t2", queues=1)

    with ThreadPoolExecutor(2) as threads:
        committed = threads.submit(commit)
        wait_until(lambda: slow.begun == 1, "a write")
        threads.submit(append).result(10)
        assert not committed.done()
        slow.may_go_on.set()
        committed.result(30)


def test_a_server_that_is_closed_waits_for_the_write_of_offsets(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's lock is not given back before; nor does a commit write after it."""
    slow = SlowWrites(monkeypatch)

    def commit(broker: EmbeddedBroker) -> None:
        broker.commit_offset("g", "t", 0, 1)

    with pool.broker() as broker, ThreadPoolExecutor(2) as threads:
        committed = threads.submit(commit, broker)
        wait_until(lambda: slow.begun == 1, "a write")
        closed = threads.submit(pool.writer.close)
        with pytest.raises(TimeoutError):
            closed.result(0.05)
        assert lock_holder(pool.writer.root) is not None
        slow.may_go_on.set()
        committed.result(30)
        closed.result(30)

        with pytest.raises(StorageError, match="closed"):
            commit(broker)
