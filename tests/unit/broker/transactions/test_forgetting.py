"""Streams that retention forgot: replays are refused, and the next batch is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_records import (
    Decision,
    stream_tag,
)
from broker_core.errors import BatchConflictError, BatchGapError
from broker_core.types import BatchRef
from tests.kit.retention import (
    BATCH,
    HOUR_MS,
    as_user,
    commit,
    forget,
    journal,
    open_with,
    retain,
    stream,
)
from tests.kit.transactions import (
    ManualClock,
    prepare,
    visible,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with open_with(tmp_path / "store", clock) as opened:
        opened.create_topic("t", queues=2)
        yield opened


@pytest.mark.parametrize(("hours", "is_known"), [(719, True), (721, False)])
def test_a_stream_is_forgotten_after_the_time_that_is_set(
    broker: EmbeddedBroker, clock: ManualClock, hours: int, is_known: bool
) -> None:
    commit(broker, BATCH, 1, b"row")
    # Copies in between do not make it younger.
    for _ in range(3):
        clock.advance(hours * HOUR_MS // 3)
        retain(broker)

    if is_known:
        assert commit(broker, BATCH, 2, b"again")
    else:
        with pytest.raises(BatchConflictError, match=r"batch 5 .*forgotten"):
            commit(broker, BATCH, 2, b"again")
    assert b"again" not in visible(broker)


def test_a_replay_of_a_forgotten_batch_is_an_error_and_no_second_write(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    commit(broker, BATCH, 1, b"row")
    forget(broker, clock)

    for number in range(6):
        batch = replace(BATCH, number=number)
        assert broker.transactions.is_batch_decided(batch)
        with pytest.raises(
            BatchConflictError,
            match=r"batch 5 is committed already, .*batchDecisionReservedTime.*CarryMax",
        ):
            commit(broker, batch, 2 + number, b"again")

    assert b"again" not in visible(broker)


def test_what_a_refused_replay_brought_is_rolled_back(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    commit(broker, BATCH, 1, b"row")
    forget(broker, clock)
    receipt = prepare(broker.transactions, BATCH, 2, [b"again"])
    with pytest.raises(BatchConflictError):
        broker.transactions.commit_batch(BATCH, [receipt])

    broker.transactions.abort_batch(BATCH, [receipt])

    assert broker.transactions.check_back().waiting == 0
    assert b"again" not in visible(broker)


@pytest.mark.parametrize(("conflict", "is_repeat"), [("repeat", True), ("write", False)])
def test_the_caller_can_say_what_a_forgotten_batch_is(
    broker: EmbeddedBroker, clock: ManualClock, conflict: str, is_repeat: bool
) -> None:
    commit(broker, BATCH, 1, b"row")
    forget(broker, clock)

    assert commit(broker, BATCH, 2, b"again", conflict=conflict) is is_repeat

    assert visible(broker).count(b"again") == (not is_repeat)
    # What was written is known again, with all that belongs to it.
    if not is_repeat:
        assert commit(broker, BATCH, 3, b"again")
        assert not commit(broker, replace(BATCH, number=6), 4, b"next")


def test_a_forgotten_stream_goes_on_with_its_next_batch(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    commit(broker, BATCH, 1, b"row", fingerprint="f")
    forget(broker, clock)
    after_next = replace(BATCH, number=7)

    with pytest.raises(BatchGapError, match="batch 5 as the newest"):
        commit(broker, after_next, 2, b"gap", fingerprint="g", previous=6)
    is_repeat = commit(broker, replace(BATCH, number=6), 3, b"next", fingerprint="g", previous=5)

    assert not is_repeat
    assert commit(broker, replace(BATCH, number=6), 4, b"next", fingerprint="g", previous=5)
    assert [body for body in visible(broker) if body.strip(b"\0")] == [b"next"]


def test_what_is_forgotten_stays_so_when_its_own_files_go(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    for at in range(0, 300, 100):
        numbers = range(at, at + 100)
        journal(broker, *(Decision(stream(number), "r", is_done=True) for number in numbers))
        forget(broker, clock)
    whole = retain(broker)
    again = retain(broker)

    # Their keys lie together by now: 300 of them, in records of a small part of a small file.
    assert whole == again
    assert whole.records <= 3
    lookup = DecisionLookup(broker.reader)
    for number in range(300):
        found = lookup.decision_for(stream_tag(stream(number)), "")
        assert found is not None
        assert found.decision.is_forgotten


def test_users_find_what_was_forgotten_of_their_own(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    journal(broker, Decision(BATCH, "r", is_done=True, user="alice"))
    journal(broker, Decision(stream(1), "r", is_done=True))
    forget(broker, clock)

    def is_known(name: str, batch: BatchRef) -> bool:
        return as_user(broker, name).is_batch_decided(batch)

    assert [is_known(name, BATCH) for name in ("alice", "bob", "")] == [True, False, True]
    assert [is_known(name, stream(1)) for name in ("alice", "bob", "")] == [True] * 3


def test_many_streams_of_one_user_do_not_make_others_forgotten(
    tmp_path: Path, clock: ManualClock
) -> None:
    with open_with(tmp_path / "store", clock, {"batchDecisionCarryMax": 10}) as broker:
        broker.create_topic("t", queues=1)
        journal(broker, Decision(BATCH, "r", is_done=True, user="alice"))
        clock.advance(1)
        records = [Decision(stream(number), "r", is_done=True, user="bob") for number in range(50)]
        journal(broker, *records)

        retain(broker)

        lookup = DecisionLookup(broker.reader)
        found = lookup.decision_for(stream_tag(BATCH), "alice")
        assert found is not None
        assert not found.decision.is_forgotten
        known = [lookup.decision(stream_tag(stream(number)), "bob") for number in range(50)]
        assert [each is not None for each in known] == [False] * 41 + [True] * 9
