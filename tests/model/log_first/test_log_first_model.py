"""A model of the pending tail, explored, with bugs that it must find.

Each scene says its sizes, and the number of its states is asserted, so that a change of the model
is seen. The invariants hold in every state, or the test shows the shortest trace that breaks one.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.model.log_first.explore import Exploration, Scene, explore
from tests.model.log_first.seeds import FULL, POWER, READERS, SEEDS, STRANGERS, UNDONE, WRITERS
from tests.model.log_first.state import INTENDED, Rules
from tests.model.telling import name_of

EVERY_DAY = [
    (READERS, 14055),
    (UNDONE, 5426),
    (WRITERS, 14637),
    (FULL, 440),
    (STRANGERS, 22213),
    (POWER, 10066),
]
LARGE = [
    (READERS._replace(appends=3, writers=2), 516239),
    (UNDONE._replace(appends=3, faults=2, deaths=1), 283571),
    (WRITERS._replace(appends=3), 200873),
    (FULL._replace(appends=4, deaths=2), 26879),
    (STRANGERS._replace(deaths=1), 125700),
    (POWER._replace(sizes=(1, 2), writers=2), 162126),
]


@cache
def explored(scene: Scene) -> Exploration:
    return explore(scene, INTENDED)


@cache
def explored_without(rule: str) -> Exploration:
    return explore(SEEDS[rule].scene, INTENDED._replace(**{rule: False}))


def told(found: Exploration) -> str:
    """Tell what was broken, and the shortest trace to it."""
    steps = (str(step.action) for step in found.trace())
    return "\n    ".join([f"{found.broken} after {len(found.states)} states", *steps])


@pytest.mark.parametrize(("scene", "states"), EVERY_DAY, ids=name_of)
def test_no_state_breaks_an_invariant(scene: Scene, states: int) -> None:
    found = explored(scene)

    assert found.broken is None, told(found)
    assert len(found.states) == states


@pytest.mark.slow
@pytest.mark.timeout(3000)
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
