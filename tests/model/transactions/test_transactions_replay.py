"""Traces of the model on the real broker: every seeded bug's trace, and a step of every kind.

The model is not a second opinion of its own: whatever it says, the broker's classes do, step by
step, as far as the traces go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.telling import name_of
from tests.model.transactions.explore import Kind, Scene, Step, cover, explore, kinds_of
from tests.model.transactions.replay import World
from tests.model.transactions.seeds import SEEDS
from tests.model.transactions.state import INTENDED
from tests.model.transactions.test_transactions_model import (
    EVERY_DAY,
    LARGE,
    explored,
    explored_without,
)

EVERY_NTH = 60
REPLAYED = [(scene, size) for scene, size in EVERY_DAY if scene.name in ("crashes", "check-backs")]
"""Scenes that are replayed every day, beside every seeded bug's trace; the slow test has all."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path / "store")
    yield opened
    opened.close()


def test_the_broker_does_every_kind_of_step_as_the_model_says(world: World) -> None:
    covered: set[Kind] = set()
    for rule in SEEDS:
        covered.update(kinds_of(replayed(world, rule)))
    for scene, _ in REPLAYED:
        for trace in cover(explored(scene), covered):
            world.play(trace, INTENDED)
    # Few of the messages sent before each step went the way of many: those that began a file.
    assert world.steps_with_pending > world.steps * 0.9


def replayed(world: World, rule: str) -> list[Step]:
    """Play the shortest trace to what goes wrong without a rule."""
    actions = [step.action for step in explored_without(rule).trace()]
    return world.play(actions, INTENDED)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("scene", [scene for scene, _ in LARGE], ids=name_of)
def test_the_broker_follows_traces_of_larger_worlds(scene: Scene, world: World) -> None:
    found = explore(scene, INTENDED)
    for trace in cover(found, set()):
        world.play(trace, INTENDED)
    for number in range(1, len(found.states), max(EVERY_NTH, len(found.states) // 500)):
        world.play([step.action for step in found.trace(number)], INTENDED)
