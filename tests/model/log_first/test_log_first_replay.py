"""Traces of the model on the real classes: every seeded bug's trace, and a step of every kind.

Not replayed: what loses power, starts a foreign broker or fills the disk (tests/crash and
tests/interop do that), and a flush, which is one call here and two turns there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.log_first.explore import Exploration, Scene, menu
from tests.model.log_first.protocol import step
from tests.model.log_first.replay import World, bound_tails, make_template
from tests.model.log_first.seeds import READERS, SEEDS, UNDONE, WRITERS
from tests.model.log_first.state import INTENDED, Action, State
from tests.model.log_first.test_log_first_model import LARGE, explored, explored_without
from tests.model.telling import name_of

REPLAYED = (READERS, UNDONE, WRITERS)
NTH = 400


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bound_tails(monkeypatch)
    make_template(tmp_path / "template")
    return tmp_path / "template"


def kind_of(before: State, action: Action, after: State) -> tuple[object, ...]:
    """Tell one step from another, but for who and how much."""
    call, later = before.call, after.call
    memory = before.processes[action.who].memory
    look, tail = before.look, before.tail
    return (
        (action.kind, action.how, action.is_sync, later and later.done, before.marker.kind),
        call and (call.kind, call.done, call.todo[0]),
        call is None and (memory is None, before.processes[action.who].is_current),
        look and (look.step, look.page == before.marker, after.look and after.look.step),
        look and (bool(tail.records), tail.is_whole),
    )


def cover(found: Exploration) -> Iterator[list[Action]]:
    """Yield traces that have a step of every kind."""
    covered: set[tuple[object, ...]] = set()
    last: dict[tuple[object, ...], tuple[int, Action]] = {}
    for number, came in enumerate(found.came):
        if came is not None:
            before, action = came
            kind = kind_of(found.states[before], action, found.states[number])
            last.setdefault(kind, (number, action))
    # The longest first: what lies on their way needs no trace of its own.
    for kind, (number, _) in sorted(last.items(), key=lambda each: -each[1][0]):
        if kind not in covered:
            steps = found.trace(number)
            state = State()
            for taken in steps:
                covered.add(kind_of(state, *taken))
                state = taken.after
            yield [taken.action for taken in steps]


def intended(scene: Scene, actions: list[Action]) -> list[Action]:
    """The actions of a trace that are possible where no rule is missing."""
    state, kept = State(), []
    for action in actions:
        if action in menu(scene, state):
            state = step(state, action, INTENDED)
            kept.append(action)
    return kept


@pytest.mark.parametrize("scene", REPLAYED, ids=name_of)
def test_the_store_does_every_kind_of_step_as_the_model_says(
    scene: Scene, template: Path, tmp_path: Path
) -> None:
    traces = list(cover(explored(scene)))
    for number, trace in enumerate(traces):
        World(template, tmp_path / str(number)).play(trace)
    assert len(traces) > 20


@pytest.mark.parametrize("rule", [rule for rule, seed in SEEDS.items() if seed.scene in REPLAYED])
def test_the_store_does_not_do_what_goes_wrong_without_a_rule(
    rule: str, template: Path, tmp_path: Path
) -> None:
    trace = [taken.action for taken in explored_without(rule).trace()]

    World(template, tmp_path / "store").play(intended(SEEDS[rule].scene, trace))


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("scene", [scene for scene, _ in LARGE[:3]], ids=name_of)
def test_the_store_follows_traces_of_larger_worlds(
    scene: Scene, template: Path, tmp_path: Path
) -> None:
    found = explored(scene)
    for number in range(1, len(found.states), max(1, len(found.states) // NTH)):
        World(template, tmp_path / str(number)).play(
            [taken.action for taken in found.trace(number)]
        )
