"""The transient pool: answered in memory, written in batches, readable then and not before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import DiskFullError, StorageError
from broker_core.errors import ConfigError
from broker_core.service.append_dedup import AppendAttempt, AppendDedup, AppendName
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.group_commit import Appended, GroupCommit, Job
from broker_core.service.settings import ServiceSettings
from broker_core.service.transient_pool import Committer, PooledWriter
from broker_core.store.check.store import check
from broker_core.store.settings import StoreSettings
from tests.contract.test_messages import outgoing
from tests.kit.faulty_files import Fault, FaultyFiles
from tests.kit.served import SMALL_FILES
from tests.unit.service.test_group_commit import records

SMALL = {**SMALL_FILES, "maxHashSlotNum": "1000", "maxIndexNum": "4000"}


def open_pool(root: Path, files: FaultyFiles | None = None) -> BrokerPool:
    pool = BrokerPool.open(
        root, StoreSettings.load(SMALL), create=True, files=files, is_pooled=True
    )
    with pool.broker() as broker:
        broker.create_topic("t", queues=2, exist_ok=True)
    return pool


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[BrokerPool]:
    opened = open_pool(tmp_path / "store")
    yield opened
    opened.close()


def send(pool: BrokerPool, *bodies: bytes, queue_id: int = 0, flush: str = "async") -> Appended:
    job = Job(records(*bodies, queue_id=queue_id), flush=flush)
    return GroupCommit(pool, 1 << 20).append(job)


def bodies(pool: BrokerPool, queue_id: int = 0) -> list[bytes]:
    with pool.broker() as broker:
        found: list[bytes] = broker.read("t", queue_id).column("body").to_pylist()
        return found


def test_what_was_accepted_can_be_read_after_the_commit(pool: BrokerPool) -> None:
    placed = [send(pool, b"a", b"b"), send(pool, b"c")]

    assert bodies(pool) == []
    assert pool.writer.held_bytes == sum(int(sum(each.sizes)) for each in placed)

    assert pool.writer.commit() == 3
    assert bodies(pool) == [b"a", b"b", b"c"]
    assert pool.writer.held_bytes == 0
    assert pool.writer.commit() == 0


@settings(max_examples=15)  # each makes a store
@given(
    batches=st.lists(
        st.tuples(st.integers(0, 1), st.lists(st.integers(1, 9000), min_size=1, max_size=9)),
        max_size=12,
    ),
    commits=st.sets(st.integers(0, 11)),
)
def test_messages_lie_where_their_senders_were_told(
    batches: list[tuple[int, list[int]]], commits: set[int]
) -> None:
    with TemporaryDirectory() as directory:
        pool = open_pool(Path(directory) / "store")
        told = []
        for number, (queue_id, sizes) in enumerate(batches):
            told.append(send(pool, *[b"x" * size for size in sizes], queue_id=queue_id))
            if number in commits:
                pool.writer.commit()
        pool.close()

        pool = open_pool(Path(directory) / "store")
        columns = ["queueOffset", "physicalOffset", "storeSize", "storeTimestamp"]
        with pool.broker() as broker:
            tables = [broker.read("t", queue_id, columns=columns) for queue_id in (0, 1)]
        pool.close()
        assert check(Path(directory) / "store") == []

    for queue_id in (0, 1):
        here = [each for each, (chosen, _) in zip(told, batches, strict=True) if chosen == queue_id]
        expected: dict[str, list[int]] = {
            "queueOffset": [at for each in here for at in each.queue_offsets],
            "physicalOffset": [at for each in here for at in each.physical_offsets],
            "storeSize": [size for each in here for size in each.sizes],
            "storeTimestamp": [
                1000 * each.store_timestamp_ms for each in here for _ in range(len(each.sizes))
            ],
        }
        for name, values in expected.items():
            assert tables[queue_id].column(name).cast("int64").to_pylist() == values


def test_a_durable_append_commits_what_came_before(pool: BrokerPool) -> None:
    send(pool, b"a")
    send(pool, b"b", flush="sync")

    assert bodies(pool) == [b"a", b"b"]


def test_a_batch_of_the_broker_itself_comes_after_what_was_accepted(pool: BrokerPool) -> None:
    send(pool, b"a")
    with pool.broker() as broker:
        broker.append(outgoing(b"b", topic="t"))

    assert bodies(pool) == [b"a", b"b"]


def test_a_flush_commits(pool: BrokerPool) -> None:
    send(pool, b"a")
    pool.writer.flush()

    assert bodies(pool) == [b"a"]
    assert pool.writer.durable_lag_bytes == 0


def test_a_topic_that_is_deleted_takes_with_it_what_waits(pool: BrokerPool) -> None:
    send(pool, b"a")
    with pool.broker() as broker:
        broker.delete_topic("t")
        broker.create_topic("t", queues=2)
    send(pool, b"b")
    pool.writer.commit()

    assert bodies(pool) == [b"b"]


def test_more_than_the_pool_may_hold_goes_to_the_log(pool: BrokerPool) -> None:
    assert isinstance(pool.writer, PooledWriter)
    pool.writer.pool_bytes = 1000
    send(pool, b"a" * 600)
    send(pool, b"b" * 600)

    assert bodies(pool) == [b"a" * 600, b"b" * 600]


def test_waiting_readers_are_woken_by_the_commit(pool: BrokerPool) -> None:
    with pool.arrivals.watch([("t", 0)]) as watch:
        send(pool, b"a")
        assert not watch.wait(0)
        pool.writer.commit()
        assert watch.wait(0)


def test_a_repeat_is_answered_as_the_first(pool: BrokerPool) -> None:
    repeats = AppendDedup(pool)
    attempt = AppendAttempt(AppendName(b"client 16 bytes.", 7), 1, pool.instance)
    sent = records(b"a")

    def append() -> Appended:
        return GroupCommit(pool, 1 << 20).append(Job(sent))

    first = repeats.once(attempt, sent, append)
    again = repeats.once(attempt._replace(number=2), sent, append)

    assert list(first.physical_offsets) == list(again.physical_offsets)
    assert bodies(pool) == [b"a"]


def test_a_commit_that_fails_keeps_what_it_could_not_write_and_senders_are_told(
    tmp_path: Path,
) -> None:
    files = FaultyFiles(Fault.FULL)
    pool = open_pool(tmp_path / "store", files)
    send(pool, b"a")
    files._at = files.calls + 1

    with pytest.raises(DiskFullError):
        pool.writer.commit()
    with pytest.raises(DiskFullError):
        send(pool, b"refused")

    files.heal()
    send(pool, b"b")
    pool.close()
    pool = open_pool(tmp_path / "store")
    assert bodies(pool) == [b"a", b"b"]
    pool.close()
    assert check(tmp_path / "store") == []


def test_a_log_that_others_changed_is_not_written_over(pool: BrokerPool) -> None:
    assert isinstance(pool.writer, PooledWriter)
    send(pool, b"a")
    assert pool.writer._held is not None
    pool.writer._held.start += 1000
    pool.writer._held.end += 1000

    with pytest.raises(StorageError, match="1 acknowledged messages were to be written"):
        pool.writer.commit()
    send(pool, b"b")
    pool.writer.commit()

    assert bodies(pool) == [b"b"]


def test_enough_bytes_are_committed_before_the_interval_is_over(pool: BrokerPool) -> None:
    assert isinstance(pool.writer, PooledWriter)
    committer = Committer(pool.writer, interval_ms=3_600_000, least_bytes=1000)
    committer.start()
    with pool.arrivals.watch([("t", 0)]) as watch:
        send(pool, b"a" * 400)
        assert bodies(pool) == []
        send(pool, b"b" * 600)
        assert watch.wait(60)
    committer.stop()

    assert len(bodies(pool)) == 2
    assert not any(thread.name == "commit" for thread in threading.enumerate())


def test_a_pool_and_sync_flush_contradict_each_other() -> None:
    texts = {"transientStorePoolEnable": "true", "flushDiskType": "SYNC_FLUSH"}

    with pytest.raises(ConfigError, match="choose ASYNC_FLUSH, or no pool"):
        ServiceSettings.of(texts, "broker.conf")
