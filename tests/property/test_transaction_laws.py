"""Laws of transactions, over histories that hypothesis makes up.

A history is any order of preparing, committing, aborting and checking back, by two writers of the
same batches, on one store; each step may die after any number of its appends. Against it stands a
model of a few lines: which batches are decided, and with which messages.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.api import Transactions
from broker_core.broker.transactions.check_back_plan import (
    CheckPolicy,
    OpenHalves,
    Step,
    Verdict,
    plan,
)
from broker_core.broker.transactions.decision_records import (
    Decision,
    offsets_in,
    parse_body,
    runs_of,
)
from broker_core.broker.transactions.op import op_bodies
from broker_core.errors import BatchConflictError, IllegalTransitionError
from broker_core.types import BatchRef, Receipt
from tests.kit.transactions import ManualClock, in_pieces, open_store, prepare, visible

pytestmark = pytest.mark.usefixtures("either_way")

OWNERS = 2
OFFSETS = st.lists(st.integers(0, 200), unique=True).map(
    lambda each: np.array(each, dtype=np.int64)
)


class DiedError(Exception):
    """The process of a step is gone."""


class Mortal:
    """A writer whose process dies at its n-th append, before it or right after it."""

    def __init__(self, broker: EmbeddedBroker, dies_at: int, *, is_after: bool) -> None:
        self._append: Callable[..., Any] = broker.writer.append
        self._left = dies_at
        self._is_after = is_after

    def append(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._is_after:
            raise DiedError
        placed = self._append(*arguments, **options)
        if self._left == 0:
            raise DiedError
        return placed


class World:
    """One store, what its writers remember, and what must be true of it."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.broker = open_store(path, self.clock)
        self.broker.create_topic("t", queues=2)
        self.receipts: dict[BatchRef, list[Receipt]] = {}
        self.bodies: dict[str, list[bytes]] = {}
        self.attempts = 0

    def transactions(self) -> Transactions:
        """As a process sees them that has just started."""
        return in_pieces(self.broker, rows=2)

    def prepare(self, batch: BatchRef, count: int) -> None:
        self.attempts += 1
        bodies = [b"%d-%d" % (self.attempts, number) for number in range(count)]
        born = self.clock()
        receipt = prepare(self.transactions(), batch, self.attempts, bodies, born_ms=born)
        self.receipts.setdefault(batch, []).append(receipt)
        self.bodies[receipt.attempt] = bodies

    def chosen(self, batch: BatchRef, picks: list[bool]) -> list[Receipt]:
        known = self.receipts.get(batch, [])
        return [receipt for receipt, pick in zip(known, picks, strict=False) if pick]

    def shown(self) -> list[bytes]:
        return sorted(visible(self.broker))


batches = st.builds(
    BatchRef, st.sampled_from(["query:a", "query:b"]), st.just(""), st.integers(0, 2)
)
deaths = st.tuples(st.integers(0, 4), st.booleans())
picks = st.lists(st.booleans(), min_size=4, max_size=4)
steps = st.one_of(
    st.tuples(st.just("prepare"), batches, st.integers(1, 5)),
    st.tuples(st.just("commit"), batches, picks, deaths),
    st.tuples(st.just("abort"), batches, picks, deaths),
    st.tuples(st.just("check"), deaths),
    st.tuples(st.just("wait"), st.sampled_from([1_000, 100_000, 5_000_000])),
)


def run(world: World, step: tuple[Any, ...]) -> None:
    """Take a step, in a process that may die on the way."""
    name, *rest = step
    if name == "prepare":
        world.prepare(*rest)
        return
    if name == "wait":
        world.clock.advance(rest[0])
        return
    dies_at, is_after = rest[-1]
    original = world.broker.writer.append
    mortal = Mortal(world.broker, dies_at, is_after=is_after)
    world.broker.writer.append = mortal.append  # type: ignore[method-assign]  # the process's end
    try:
        transactions = world.transactions()
        if name == "commit":
            transactions.commit_batch(rest[0], world.chosen(rest[0], rest[1]))
        elif name == "abort":
            transactions.abort_batch(rest[0], world.chosen(rest[0], rest[1]))
        else:
            transactions.check_back()
    except (DiedError, IllegalTransitionError, BatchConflictError):
        pass
    finally:
        world.broker.writer.append = original  # type: ignore[method-assign]  # another process


@settings(max_examples=60)
@given(st.lists(steps, max_size=14))
def test_a_batch_is_visible_once_or_not_at_all(history: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "store")
        decided: dict[BatchRef, frozenset[bytes]] = {}
        for step in history:
            before = set(world.shown())
            run(world, step)
            after = world.shown()
            assert len(after) == len(set(after)), "a message is visible twice"
            assert before <= set(after), "a visible message is gone"
            _learn(world, decided)
        world.transactions().check_back()
        finished = world.shown()
        world.broker.close()
        assert len(finished) == len(set(finished))
        for batch, bodies in decided.items():
            assert bodies <= set(finished), f"{batch} is not whole"
        named = frozenset().union(*decided.values()) if decided else frozenset()
        assert set(finished) == named


def _learn(world: World, decided: dict[BatchRef, frozenset[bytes]]) -> None:
    """Read every decision from the journal: once made, it never changes."""
    journal = world.transactions()._tools.journal
    for owner in ("query:a", "query:b"):
        found = journal.decision(f"{owner}#", "")
        if found is None or (found.decision.is_done and found.decision.batch in decided):
            continue
        decision = found.decision
        named = _named(world, decision)
        assert decided.get(decision.batch, named) == named, "a decision changed"
        earlier = [batch.number for batch in decided if batch.owner == owner]
        assert all(number <= decision.batch.number for number in earlier), "a batch came too late"
        decided[decision.batch] = named


def _named(world: World, decision: Decision) -> frozenset[bytes]:
    if decision.is_done:
        # It was made and finished in one step: what it named is what it shows.
        shown = set(world.shown())
        receipts = world.receipts.get(decision.batch, [])
        bodies = [set(world.bodies[receipt.attempt]) for receipt in receipts]
        return (
            frozenset().union(*(each for each in bodies if each <= shown))
            if bodies
            else frozenset()
        )
    offsets = set(offsets_in(decision.ranges).tolist())
    return frozenset(
        body
        for receipt in world.receipts[decision.batch]
        for part in receipt.prepared
        for offset, body in zip(
            range(part.start, part.end), world.bodies[receipt.attempt], strict=True
        )
        if offset in offsets
    )


@given(OFFSETS)
def test_runs_are_the_offsets_in_their_order(offsets: np.ndarray[Any, Any]) -> None:
    assert offsets_in(runs_of(offsets)).tolist() == offsets.tolist()


@given(OFFSETS)
def test_op_bodies_list_each_offset_with_a_comma(offsets: np.ndarray[Any, Any]) -> None:
    text = b"".join(op_bodies(offsets).to_pylist())

    assert text == b"".join(b"%d," % offset for offset in offsets.tolist())


ranges = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=4).map(tuple)


@given(
    st.builds(
        Decision,
        st.builds(BatchRef, st.text(max_size=9), st.text(max_size=9), st.integers(0, 2**60)),
        run=st.text(max_size=9),
        ranges=ranges,
        since=st.integers(0, 2**60),
        keep=st.booleans(),
    )
)
def test_a_decision_is_read_back_as_it_was_written(decision: Decision) -> None:
    assert parse_body(decision.body(), 0) == decision
    assert " " not in decision.tag


@given(
    st.integers(0, 10**7),
    st.sampled_from(list(Verdict)),
    st.integers(0, 20),
    st.integers(1, 10**8),
    st.integers(0, 1),
)
def test_waiting_never_begins_again(
    age_ms: int, verdict: Verdict, checks: int, later_ms: int, room: int
) -> None:
    def step(at_ms: int) -> Step:
        one = np.array([0])
        half = OpenHalves(one, one, one + checks, one - 1, one + verdict, one - 1, one)
        return Step(int(plan(half, at_ms, CheckPolicy(), [room])[0]))

    first, second = step(age_ms), step(age_ms + later_ms)

    assert first is Step.WAIT or second is not Step.WAIT
    assert first in (Step.WAIT, Step.ASK) or second is first
