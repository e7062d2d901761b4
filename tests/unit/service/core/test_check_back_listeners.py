"""Questions of check-back: heard by those whom they concern, and asked before anything is lost."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import pytest

from broker_core.broker.transactions.ownership import Caller
from broker_core.codec.record import Record
from broker_core.errors import OffsetRangeError
from broker_core.service.auth.method_rules import caller_of
from broker_core.service.auth.user_rights import Right, Rule, UserIdentity
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.core import transactions
from broker_core.service.core.rpc import Call
from broker_core.service.core.transactions import CheckBackListeners
from broker_core.store.reader import StoreReader
from broker_core.store.settings import StoreSettings
from broker_core.types import BatchRef, LocalTransactionState
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.transactions import unpack_half
from tests.kit.raw_calls import wait_until
from tests.kit.transactions import ManualClock, open_store, prepare, visible


def user(name: str, **rights: str) -> UserIdentity:
    """A user with some rights, each on a pattern of topics."""
    rules = [Rule(pattern, frozenset({Right(right)})) for right, pattern in rights.items()]
    return UserIdentity(name, tuple(rules))


OWNER = user("owner", publish="orders*", subscribe="orders*")
USERS = {
    "owner": OWNER,
    "neighbour": user("neighbour", publish="*"),
    "stranger": user("stranger", publish="mal*"),
    "reader": user("reader", subscribe="*"),
}
ADMIN = user("admin", admin="*")
CHECKS, INTERVAL_MS = 3, 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(tmp_path: Path, clock: ManualClock) -> Iterator[BrokerPool]:
    settings = StoreSettings.load(
        {
            "transactionTimeOut": 0,
            "transactionCheckMax": CHECKS,
            "transactionCheckInterval": INTERVAL_MS,
        }
    )
    opened = BrokerPool.open(tmp_path / "store", settings, create=True, clock_ms=clock)
    with opened.broker() as broker:
        broker.create_topic("orders", queues=1)
        broker.create_topic("t", queues=2)
    yield opened
    opened.close()


class FakeCall:
    """A Listen call of a user, without a network."""

    recheck_s = 0.01

    def __init__(self, identity: UserIdentity) -> None:
        self.identity = identity
        self.is_active = True

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def when_over(self, callback: Callable[[], None]) -> None:
        del callback

    def require_still(self) -> None:
        pass


class Listening:
    """A listener in a thread: keeps what it hears, and may answer."""

    def __init__(
        self,
        listeners: CheckBackListeners,
        identity: UserIdentity,
        answer: Callable[[pb.Question], object] = lambda _: None,
        group: str = "g",
    ) -> None:
        self.heard: list[bytes] = []
        self._call = FakeCall(identity)
        self._answer = answer
        before = sum(map(len, listeners._listeners.values()))
        self._questions = listeners.listen(group, cast("Call", self._call))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_until(lambda: sum(map(len, listeners._listeners.values())) > before, "listening")

    def _run(self) -> None:
        for question in self._questions:
            self._answer(question)
            self.heard.append(question.body)

    def become(self, identity: UserIdentity) -> None:
        """Let the user have other rights, as a changed credentials file does."""
        self._call.identity = identity

    def end(self) -> None:
        self._call.is_active = False
        self._thread.join(30)


def open_halves(pool: BrokerPool, count: int, *, group: str = "g") -> list[bytes]:
    """Half messages that the owner has prepared and not ended."""
    bodies = [f"secret-{number}".encode() for number in range(count)]
    with pool.broker() as broker:
        own = broker.transactions.asked_by(caller_of(OWNER))
        for body in bodies:
            own.prepare("orders", body, group=group)
    return bodies


@pytest.mark.parametrize("order", list(permutations(USERS))[::3], ids="-".join)
def test_only_who_prepared_a_message_is_asked_about_it(
    pool: BrokerPool, clock: ManualClock, order: tuple[str, ...]
) -> None:
    listeners = CheckBackListeners(pool)
    listening = {name: Listening(listeners, USERS[name]) for name in order}
    more = Listening(listeners, USERS["neighbour"])
    try:
        bodies = open_halves(pool, 5)
        clock.advance(1)
        report = listeners.check_back()
        wait_until(lambda: len(listening["owner"].heard) == 5, "questions")
    finally:
        for each in (*listening.values(), more):
            each.end()

    assert report.asked == 5
    assert sorted(listening["owner"].heard) == bodies
    assert not more.heard
    assert all(not listening[name].heard for name in order if name != "owner")


def test_an_administrator_may_answer_for_others(pool: BrokerPool, clock: ManualClock) -> None:
    listeners = CheckBackListeners(pool)
    admin = Listening(listeners, ADMIN)
    try:
        bodies = open_halves(pool, 2)
        clock.advance(1)
        listeners.check_back()
        wait_until(lambda: len(admin.heard) == 2, "questions")
    finally:
        admin.end()

    assert sorted(admin.heard) == bodies


def test_a_check_that_reaches_nobody_does_not_count(pool: BrokerPool, clock: ManualClock) -> None:
    listeners = CheckBackListeners(pool)
    bodies = open_halves(pool, 2)
    for _ in range(CHECKS * 4):
        clock.advance(INTERVAL_MS)
        report = listeners.check_back()
        assert (report.waiting, report.asked, report.given_up) == (2, 0, 0)

    def commit(question: pb.Question) -> None:
        with pool.broker() as broker:
            own = broker.transactions.asked_by(caller_of(OWNER))
            own.end(unpack_half(question.half), LocalTransactionState.COMMIT)

    owner = Listening(listeners, OWNER, commit)
    try:
        listeners.check_back()
        wait_until(lambda: len(owner.heard) == 2, "questions")
    finally:
        owner.end()

    with pool.broker() as broker:
        assert sorted(visible(broker, "orders")) == bodies


def test_listeners_of_several_topics_are_asked_about_as_much_as_they_take(
    pool: BrokerPool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check counts only if its question has a place, whoever else needs the same listener."""
    monkeypatch.setattr(transactions, "ASKED_AHEAD", 8)
    topics = [f"orders-{number}" for number in range(3)]
    with pool.broker() as broker:
        own = broker.transactions.asked_by(caller_of(OWNER))
        for topic in topics:
            broker.create_topic(topic, queues=1)
            for number in range(6):
                own.prepare(topic, f"{topic}/{number}".encode(), group="g")
    listeners = CheckBackListeners(pool)
    may_go_on = threading.Event()
    owner = Listening(listeners, OWNER, lambda _: may_go_on.wait(30))
    try:
        clock.advance(1)
        report = listeners.check_back()
        may_go_on.set()
        wait_until(lambda: len(owner.heard) == report.asked, "questions")
    finally:
        may_go_on.set()
        owner.end()

    assert report.asked == 8
    # None of the three is left without.
    assert {body.split(b"/")[0].decode() for body in owner.heard} == set(topics)


def test_questions_that_nobody_takes_keep_no_bodies_in_memory(
    pool: BrokerPool, clock: ManualClock
) -> None:
    listeners = CheckBackListeners(pool)
    bodies = [bytes([number]) * (1 << 18) for number in range(8)]
    with pool.broker() as broker:
        own = broker.transactions.asked_by(caller_of(OWNER))
        for body in bodies:
            own.prepare("orders", body, group="g")
    may_go_on = threading.Event()
    owner = Listening(listeners, OWNER, lambda _: may_go_on.wait(30))
    try:
        clock.advance(1)
        report = listeners.check_back()
        (listener,) = listeners._listeners["g"]
        held_bytes = len(pickle.dumps(list(listener.questions.queue)))
        may_go_on.set()
        wait_until(lambda: len(owner.heard) == report.asked, "questions")
    finally:
        may_go_on.set()
        owner.end()

    assert report.asked == len(bodies)
    assert held_bytes < 4096
    assert sorted(owner.heard) == bodies


def test_questions_that_wait_are_dropped_once_a_rule_is_narrowed(
    pool: BrokerPool, clock: ManualClock
) -> None:
    with pool.broker() as broker:
        broker.create_topic("orders-eu", queues=1)
        own = broker.transactions.asked_by(caller_of(OWNER))
        for number in range(4):
            own.prepare("orders", f"orders-{number}".encode(), group="g")
            own.prepare("orders-eu", f"eu-{number}".encode(), group="g")
    listeners = CheckBackListeners(pool)
    may_go_on = threading.Event()
    owner = Listening(listeners, OWNER, lambda _: may_go_on.wait(30))
    try:
        clock.advance(1)
        assert listeners.check_back().asked == 8
        # The first question is with the client; the others wait.
        owner.become(user("owner", publish="orders-eu"))
        may_go_on.set()
        wait_until(lambda: b"eu-3" in owner.heard, "questions")
    finally:
        may_go_on.set()
        owner.end()

    assert [body for body in owner.heard[1:] if not body.startswith(b"eu")] == []


def test_a_question_about_what_has_left_the_log_is_passed_over(
    pool: BrokerPool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners = CheckBackListeners(pool)
    open_halves(pool, 3)
    may_go_on = threading.Event()
    owner = Listening(listeners, OWNER, lambda _: may_go_on.wait(30))
    try:
        clock.advance(1)
        listeners.check_back()
        read = StoreReader.record_at
        gone: list[int] = []

        def record_at(reader: StoreReader, offset: int) -> Record:
            if not gone:
                gone.append(offset)
                raise OffsetRangeError("gone")
            return read(reader, offset)

        monkeypatch.setattr(StoreReader, "record_at", record_at)
        may_go_on.set()
        wait_until(lambda: len(owner.heard) == 2, "questions")
    finally:
        may_go_on.set()
        owner.end()

    assert len(gone) == 1
    assert b"secret-2" in owner.heard


@pytest.mark.parametrize("committers", [1, 8])
def test_commits_of_batches_leave_check_back_to_the_servers_clock(
    pool: BrokerPool, clock: ManualClock, committers: int
) -> None:
    listeners = CheckBackListeners(pool)

    def commit(question: pb.Question) -> None:
        with pool.broker() as broker:
            own = broker.transactions.asked_by(caller_of(OWNER))
            own.end(unpack_half(question.half), LocalTransactionState.COMMIT)

    def write(number: int) -> None:
        for turn in range(3):
            clock.advance(INTERVAL_MS * CHECKS)
            with pool.broker() as broker:
                batch = BatchRef(f"query:{number}", "", turn)
                attempt = 1 + number * 10 + turn
                receipt = prepare(broker.transactions, batch, attempt, [b"row"])
                broker.transactions.commit_batch(batch, [receipt])

    bodies = open_halves(pool, 10)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(committers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    owner = Listening(listeners, OWNER, commit)
    try:
        listeners.check_back()
        wait_until(lambda: len(owner.heard) == 10, "questions")
    finally:
        owner.end()

    with pool.broker() as broker:
        assert sorted(visible(broker, "orders")) == bodies
        assert len(visible(broker)) == committers * 3


@pytest.mark.parametrize("error", [OSError(5, "disk"), ValueError("odd"), RuntimeError("bug")])
@pytest.mark.parametrize("service", ["check_back", "deliver_due"])
def test_what_a_commit_does_on_the_side_never_changes_its_answer(
    tmp_path: Path,
    service: str,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with open_store(tmp_path / "embedded") as broker:
        broker.create_topic("t", queues=2)
        batch = BatchRef("query:q", "", 0)
        receipt = prepare(broker.transactions, batch, 1, [b"row"])

        def fails(*_: Any) -> None:
            raise error

        monkeypatch.setattr(broker.transactions, service, fails)
        outcome = broker.transactions.commit_batch(batch, [receipt])

        assert not outcome.is_repeat
        assert visible(broker) == [b"row"]
        assert "event=service_failed" in caplog.text


def test_a_caller_is_told_from_another_by_name_alone() -> None:
    assert Caller("a").may_settle("a")
    assert Caller("a").may_settle("")
    assert not Caller("a").may_settle("b")
