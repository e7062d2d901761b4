"""A model of transactions, explored, with bugs that it must find.

Sizes are stated by each scene and the number of its states is asserted, so that a change of the
model is seen. `OTHERS_CHANGE_NOTHING` and the invariants hold in every state, or the test shows the
shortest trace that breaks one.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from broker_core.broker.transactions import check_back_plan, decision_records, history
from broker_core.broker.transactions.decision_lookup import LoggedDecision
from broker_core.broker.transactions.history import CommitRequest
from broker_core.errors import BatchConflictError, BatchGapError
from broker_core.types import BatchRef, PhysicalOffset
from tests.model.telling import name_of
from tests.model.transactions import scenes, services
from tests.model.transactions.explore import Exploration, Scene, explore
from tests.model.transactions.replay import BATCH_PATIENCE_MS, TICK_MS
from tests.model.transactions.scenes import BOTH, Sizes
from tests.model.transactions.seeds import SEEDS
from tests.model.transactions.state import (
    ALICE,
    INTENDED,
    MALLORY,
    MAX_CHECKS,
    NAMELESS,
    Action,
    Decision,
    Rules,
    State,
    attempt_of,
)

EVERY_DAY = [
    (scenes.neighbours(Sizes(forgers=(MALLORY,), most_rows=3, attempts=3, depth=4)), 763),
    (scenes.history(Sizes(depth=4)), 724),
    (scenes.crashes(Sizes(rows=(1, 2), deaths=1)), 1268),
    (scenes.races(Sizes(numbers=(1,), rows=(1, 2), most_rows=3, depth=4)), 3097),
    (scenes.stale_rounds(Sizes(numbers=(1,), deaths=1, depth=5)), 718),
    (scenes.check_backs(Sizes(numbers=(1,), depth=4)), 544),
    (
        scenes.nameless(
            Sizes(users=(NAMELESS, ALICE), rows=(1, 2), most_rows=3, deaths=1, depth=4)
        ),
        1433,
    ),
    (scenes.retentions(Sizes(users=(ALICE,), rows=(1, 2), deaths=1, depth=4)), 1070),
]
LARGE = [
    (scenes.neighbours(Sizes(forgers=BOTH, most_rows=3, attempts=3)), 4417),
    (scenes.history(Sizes(numbers=(1, 2, 3), depth=5)), 12166),
    (scenes.crashes(Sizes(rows=(1, 2), deaths=2)), 2288),
    (scenes.crashes(Sizes(rows=(1, 2), most_rows=3, deaths=1, depth=6)), 19877),
    (scenes.races(Sizes(numbers=(1,), rows=(1, 2), most_rows=3, depth=6)), 44570),
    (scenes.stale_rounds(Sizes(numbers=(1,), deaths=1, depth=8)), 9844),
    (scenes.check_backs(Sizes(numbers=(1,))), 3447),
    (scenes.check_backs(Sizes(numbers=(1,), most_rows=3, depth=6)), 26307),
    (
        scenes.nameless(
            Sizes(users=(NAMELESS, *BOTH), rows=(1, 2), most_rows=3, attempts=3, deaths=1, depth=6)
        ),
        19875,
    ),
    (scenes.retentions(Sizes(rows=(1, 2), deaths=1, depth=6)), 10736),
]


@cache
def explored(scene: Scene) -> Exploration:
    return explore(scene, INTENDED)


@cache
def explored_without(rule: str) -> Exploration:
    seed = SEEDS[rule]
    return explore(seed.scene, INTENDED._replace(**{rule: False}), seed.ignoring)


def told(found: Exploration) -> str:
    """What was broken, and the shortest trace to it."""
    steps = (f"{step.action} -> {step.answer}" for step in found.trace())
    return "\n    ".join([f"{found.broken} after {len(found.states)} states", *steps])


@pytest.mark.parametrize(("scene", "states"), EVERY_DAY, ids=name_of)
def test_no_state_breaks_an_invariant(scene: Scene, states: int) -> None:
    found = explored(scene)

    assert found.broken is None, told(found)
    assert len(found.states) == states


@pytest.mark.slow
@pytest.mark.parametrize(("scene", "states"), LARGE, ids=name_of)
def test_no_state_of_a_larger_world_breaks_an_invariant(scene: Scene, states: int) -> None:
    found = explore(scene, INTENDED)

    assert found.broken is None, told(found)
    assert len(found.states) == states


def test_every_rule_has_a_seeded_bug() -> None:
    assert tuple(SEEDS) == Rules._fields


@pytest.mark.parametrize("rule", SEEDS)
def test_a_missing_rule_is_found(rule: str) -> None:
    found = explored_without(rule)

    assert found.broken == SEEDS[rule].invariant, told(found)


# Tied to the code: its own pure functions say the same


@pytest.mark.parametrize("last", [None, (1, ""), (1, "f"), (2, "f")])
def test_history_is_judged_as_the_code_does(last: tuple[int, str] | None) -> None:
    texts = ("", "f", "g")
    for number, text, conflict, previous in product(
        (1, 2, 3), texts, ("refuse", "repeat", "write"), (0, 1, 2)
    ):
        batch = BatchRef("query:q", "", number)
        request = CommitRequest("", True, text, conflict, previous or None)
        logged = None
        if last is not None:
            done = decision_records.Decision(
                BatchRef("query:q", "", last[0]), "", fingerprint=last[1]
            )
            logged = LoggedDecision(done, PhysicalOffset(0))
        if logged is not None and history.is_repeat(logged.decision, batch, request):
            expected = "repeat"
        else:
            try:
                history.require_history(logged, batch, request)
                expected = "written"
            except BatchConflictError:
                expected = "conflict"
            except BatchGapError:
                expected = "gap"

        action = Action(
            "commit", ALICE, number, fingerprint=text, conflict=conflict, previous=previous
        )
        journal = () if last is None else (Decision(ALICE, *last, is_done=True),)
        _, answer = services.step(State(journal), action, INTENDED)
        assert answer == expected, action


def test_every_open_half_is_planned_for_as_the_code_does() -> None:
    states = explored(EVERY_DAY[5][0]).states
    for state, listening in product(states, [(), (ALICE,), BOTH]):
        action = Action("round", listening=listening)
        assert planned(state, action) == services.plan(state, action, INTENDED)


def planned(state: State, action: Action) -> services.Steps:
    """What check_back_plan.plan does with a state of the model."""
    open_halves = [
        (number, half)
        for number, half in enumerate(state.halves)
        if half.settled < 0 and number >= state.progress
    ]
    now_ms = 10**12
    attempts = [attempt_of(state, half.attempt) for _, half in open_halves]
    columns: list[list[int]] = [
        [number for number, _ in open_halves],
        [now_ms - half.age * TICK_MS for _, half in open_halves],
        [half.checks for _, half in open_halves],
        [check_back_plan.NOT_IMMUNE] * len(open_halves),
        [services.verdict(state, number, INTENDED) for number, _ in open_halves],
        [-1 if each is None else 10 * each.user + each.number for each in attempts],
        [half.user for _, half in open_halves],
    ]
    halves = check_back_plan.OpenHalves(*(np.array(each, dtype=np.int64) for each in columns))
    policy = check_back_plan.CheckPolicy(
        max_checks=MAX_CHECKS, reserved_ms=2 * 3_600_000, batch_patience_ms=BATCH_PATIENCE_MS
    )
    room = [int(user in action.listening) * 100 for user in range(3)]
    steps = check_back_plan.plan(halves, now_ms, policy, room)
    return tuple(zip(columns[0], steps.tolist(), strict=True))
