"""Retention and what is decided: growth with the number of streams, forgetting, crashes, races.

The oracle is a replay: whatever retention did and wherever it was stopped, a batch that was
committed is answered as a repeat or refused, and its rows are never written a second time.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_records import (
    BatchAttempt,
    Decision,
    Delivered,
    stream_tag,
)
from broker_core.broker.transactions.decision_retention import DecisionRetention
from broker_core.broker.transactions.forgotten import RECORD_KEYS
from broker_core.errors import StorageError
from broker_core.types import BatchRef
from tests.kit.faulty_files import Died, Fault, FaultyFiles
from tests.kit.retention import (
    BATCH,
    HOUR_MS,
    LARGE_FILES,
    Run,
    commit,
    done_records,
    fill_segment,
    journal,
    open_with,
    retain,
    stream,
)
from tests.kit.transactions import ManualClock, attempt_id, visible


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with open_with(tmp_path / "store", clock) as opened:
        opened.create_topic("t", queues=2)
        yield opened


# Growth


@pytest.mark.parametrize(
    "owners", [1_000, 100_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
)
def test_a_run_writes_no_more_than_its_limit_whatever_the_number_of_streams(
    tmp_path: Path, clock: ManualClock, owners: int
) -> None:
    limit = 20_000
    settings = {**LARGE_FILES, "batchDecisionCarryMax": limit}
    with open_with(tmp_path / "store", clock, settings) as broker:
        broker.create_topic("t", queues=1)
        broker.transactions._require_topics()
        for at in range(0, owners, 100_000):
            broker.writer.append(done_records(range(at, min(owners, at + 100_000)), clock()))
            clock.advance(1)
        decided, filled = fill_segment(broker), fill_segment(broker)

        first = retain(broker, decided)
        second = retain(broker, filled)
        third = retain(broker)

        carried = min(owners, limit)
        keys = owners - carried
        notes = -(-keys // RECORD_KEYS)
        assert first.records == carried + notes
        # A new segment may begin among them.
        assert first.bytes <= 450 * carried + 23 * keys + 500 * notes + (100 << 10)
        assert first.appends == max(1, -(-notes // 64))
        # The second deletes other messages. The third deletes what the first has written, and
        # writes as much again.
        assert second == Run(0, 0, 0)
        assert third[::2] == first[::2]
        lookup = DecisionLookup(broker.reader)
        newest = lookup.decision_for(stream_tag(stream(owners - 1)), "")
        assert newest is not None
        assert newest.decision.fingerprint == "f" * 32
        if keys:
            oldest = lookup.decision_for(stream_tag(stream(0)), "")
            assert oldest is not None
            assert (oldest.decision.is_forgotten, oldest.decision.batch.number) == (True, 3)
        assert lookup.decision_for(stream_tag(stream(owners)), "") is None


def test_nothing_is_planned_or_read_under_the_lock(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(broker, BATCH, 1, b"row")
    turns = []

    def take_turn() -> None:
        with broker.writer.turn("look"):
            turns.append("taken")

    def plan(self: DecisionRetention, before: int, attempts: Sequence[int]) -> object:
        other = threading.Thread(target=take_turn)
        other.start()
        other.join(timeout=30)
        return original(self, before, attempts)

    original = DecisionRetention._plan
    monkeypatch.setattr(DecisionRetention, "_plan", plan)

    retain(broker)

    assert turns == ["taken"]  # and there was one plan


# What is never forgotten, and what leaves no trace


def test_delays_and_decisions_that_are_not_done_are_always_carried_along(
    tmp_path: Path, clock: ManualClock
) -> None:
    nothing = {"batchDecisionCarryMax": 0, "batchDecisionReservedTime": 0}
    with open_with(tmp_path / "store", clock, nothing) as broker:
        broker.create_topic("t", queues=1)
        for _ in range(2):
            broker.send("t", b"later", delay_level=3)
        # What can be finished is; this one names what the half queue never held.
        journal(broker, Delivered(3, 2), Decision(BATCH, "r", ((7, 9),)))
        clock.advance(HOUR_MS)

        assert retain(broker).records == 2

        lookup = DecisionLookup(broker.reader)
        found = lookup.decision(stream_tag(BATCH), "")
        assert found is not None
        assert (found.decision.ranges, lookup.delivered(3)) == (((7, 9),), 2)


def test_what_nobody_asks_for_again_leaves_no_trace(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    commit(broker, BATCH, 1, b"row", keep=False)
    clock.advance(1000 * HOUR_MS)

    assert retain(broker) == Run(0, 0, 0)
    assert not broker.transactions.is_batch_decided(BATCH)


def test_streams_with_one_name_keep_their_order(broker: EmbeddedBroker) -> None:
    # Decided while the broker had no credentials, then by a user: for them the later one counts.
    journal(broker, Decision(BATCH, "r", is_done=True))
    before = fill_segment(broker)
    later = replace(BATCH, number=9)
    journal(broker, Decision(later, "r", is_done=True, user="alice"))

    broker.delete_before(before)

    lookup = DecisionLookup(broker.reader)
    for name, number in (("alice", 9), ("bob", 5), ("", 9)):
        found = lookup.decision_for(stream_tag(BATCH), name)
        assert found is not None
        assert (found.decision.batch.number, found.decision.is_forgotten) == (number, False)


# Races and crashes


def test_a_stream_that_comes_back_meanwhile_keeps_its_newest_decision(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(broker, BATCH, 1, b"row")
    following = replace(BATCH, number=6)
    original = DecisionRetention._append

    def append(self: DecisionRetention, kept: object) -> None:
        if not broker.transactions.is_batch_decided(following):
            commit(broker, following, 2, b"next")
        original(self, kept)  # type: ignore[arg-type]  # what the plan returned

    monkeypatch.setattr(DecisionRetention, "_append", append)
    retain(broker)

    assert commit(broker, following, 3, b"next")
    assert visible(broker).count(b"next") == 1


@pytest.mark.parametrize(("owner", "plans"), [("query:BB", 1), ("query:Aa", 4)])
def test_nobody_keeps_retention_from_its_end(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, owner: str, plans: int
) -> None:
    """Whoever decides all the time: a stream whose tag has the same hash, or one after another."""
    old = [BatchRef("query:Aa", f"{number}", 0) for number in range(9)]
    journal(broker, *(Decision(each, "r", is_done=True, fingerprint="f") for each in old))
    planned = 0
    original = DecisionRetention._append

    def append(self: DecisionRetention, kept: object) -> None:
        nonlocal planned
        if planned < plans and planned < 3:
            # As if by another process, between the plan and its append.
            newer = BatchRef(owner, f"{planned}", 1)
            journal(broker, Decision(newer, "r", is_done=True, fingerprint="f"))
        planned += 1
        original(self, kept)  # type: ignore[arg-type]  # what the plan returned

    monkeypatch.setattr(DecisionRetention, "_append", append)
    retain(broker)

    assert planned == plans
    lookup = DecisionLookup(broker.reader)
    found = [lookup.decision(stream_tag(each), "") for each in old]
    came = 3 if owner == "query:Aa" else 0
    numbers = [each and each.decision.batch.number for each in found]
    assert numbers == [1] * came + [0] * (9 - came)


@pytest.mark.parametrize("count", [3, 40])
def test_many_records_are_found_at_once_as_one_by_one(broker: EmbeddedBroker, count: int) -> None:
    users = ("", "alice", "bob")
    attempts = [
        BatchAttempt(replace(BATCH, number=number), attempt_id(number), users[number % 3])
        for number in range(count)
    ]
    decisions = [
        Decision(BatchRef(f"query:{number % 7}", "", number), "r", user=users[number % 2])
        for number in range(count)
    ]
    journal(broker, *attempts, *decisions, *attempts[:2])
    lookup = DecisionLookup(broker.reader)
    ids = [*(each.id for each in attempts), attempt_id(10**6)]
    streams = {(each.tag, user) for each in decisions for user in users}

    assert lookup.logged_attempts(ids) == {
        each: lookup.logged_attempt(each) for each in ids if lookup.logged_attempt(each)
    }
    assert lookup.decisions(streams) == {
        each: lookup.decision(*each) for each in streams if lookup.decision(*each)
    }


def test_an_append_that_fails_deletes_and_forgets_nothing(
    broker: EmbeddedBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(broker, BATCH, 1, b"row")
    journal(broker, Delivered(3, 120))
    before = fill_segment(broker)
    log_range = broker.reader.log_range()
    clock.advance(1000 * HOUR_MS)

    def refuse(*_: object, **__: object) -> None:
        message = "the disk is gone"
        raise StorageError(message)

    monkeypatch.setattr(broker.writer, "_write", refuse)
    with pytest.raises(StorageError, match="the disk is gone"):
        broker.delete_before(before)
    monkeypatch.undo()

    assert broker.reader.log_range() == log_range
    assert commit(broker, BATCH, 2, b"row")


@pytest.mark.crash
def test_wherever_retention_dies_nothing_is_written_twice(
    tmp_path: Path, clock: ManualClock
) -> None:
    limit = {"batchDecisionCarryMax": 2}
    with open_with(tmp_path / "store", clock, limit) as broker:
        broker.create_topic("t", queues=1)
        for number in range(4):
            journal(broker, Decision(stream(number), "r", is_done=True))
            clock.advance(1)
        for _ in range(2):
            broker.send("t", b"later", delay_level=3)
        journal(broker, Delivered(3, 2))
        before = fill_segment(broker)

    answers = set()
    for at in range(1, 1000):
        root = tmp_path / str(at)
        shutil.copytree(tmp_path / "store", root)
        files = FaultyFiles((Fault.DIE_TORN, Fault.DIE_AFTER)[at % 2], at)
        try:
            with open_with(root, clock, limit, files) as dying:
                dying.delete_before(before)
        except Died:
            files.abandon()
        with open_with(root, clock, limit) as broker:
            lookup = DecisionLookup(broker.reader)
            answers.add(tuple(answer(lookup, number) for number in range(4)))
            assert lookup.delivered(3) == 2
        shutil.rmtree(root)
        if not files.has_died:
            break
    assert answers == {("repeat",) * 4, ("refused", "refused", "repeat", "repeat")}


def answer(lookup: DecisionLookup, number: int) -> str:
    """How a replay of a stream's batch is answered."""
    found = lookup.decision_for(stream_tag(stream(number)), "")
    if found is None:
        return "written"
    return "refused" if found.decision.is_forgotten else "repeat"
