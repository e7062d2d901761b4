"""Group commit: requests that wait together are one append; answers and refusals are each one's."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from broker_core.broker.admission.few import QueueDoor, admit_few
from broker_core.broker.admission.records import Records
from broker_core.broker.transactions.ownership import Permit
from broker_core.codec.compression import compress, compression_flags
from broker_core.codec.encode import encode
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.record import Record, encode_record
from broker_core.errors import (
    IllegalMessageError,
    PermissionDeniedError,
    RequestError,
    TopicNotFoundError,
    UnavailableError,
)
from broker_core.service import group_commit
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.group_commit import GroupCommit, Job
from broker_core.store.few_records import FewPlaces, FewRecords
from broker_core.store.settings import StoreSettings


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[BrokerPool]:
    opened = BrokerPool.open(tmp_path / "store", StoreSettings(), create=True)
    with opened.broker() as broker:
        broker.create_topic("t", queues=2)
    yield opened
    opened.close()


def records(*bodies: bytes, topic: str = "t", queue_id: int = 0) -> Records:
    encoded = encode(
        MessageBatch(
            topics=[topic],
            topic_codes=np.zeros(len(bodies), dtype=np.int32),
            queue_ids=np.full(len(bodies), queue_id, dtype=np.int32),
            bodies=pa.array(bodies, type=pa.binary()),
            properties=pa.array([b""] * len(bodies), type=pa.binary()),
        )
    )
    return Records(encoded.buffer, encoded.sizes)


class Stalled:
    """A group commit whose first append waits until it is let go: the others pile up behind it."""

    def __init__(self, pool: BrokerPool) -> None:
        self.commit = GroupCommit(pool, max_bytes=1 << 20)
        self._began, self._go = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        first = Job(records(b"first"), permit=self._stall)
        self.submit(first)
        assert self._began.wait(30)

    def _stall(self, topics: object) -> None:
        self._began.set()
        assert self._go.wait(30)

    def submit(self, *jobs: Job) -> None:
        """Let each job be appended by a thread of its own, in this order."""
        for job in jobs:
            waiting = len(self.commit._queue)
            thread = threading.Thread(target=self._append, args=(job,))
            thread.start()
            self._threads.append(thread)
            while len(self._threads) > 1 and len(self.commit._queue) == waiting:
                pass

    def _append(self, job: Job) -> None:
        try:
            self.commit.append(job)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            assert job.error is error  # noqa: PT017 - told to whoever asked

    def go(self) -> None:
        """Let the first one go on, and wait until all have their answers."""
        self._go.set()
        for thread in self._threads:
            thread.join(30)


def bodies(pool: BrokerPool, queue_id: int = 0) -> list[bytes]:
    with pool.broker() as broker:
        found: list[bytes] = broker.read("t", queue_id=queue_id).column("body").to_pylist()
        return found


def test_requests_that_wait_together_are_one_append(pool: BrokerPool) -> None:
    stalled = Stalled(pool)
    jobs = [Job(records(b"%d" % n, b"%d+" % n, queue_id=n % 2)) for n in range(10)]

    stalled.submit(*jobs)
    stalled.go()

    assert stalled.commit.groups == 2
    assert stalled.commit.requests == 11
    assert bodies(pool, 1) == [text for n in range(1, 10, 2) for text in (b"%d" % n, b"%d+" % n)]
    placed = [list(job.result.queue_offsets) for job in jobs[1::2] if job.result]
    assert placed == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_one_that_is_refused_does_not_harm_the_others(pool: BrokerPool) -> None:
    stalled = Stalled(pool)

    def deny(topics: object) -> None:
        raise PermissionDeniedError("no")

    bad = [
        Job(records(b"x", topic="nope")),
        Job(records(b"x", queue_id=2)),
        Job(records(b"x"), permit=deny),
    ]
    good = [Job(records(b"a")), Job(records(b"b"))]

    stalled.submit(good[0], *bad, good[1])
    stalled.go()

    assert bodies(pool) == [b"first", b"a", b"b"]
    assert [type(job.error) for job in bad] == [
        TopicNotFoundError,
        RequestError,
        PermissionDeniedError,
    ]
    assert [job.error for job in good] == [None, None]


@pytest.mark.parametrize("place", range(3))
def test_a_request_that_ends_in_a_bug_does_not_harm_the_others(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    stalled = Stalled(pool)

    def fails_for_one(
        door: QueueDoor, requests: Sequence[Records], permits: Sequence[Permit | None]
    ) -> FewRecords | None:
        if any(b"odd" in request.data.tobytes() for request in requests):
            raise IndexError
        return admit_few(door, requests, permits)

    monkeypatch.setattr(group_commit, "admit_few", fails_for_one)
    odd = Job(records(b"odd"))
    jobs = [Job(records(b"a")), Job(records(b"b"))]
    jobs.insert(place, odd)

    stalled.submit(*jobs)
    stalled.go()

    assert isinstance(odd.error, IndexError)
    assert bodies(pool) == [b"first", b"a", b"b"]


def test_one_sync_request_makes_its_group_durable(pool: BrokerPool) -> None:
    seen = []
    append = pool.writer.append_quickly

    def watched(few: FewRecords, *, is_sync: bool) -> FewPlaces | None:
        seen.append(is_sync)
        return append(few, is_sync=is_sync)

    pool.writer.append_quickly = watched  # type: ignore[method-assign]  # to see the flush mode
    stalled = Stalled(pool)

    stalled.submit(Job(records(b"a")), Job(records(b"b"), flush="sync"), Job(records(b"c")))
    stalled.go()

    assert seen == [False, True]


def test_a_request_whose_time_is_over_is_not_begun(pool: BrokerPool) -> None:
    now = [100.0]
    commit = GroupCommit(pool, max_bytes=1 << 20, monotonic=lambda: now[0])

    with pytest.raises(UnavailableError, match="Nothing was written"):
        commit.append(Job(records(b"late"), deadline_s=99.0))
    assert bodies(pool) == []


def test_room_is_bounded_and_given_back(pool: BrokerPool) -> None:
    commit = GroupCommit(pool, max_bytes=100, monotonic=lambda: 0.0)

    with commit.room(80, None):
        with pytest.raises(UnavailableError, match="80 bytes"), commit.room(30, 0.0):
            pass
        with commit.room(20, 0.0):
            pass
    with commit.room(500, 0.0):  # alone, even what is larger than the room gets through
        pass


def test_a_large_request_is_checked_while_another_is_being_appended(pool: BrokerPool) -> None:
    stalled = Stalled(pool)

    with pytest.raises(TopicNotFoundError):
        stalled.commit.append(Job(records(*[b"x"] * 100, topic="nope")))

    stalled.go()
    assert bodies(pool) == [b"first"]


def test_compressed_bodies_are_checked_while_another_is_being_appended(pool: BrokerPool) -> None:
    stalled = Stalled(pool)
    flags = compression_flags("zstd")
    plain = Record("t", 0, 0, 0, b"plain")
    torn = replace(plain, body=compress(bytes(9999), "zstd")[:-1], sys_flag=flags)
    raw = [encode_record(plain), encode_record(torn)]
    sizes = np.array([len(each) for each in raw], dtype=np.int32)

    with pytest.raises(IllegalMessageError, match="Message 1 of the request can't be read"):
        stalled.commit.append(Job(Records(np.frombuffer(b"".join(raw), dtype=np.uint8), sizes)))

    stalled.go()
    assert bodies(pool) == [b"first"]


def test_large_and_small_requests_of_one_group_get_their_own_places(pool: BrokerPool) -> None:
    stalled = Stalled(pool)
    many = [[b"%d-%d" % (n, row) for row in range(100)] for n in range(2)]
    jobs = [
        Job(records(b"a")),
        Job(records(*many[0])),
        Job(records(b"b", queue_id=1)),
        Job(records(*many[1])),
        Job(records(b"c")),
    ]

    stalled.submit(*jobs)
    stalled.go()

    assert stalled.commit.groups == 2
    sent = [[b"a"], many[0], [b"b"], many[1], [b"c"]]
    for job, texts in zip(jobs, sent, strict=True):
        assert job.result is not None
        found = bodies(pool, int(job.result.queue_ids[0]))
        assert [found[offset] for offset in job.result.queue_offsets] == texts
    assert len(bodies(pool)) == 1 + 2 + 200
