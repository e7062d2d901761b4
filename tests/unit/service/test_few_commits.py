"""A few messages through a server: quickly into the log, pending until they are dispatched."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker_core.broker.catalog import TOPICS_FILE
from broker_core.codec.record import Record
from broker_core.errors import DiskFullError, RequestError, TopicNotFoundError
from broker_core.service.append_dedup import AppendAttempt, AppendDedup, AppendName
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.group_commit import Appended, GroupCommit, Job
from broker_core.service.known_topics import HOLDS_S, KnownTopics
from broker_core.store.check.store import check
from broker_core.store.few_records import MOST_BYTES, MOST_RECORDS, FewPlaces
from broker_core.store.settings import StoreSettings
from broker_core.wire.core.append_result import (
    pack_append_result,
    pack_few_places,
    unpack_append_result,
)
from broker_core.wire.core.frames import unpack
from tests.kit.faulty_files import Fault, FaultyFiles
from tests.kit.served import SMALL_FILES
from tests.unit.broker.admission.test_records import request
from tests.unit.service.test_append_dedup import message
from tests.unit.service.test_group_commit import Stalled, bodies, records

SMALL = {**SMALL_FILES, "maxHashSlotNum": "1000", "maxIndexNum": "4000"}


def open_pool(root: Path, files: FaultyFiles | None = None) -> BrokerPool:
    """Open a store with queues and an index: a message that needs a new file goes as a batch."""
    pool = BrokerPool.open(root, StoreSettings.load(SMALL), create=True, files=files)
    with pool.broker() as broker:
        if not broker.topics():
            broker.create_topic("t", queues=2)
    old = Record("t", 0, 0, 0, b"old", b"UNIQ_KEY\x01old\x02")
    GroupCommit(pool, 1 << 20).append(Job(request(old, old, replace(old, queue_id=1))))
    pool.writer.dispatch_pending()
    return pool


def send(pool: BrokerPool, *texts: bytes, queue_id: int = 0, flush: str = "async") -> Appended:
    return GroupCommit(pool, 1 << 24).append(Job(records(*texts, queue_id=queue_id), flush=flush))


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[BrokerPool]:
    opened = open_pool(tmp_path / "store")
    yield opened
    opened.close()
    assert check(tmp_path / "store") == []


def new(pool: BrokerPool, queue_id: int = 0) -> list[bytes]:
    return [text for text in bodies(pool, queue_id) if text != b"old"]


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_lone_message_is_pending_and_can_be_read(pool: BrokerPool, flush: str) -> None:
    placed = send(pool, b"a", flush=flush)

    assert isinstance(placed, FewPlaces)
    assert pool.writer.dispatch_behind_bytes == placed.sizes[0]
    assert pool.writer.log_end == placed.physical_offsets[0] + placed.sizes[0]
    assert new(pool) == [b"a"]
    is_durable = pool.writer._session.tail.log_durable_end == pool.writer.log_end
    assert is_durable == (flush == "sync")

    pool.writer.dispatch_pending()
    assert pool.writer.dispatch_behind_bytes == 0
    assert new(pool) == [b"a"]


def test_requests_that_wait_together_go_quickly_as_one_and_whole(pool: BrokerPool) -> None:
    stalled = Stalled(pool)
    jobs = [Job(records(b"%d" % n, b"%d+" % n, queue_id=n % 2)) for n in range(10)]
    stalled.submit(*jobs)
    stalled.go()

    assert stalled.commit.groups == 2
    ends = {0: 3, 1: 1}  # before them: "old" and "first"
    at = None
    for n, job in enumerate(jobs):
        assert isinstance(job.result, FewPlaces)
        start = ends[n % 2]
        assert job.result.queue_ids == [n % 2] * 2
        assert job.result.queue_offsets == [start, start + 1]
        first, second = job.result.physical_offsets
        assert at in (None, first)
        at = second + job.result.sizes[1]
        assert second == first + job.result.sizes[0]
        ends[n % 2] += 2
    assert bodies(pool, 1)[1:] == [t for n in range(1, 10, 2) for t in (b"%d" % n, b"%d+" % n)]
    assert pool.writer.dispatch_behind_bytes


def test_few_and_many_are_numbered_as_they_came(pool: BrokerPool) -> None:
    many = [b"%d" % n for n in range(MOST_RECORDS + 1)]

    before = send(pool, b"a")
    batch = send(pool, *many)
    behind = send(pool, b"b", b"c")

    placed = [[*before.queue_offsets], [*batch.queue_offsets], [*behind.queue_offsets]]
    assert placed == [[2], [*range(3, 68)], [68, 69]]
    assert (type(before), type(behind)) == (FewPlaces, FewPlaces)
    assert not isinstance(batch, FewPlaces)
    assert new(pool) == [b"a", *many, b"b", b"c"]


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_too_large_for_the_quick_way_goes_as_a_batch(tmp_path: Path, count: int) -> None:
    texts = [b"%d" % n + b"x" * (MOST_BYTES // count) for n in range(count)]
    large = BrokerPool.open(tmp_path / "store", StoreSettings(), create=True)
    with large.broker() as broker:
        broker.create_topic("t")
    small = [send(large, b"a"), send(large, b"b")]

    placed = send(large, *texts)

    assert isinstance(small[1], FewPlaces)
    assert not isinstance(placed, FewPlaces)
    assert bodies(large) == [b"a", b"b", *texts]
    large.close()


def test_what_reaches_a_new_file_of_the_log_lies_where_it_was_told(pool: BrokerPool) -> None:
    for number in range(9):
        texts = [b"%d" % number + b"x" * 9000, b"%d" % number]
        placed = send(pool, *texts)
        with pool.broker() as broker:
            found = [broker.reader.record_at(int(at)).body for at in placed.physical_offsets]
        assert found == texts


def test_a_disk_that_is_full_fails_each_that_waits_and_no_more(tmp_path: Path) -> None:
    files = FaultyFiles(Fault.FULL)
    pool = open_pool(tmp_path / "store", files)
    before = Job(records(b"before"))
    GroupCommit(pool, 1 << 20).append(before)
    stalled = Stalled(pool)
    jobs = [Job(records(b"%d" % n)) for n in range(3)]
    stalled.submit(*jobs)
    files._at = files.calls + 1

    stalled.go()

    assert [type(job.error) for job in jobs] == [DiskFullError] * 3
    assert [job.result for job in jobs] == [None] * 3
    files.heal()
    send(pool, b"behind")
    assert [text for text in new(pool) if text != b"first"] == [b"before", b"behind"]
    pool.close()
    assert check(tmp_path / "store") == []


def test_a_request_of_nothing_is_answered_with_nothing(pool: BrokerPool) -> None:
    assert [*send(pool).queue_offsets] == []
    assert pool.writer.dispatch_behind_bytes == 0


def test_a_topic_is_known_until_it_is_changed(pool: BrokerPool) -> None:
    commit = GroupCommit(pool, 1 << 20)
    commit.append(Job(records(b"a")))
    with pytest.raises(RequestError, match="queues 0 to 1"):
        commit.append(Job(records(b"b", queue_id=2)))
    with pool.broker() as broker:
        broker.add_queues("t", 3)
    commit.append(Job(records(b"b", queue_id=2)))
    with pool.broker() as broker:
        broker.delete_topic("t")
    with pytest.raises(TopicNotFoundError):
        commit.append(Job(records(b"c")))
    with pool.broker() as broker:
        broker.create_topic("t", queues=1)
    commit.append(Job(records(b"d")))
    with pytest.raises(RequestError, match="queues 0 to 0"):
        commit.append(Job(records(b"e", queue_id=1)))

    assert new(pool) == [b"d"]


def test_topics_changed_by_hand_are_seen_after_a_second(pool: BrokerPool) -> None:
    now = [0.0]
    known = KnownTopics(pool, lambda: now[0])
    known.require_queues("t", 0, 1)
    with pool.broker() as broker:
        path = broker.reader.root / TOPICS_FILE
    text = path.read_text()
    path.write_text(text.replace('"writeQueueNums":2', '"writeQueueNums":1'))
    assert path.read_text() != text

    known.require_queues("t", 1)
    now[0] = HOLDS_S
    with pytest.raises(RequestError, match="queues 0 to 0"):
        known.require_queues("t", 1)


@pytest.mark.parametrize("is_dispatched", [False, True])
def test_a_repeat_is_answered_while_the_first_is_pending_and_after(
    pool: BrokerPool, is_dispatched: bool
) -> None:
    dedup, commit = AppendDedup(pool), GroupCommit(pool, 1 << 20)
    sent = request(message(1), message(2))
    name = AppendName(b"client 16 bytes.", 7)

    def once(dedup: AppendDedup, number: int, instance: bytes) -> Appended:
        attempt = AppendAttempt(name, number, instance)
        return dedup.once(attempt, sent, lambda: commit.append(Job(sent)))

    first = once(dedup, 1, pool.instance)
    if is_dispatched:
        pool.writer.dispatch_pending()
    assert bool(pool.writer.dispatch_behind_bytes) != is_dispatched
    again = [once(dedup, 2, pool.instance), once(AppendDedup(pool), 2, b"another server..")]

    assert isinstance(first, FewPlaces)
    for each in again:
        assert [*each.queue_offsets] == first.queue_offsets
        assert [*each.physical_offsets] == first.physical_offsets
    assert new(pool) == [b"body 1", b"body 2"]


def test_a_server_that_was_killed_is_followed_by_one_that_has_all(
    pool: BrokerPool, tmp_path: Path
) -> None:
    sent = request(message(1))
    name = AppendName(b"client 16 bytes.", 7)
    first = AppendDedup(pool).once(
        AppendAttempt(name, 1, pool.instance),
        sent,
        lambda: GroupCommit(pool, 1 << 20).append(Job(sent)),
    )
    send(pool, b"a", b"b")
    assert pool.writer.dispatch_behind_bytes
    shutil.copytree(pool.writer.root, tmp_path / "killed")  # as a process leaves it that dies now

    next_one = BrokerPool.open(tmp_path / "killed", StoreSettings.load(SMALL))
    again = AppendDedup(next_one).once(
        AppendAttempt(name, 2, pool.instance), sent, lambda: pytest.fail("it was appended")
    )

    assert isinstance(first, FewPlaces)
    assert [*again.queue_offsets] == first.queue_offsets
    assert new(next_one) == [b"body 1", b"a", b"b"]
    next_one.close()
    assert check(tmp_path / "killed") == []


def test_those_who_wait_are_woken_and_followers_get_what_came(pool: BrokerPool) -> None:
    with pool.arrivals.watch([("t", 1)]) as other, pool.arrivals.follow(("t", 0)) as watch:
        placed = send(pool, b"a", b"b")

        assert watch.wait(0)
        assert not other.wait(0)
        [arrived] = pool.arrivals.arrived(("t", 0), placed.queue_offsets[0], 1 << 20)

    assert (arrived.start, arrived.end) == (2, 4)
    chunk = unpack(arrived.packed)
    assert chunk.offsets.tolist() == [2, 3]
    assert b"a" in chunk.records.tobytes()


def test_a_message_of_the_broker_itself_wakes_and_is_dispatched(pool: BrokerPool) -> None:
    told: list[None] = []
    pool.writer.on_pending = lambda: told.append(None)
    with pool.arrivals.follow(("t", 0)) as watch, pool.broker() as broker:
        at = broker.send("t", b"own", queue_id=0).queue_offset
        assert watch.wait(0)
        assert [each.end for each in pool.arrivals.arrived(("t", 0), at, 1 << 20)] == [at + 1]

    assert told == [None]


def test_64_senders_share_the_log_without_a_gap(pool: BrokerPool) -> None:
    commit = GroupCommit(pool, 1 << 24)
    told: list[tuple[int, int, bytes]] = []

    def sender(number: int) -> None:
        for turn in range(5):
            text = b"%d/%d" % (number, turn)
            placed = commit.append(Job(records(text, queue_id=number % 2)))
            told.append((int(placed.queue_ids[0]), int(placed.queue_offsets[0]), text))

    threads = [threading.Thread(target=sender, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for queue_id, start in ((0, 2), (1, 1)):
        own = sorted((offset, text) for queue, offset, text in told if queue == queue_id)
        assert [offset for offset, _ in own] == list(range(start, start + 160))
        assert [text for _, text in own] == bodies(pool, queue_id)[start:]


def test_the_answer_is_the_same_by_either_way(pool: BrokerPool) -> None:
    few = send(pool, b"a", b"bb", b"ccc")
    assert isinstance(few, FewPlaces)

    packed = pack_few_places(few)
    told = unpack_append_result(packed)

    assert packed == pack_append_result(told)
    assert told.physical_offsets.tolist() == few.physical_offsets
    assert told.queue_offsets.tolist() == few.queue_offsets
    assert told.sizes.tolist() == few.sizes
    assert told.queue_ids.tolist() == few.queue_ids
    assert unpack_append_result(pack_few_places(few.slice(0, 0))).sizes.tolist() == []
