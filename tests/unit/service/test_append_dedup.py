"""Repeats: an append that is asked for again is done once, also by another server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.broker.admission.records import Records
from broker_core.codec.record import Record
from broker_core.errors import PermissionDeniedError, RequestError, UnavailableError
from broker_core.service import append_dedup
from broker_core.service.append_dedup import AppendAttempt, AppendDedup, AppendName
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.group_commit import Appended, GroupCommit, Job
from broker_core.store.settings import StoreSettings
from tests.unit.broker.admission.test_records import request

NAME = AppendName(b"client 16 bytes.", 7)


def message(number: int, *, unique: bool = True) -> Record:
    text = f"UNIQ_KEY\x01{number:032X}\x02".encode() if unique else b""
    return Record("t", 0, 0, 0, b"body %d" % number, text, born_timestamp=number)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def pool(root: Path) -> Iterator[BrokerPool]:
    opened = open_pool(root)
    with opened.broker() as broker:
        broker.create_topic("t", queues=1)
    yield opened
    if not opened._is_closed:
        opened.close()


def open_pool(root: Path) -> BrokerPool:
    settings = StoreSettings.load({"maxHashSlotNum": 1000, "maxIndexNum": 4000})
    return BrokerPool.open(root, settings, create=True)


def append(
    dedup: AppendDedup, pool: BrokerPool, attempt: AppendAttempt, records: Records
) -> Appended:
    commit = GroupCommit(pool, 1 << 20)
    return dedup.once(attempt, records, lambda: commit.append(Job(records)))


def bodies(pool: BrokerPool) -> list[bytes]:
    with pool.broker() as broker:
        found: list[bytes] = broker.read("t").column("body").to_pylist()
        return found


def same(one: Appended, other: Appended) -> bool:
    return (
        list(one.queue_ids) == list(other.queue_ids)
        and list(one.queue_offsets) == list(other.queue_offsets)
        and list(one.physical_offsets) == list(other.physical_offsets)
        and list(one.sizes) == list(other.sizes)
        and one.store_timestamp_ms == other.store_timestamp_ms
    )


@pytest.mark.parametrize("unique", [True, False])
def test_a_repeat_gets_the_first_ones_answer(pool: BrokerPool, unique: bool) -> None:
    dedup = AppendDedup(pool)
    records = request(message(1, unique=unique), message(2, unique=unique))
    first = append(dedup, pool, AppendAttempt(NAME, 1, pool.instance), records)

    again = append(dedup, pool, AppendAttempt(NAME, 2, pool.instance), records)

    assert same(first, again)
    assert bodies(pool) == [b"body 1", b"body 2"]


def test_a_retry_is_not_answered_with_what_others_sent(pool: BrokerPool) -> None:
    dedup = AppendDedup(pool)
    append(dedup, pool, AppendAttempt(NAME, 1, b""), request(message(1)))
    append(dedup, pool, AppendAttempt(AppendName(b"o" * 16, 1), 1, b""), request(message(2)))
    other = AppendName(b"x" * 16, 1)

    with pytest.raises(RequestError, match="others than it sends"):
        append(dedup, pool, AppendAttempt(other, 2, b""), request(message(1), message(3)))
    with pytest.raises(RequestError, match="no record"):
        append(dedup, pool, AppendAttempt(other, 2, b""), request(b"x" * 200))

    assert bodies(pool) == [b"body 1", b"body 2"]


def test_a_retry_is_answered_only_with_the_right_to_publish(pool: BrokerPool) -> None:
    dedup = AppendDedup(pool)
    sent = request(message(1))
    append(dedup, pool, AppendAttempt(NAME, 1, b""), sent)
    asked = []

    def deny(topics: object) -> None:
        asked.append(topics)
        raise PermissionDeniedError("no")

    with pytest.raises(PermissionDeniedError):
        dedup.once(
            AppendAttempt(AppendName(b"x" * 16, 1), 2, b""),
            sent,
            lambda: pytest.fail("it was appended"),
            permit=deny,
        )

    assert asked == [{"t"}]


def test_a_repeat_of_what_never_came_is_done(pool: BrokerPool) -> None:
    dedup = AppendDedup(pool)

    append(dedup, pool, AppendAttempt(NAME, 3, pool.instance), request(message(1, unique=False)))

    assert bodies(pool) == [b"body 1"]


def test_another_server_finds_in_the_log_what_the_first_one_did(
    pool: BrokerPool, root: Path
) -> None:
    records = request(message(1), message(2))
    append(
        AppendDedup(pool),
        pool,
        AppendAttempt(AppendName(NAME.client, 1), 1, b""),
        request(message(0)),
    )
    first = append(AppendDedup(pool), pool, AppendAttempt(NAME, 1, pool.instance), records)
    was = pool.instance
    pool.close()
    restarted = open_pool(root)

    again = append(AppendDedup(restarted), restarted, AppendAttempt(NAME, 2, was), records)

    assert same(first, again)
    assert bodies(restarted) == [b"body 0", b"body 1", b"body 2"]
    restarted.close()


def test_another_server_does_what_the_first_one_did_not(pool: BrokerPool, root: Path) -> None:
    was = pool.instance
    pool.close()
    restarted = open_pool(root)

    append(AppendDedup(restarted), restarted, AppendAttempt(NAME, 2, was), request(message(1)))

    assert bodies(restarted) == [b"body 1"]
    restarted.close()


def test_what_can_not_be_told_is_not_done_twice(pool: BrokerPool) -> None:
    records = request(message(1, unique=False))

    with pytest.raises(UnavailableError, match="no unique keys"):
        append(AppendDedup(pool), pool, AppendAttempt(NAME, 2, b"another server.."), records)
    assert bodies(pool) == []


def others(pool: BrokerPool, count: int, text: bytes) -> None:
    """Append other messages, each with the properties given."""
    records = [Record("t", 0, 0, 0, b"noise", text, born_timestamp=5) for _ in range(count)]
    GroupCommit(pool, 1 << 20).append(Job(request(*records)))


@pytest.mark.parametrize("how", ["same key", "equal hash"])
def test_a_retry_is_found_behind_newer_messages_of_the_same_hash(
    pool: BrokerPool, how: str
) -> None:
    mine = Record("t", 0, 0, 0, b"once", b"UNIQ_KEY\x01Aa\x02", born_timestamp=1)
    first = append(AppendDedup(pool), pool, AppendAttempt(NAME, 1, b""), request(mine))
    others(pool, 100, b"UNIQ_KEY\x01Aa\x02" if how == "same key" else b"KEYS\x01BB\x02")

    again = append(AppendDedup(pool), pool, AppendAttempt(NAME, 2, b"gone"), request(mine))

    assert same(first, again)
    assert bodies(pool).count(b"once") == 1


def test_a_retry_is_found_behind_a_copy_of_its_first_message(pool: BrokerPool) -> None:
    mine = request(message(1), message(2))
    first = append(AppendDedup(pool), pool, AppendAttempt(NAME, 1, b""), mine)
    GroupCommit(pool, 1 << 20).append(Job(request(message(1))))

    again = append(AppendDedup(pool), pool, AppendAttempt(NAME, 2, b"gone"), mine)

    assert same(first, again)


def test_a_retry_among_too_many_of_its_hash_is_refused(
    pool: BrokerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_dedup, "MOST_CANDIDATES", 20)
    others(pool, 20, b"UNIQ_KEY\x01Aa\x02")
    mine = request(Record("t", 0, 0, 0, b"new", b"UNIQ_KEY\x01Aa\x02", born_timestamp=1))
    append(AppendDedup(pool), pool, AppendAttempt(NAME, 2, b"gone"), mine)
    other = request(Record("t", 0, 0, 0, b"newer", b"UNIQ_KEY\x01Aa\x02", born_timestamp=1))

    with pytest.raises(UnavailableError, match="more than 20 messages have their key"):
        append(AppendDedup(pool), pool, AppendAttempt(NAME, 2, b"gone"), other)

    assert bodies(pool) == [b"noise"] * 20 + [b"new"]


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("between", [0, 1, 2, 3, 7])
def test_a_repeat_is_never_done_twice_however_many_appends_lie_between(
    pool: BrokerPool, between: int, unique: bool
) -> None:
    """The window is 2: own appends around and beyond it, and others' of any number, between."""
    dedup = AppendDedup(pool, client_window=2, user_window=4)
    records = request(message(1, unique=unique))
    first = append(dedup, pool, AppendAttempt(NAME, 1, pool.instance), records)
    for number in range(between):
        name = AppendName(NAME.client, 8 + number)
        sent = request(message(8 + number))
        append(dedup, pool, AppendAttempt(name, 1, pool.instance), sent)
    held = bodies(pool)

    attempt = AppendAttempt(NAME, 2, pool.instance)
    if unique or between < 2:
        assert same(first, append(dedup, pool, attempt, records))
    else:
        with pytest.raises(UnavailableError, match="can't be told"):
            append(dedup, pool, attempt, records)
    assert bodies(pool) == held


@pytest.mark.parametrize("user", ["same", "other"])
def test_other_clients_do_not_push_out_an_append(pool: BrokerPool, user: str) -> None:
    """A client's window is its own; one user's clients share a limit, other users' do not."""
    dedup = AppendDedup(pool, client_window=2, user_window=3)
    commit = GroupCommit(pool, 1 << 20)

    def once(attempt: AppendAttempt, records: Records, user: str) -> Appended:
        return dedup.once(attempt, records, lambda: commit.append(Job(records)), user=user)

    mine = request(message(1, unique=False))
    first = once(AppendAttempt(NAME, 1, pool.instance), mine, "same")
    clients = 1 if user == "same" else 5
    for number in range(20):
        name = AppendName(b"%16d" % (number % clients), number)
        sent = request(message(100 + number))
        once(AppendAttempt(name, 1, pool.instance), sent, user)

    again = once(AppendAttempt(NAME, 2, pool.instance), mine, "same")

    assert same(first, again)


def test_a_client_that_was_forgotten_is_not_taken_for_a_new_one(pool: BrokerPool) -> None:
    dedup = AppendDedup(pool, client_window=2, user_window=2)
    mine = request(message(1, unique=False))
    append(dedup, pool, AppendAttempt(NAME, 1, pool.instance), mine)
    for number in range(3):
        name = AppendName(b"%16d" % number, 1)
        append(dedup, pool, AppendAttempt(name, 1, pool.instance), request(message(9 + number)))
    held = bodies(pool)
    earlier = AppendName(NAME.client, NAME.sequence - 1)
    append(dedup, pool, AppendAttempt(earlier, 2, pool.instance), request(message(50)))

    with pytest.raises(UnavailableError, match="can't be told"):
        append(dedup, pool, AppendAttempt(NAME, 2, pool.instance), mine)
    assert bodies(pool) == [*held, b"body 50"]


def test_a_name_is_one_users(pool: BrokerPool) -> None:
    dedup, commit = AppendDedup(pool), GroupCommit(pool, 1 << 20)
    records = request(message(1))
    attempt = AppendAttempt(NAME, 1, pool.instance)
    for user in ("one", "two"):
        dedup.once(attempt, records, lambda: commit.append(Job(records)), user=user)

    assert bodies(pool) == [b"body 1"] * 2


def test_the_window_is_bounded(pool: BrokerPool) -> None:
    dedup = AppendDedup(pool, client_window=2, user_window=6)
    for client in range(9):
        for number in range(5):
            name = AppendName(b"%16d" % client, number)
            append(dedup, pool, AppendAttempt(name, 1, pool.instance), request(message(number)))

    clients = dedup._done[""]._clients
    assert list(clients) == [b"%16d" % client for client in (6, 7, 8)]
    assert all(list(window.done) == [3, 4] for window in clients.values())


def test_a_repeat_waits_for_the_first_one_under_way(pool: BrokerPool) -> None:
    dedup, commit = AppendDedup(pool), GroupCommit(pool, 1 << 20)
    records = request(message(1))
    began, go = threading.Event(), threading.Event()
    answers: list[Appended] = []

    def slowly() -> Appended:
        began.set()
        assert go.wait(30)
        return commit.append(Job(records))

    attempt = AppendAttempt(NAME, 1, pool.instance)
    thread = threading.Thread(target=lambda: answers.append(dedup.once(attempt, records, slowly)))
    thread.start()
    assert began.wait(30)

    with pytest.raises(UnavailableError, match="still under way"):
        dedup.once(attempt._replace(number=2), records, slowly, wait_s=0)
    go.set()
    answers.append(dedup.once(attempt._replace(number=3), records, slowly))
    thread.join(30)

    assert same(*answers)
    assert bodies(pool) == [b"body 1"]


def test_a_failed_append_may_be_tried_again(pool: BrokerPool) -> None:
    dedup = AppendDedup(pool)
    records = request(message(1))

    def fail() -> Appended:
        raise UnavailableError("busy")

    with pytest.raises(UnavailableError, match="busy"):
        dedup.once(AppendAttempt(NAME, 1, pool.instance), records, fail)
    append(dedup, pool, AppendAttempt(NAME, 2, pool.instance), records)

    assert bodies(pool) == [b"body 1"]


def test_an_answer_read_from_the_log_spans_segments(root: Path) -> None:
    settings = StoreSettings.load({"mappedFileSizeCommitLog": 4096})
    small = BrokerPool.open(root, settings, create=True)
    with small.broker() as broker:
        broker.create_topic("t", queues=1)
    dedup = AppendDedup(small)
    records = request(*[message(number) for number in range(100)])
    first = append(dedup, small, AppendAttempt(NAME, 1, small.instance), records)

    again = append(dedup, small, AppendAttempt(NAME, 2, small.instance), records)

    assert same(first, again)
    assert int(first.physical_offsets[-1]) > 4096
    small.close()
