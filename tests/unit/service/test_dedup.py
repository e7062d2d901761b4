"""Repeats: an append that is asked for again is done once, also by another server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.codec.record import Record
from broker_core.errors import UnavailableError
from broker_core.service.admission import Records
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.dedup import AppendAttempt, AppendDedup, RequestName
from broker_core.service.group_commit import GroupCommit, Job
from broker_core.store.settings import StoreSettings
from broker_core.types import AppendResult
from tests.unit.service.test_admission import request

NAME = RequestName(b"client 16 bytes.", 7)


def message(number: int, *, unique: bool = True) -> Record:
    text = f"UNIQ_KEY\x01{number:032X}\x02".encode() if unique else b""
    return Record("t", 0, 0, 0, b"body %d" % number, text, born_timestamp=number)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def core(root: Path) -> Iterator[BrokerPool]:
    opened = open_core(root)
    with opened.broker() as broker:
        broker.create_topic("t", queues=1)
    yield opened
    if not opened._is_closed:
        opened.close()


def open_core(root: Path) -> BrokerPool:
    settings = StoreSettings.load({"maxHashSlotNum": 1000, "maxIndexNum": 4000})
    return BrokerPool.open(root, settings, create=True)


def append(
    repeats: AppendDedup, core: BrokerPool, attempt: AppendAttempt, records: Records
) -> AppendResult:
    commit = GroupCommit(core, 1 << 20)
    return repeats.once(attempt, records, lambda: commit.append(Job(records)))


def bodies(core: BrokerPool) -> list[bytes]:
    with core.broker() as broker:
        found: list[bytes] = broker.read("t").column("body").to_pylist()
        return found


def same(one: AppendResult, other: AppendResult) -> bool:
    return (
        one.queue_ids.tolist() == other.queue_ids.tolist()
        and one.queue_offsets.tolist() == other.queue_offsets.tolist()
        and one.physical_offsets.tolist() == other.physical_offsets.tolist()
        and one.sizes.tolist() == other.sizes.tolist()
        and one.store_timestamp_ms == other.store_timestamp_ms
    )


@pytest.mark.parametrize("unique", [True, False])
def test_a_repeat_gets_the_first_ones_answer(core: BrokerPool, unique: bool) -> None:
    repeats = AppendDedup(core)
    records = request(message(1, unique=unique), message(2, unique=unique))
    first = append(repeats, core, AppendAttempt(NAME, 1, core.instance), records)

    again = append(repeats, core, AppendAttempt(NAME, 2, core.instance), records)

    assert same(first, again)
    assert bodies(core) == [b"body 1", b"body 2"]


def test_a_repeat_of_what_never_came_is_done(core: BrokerPool) -> None:
    repeats = AppendDedup(core)

    append(repeats, core, AppendAttempt(NAME, 3, core.instance), request(message(1, unique=False)))

    assert bodies(core) == [b"body 1"]


def test_another_server_finds_in_the_log_what_the_first_one_did(
    core: BrokerPool, root: Path
) -> None:
    records = request(message(1), message(2))
    append(
        AppendDedup(core),
        core,
        AppendAttempt(RequestName(NAME.client, 1), 1, b""),
        request(message(0)),
    )
    first = append(AppendDedup(core), core, AppendAttempt(NAME, 1, core.instance), records)
    was = core.instance
    core.close()
    restarted = open_core(root)

    again = append(AppendDedup(restarted), restarted, AppendAttempt(NAME, 2, was), records)

    assert same(first, again)
    assert bodies(restarted) == [b"body 0", b"body 1", b"body 2"]
    restarted.close()


def test_another_server_does_what_the_first_one_did_not(core: BrokerPool, root: Path) -> None:
    was = core.instance
    core.close()
    restarted = open_core(root)

    append(AppendDedup(restarted), restarted, AppendAttempt(NAME, 2, was), request(message(1)))

    assert bodies(restarted) == [b"body 1"]
    restarted.close()


def test_what_can_not_be_told_is_not_done_twice(core: BrokerPool) -> None:
    records = request(message(1, unique=False))

    with pytest.raises(UnavailableError, match="no unique keys"):
        append(AppendDedup(core), core, AppendAttempt(NAME, 2, b"another server.."), records)
    assert bodies(core) == []


def test_the_window_is_bounded(core: BrokerPool) -> None:
    repeats = AppendDedup(core, window=2)
    for number in range(5):
        name = RequestName(NAME.client, number)
        append(repeats, core, AppendAttempt(name, 1, core.instance), request(message(number)))

    assert list(repeats._done) == [RequestName(NAME.client, 3), RequestName(NAME.client, 4)]


def test_a_repeat_waits_for_the_first_one_under_way(core: BrokerPool) -> None:
    repeats, commit = AppendDedup(core), GroupCommit(core, 1 << 20)
    records = request(message(1))
    began, go = threading.Event(), threading.Event()
    answers: list[AppendResult] = []

    def slowly() -> AppendResult:
        began.set()
        assert go.wait(30)
        return commit.append(Job(records))

    attempt = AppendAttempt(NAME, 1, core.instance)
    thread = threading.Thread(target=lambda: answers.append(repeats.once(attempt, records, slowly)))
    thread.start()
    assert began.wait(30)

    with pytest.raises(UnavailableError, match="still under way"):
        repeats.once(attempt._replace(number=2), records, slowly, wait_s=0)
    go.set()
    answers.append(repeats.once(attempt._replace(number=3), records, slowly))
    thread.join(30)

    assert same(*answers)
    assert bodies(core) == [b"body 1"]


def test_a_failed_append_may_be_tried_again(core: BrokerPool) -> None:
    repeats = AppendDedup(core)
    records = request(message(1))

    def fail() -> AppendResult:
        raise UnavailableError("busy")

    with pytest.raises(UnavailableError, match="busy"):
        repeats.once(AppendAttempt(NAME, 1, core.instance), records, fail)
    append(repeats, core, AppendAttempt(NAME, 2, core.instance), records)

    assert bodies(core) == [b"body 1"]


def test_an_answer_read_from_the_log_spans_segments(root: Path) -> None:
    settings = StoreSettings.load({"mappedFileSizeCommitLog": 4096})
    small = BrokerPool.open(root, settings, create=True)
    with small.broker() as broker:
        broker.create_topic("t", queues=1)
    repeats = AppendDedup(small)
    records = request(*[message(number) for number in range(100)])
    first = append(repeats, small, AppendAttempt(NAME, 1, small.instance), records)

    again = append(repeats, small, AppendAttempt(NAME, 2, small.instance), records)

    assert same(first, again)
    assert int(first.physical_offsets[-1]) > 4096
    small.close()
