"""A short script, stopped or hindered at its n-th call of the system, for every n."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from broker_core.errors import StorageError
from broker_core.store.check.store import check
from broker_core.store.io.files import Failpoint
from tests.kit.batches import view
from tests.kit.crash_script import (
    GIVEN,
    Life,
    chance,
    insist,
    live,
    verify_after_death,
    verify_after_power_loss,
)
from tests.kit.faulty_files import Died, Fault, FaultyFiles

CALLS = 240
"""At least as many calls as the script makes; a test holds this number to the truth."""
DEATHS = [Fault.DIE_BEFORE, Fault.DIE_AFTER, Fault.DIE_TORN]
UNDOING = [
    Failpoint.QUEUE_CUT,
    Failpoint.INDEX_DROPPED,
    Failpoint.INDEX_REWOUND,
    Failpoint.SEGMENT_DROPPED,
]
HINDRANCES = [Fault.FAIL_ONCE, Fault.FULL, Fault.SHORT]


def every(step: int, start: int = 1) -> range:
    return range(start, CALLS + 1, step)


def die(root: Path, files: FaultyFiles) -> Life:
    """Run the script until its process dies, or to its end."""
    life = Life()
    with contextlib.suppress(Died):
        live(root, files, life)
    return life


def check_death(fault: Fault, at: int, tmp_path: Path) -> None:
    files = FaultyFiles(fault, at)
    life = die(tmp_path / "store", files)
    files.abandon()

    verify_after_death(tmp_path / "store", life, tmp_path)


def check_power_loss(at: int, seed: int, tmp_path: Path) -> None:
    files = FaultyFiles(Fault.DIE_AFTER, at, remember=True)
    life = die(tmp_path / "store", files)
    files.lose_power(chance(at, seed))

    verify_after_power_loss(tmp_path / "store", life, tmp_path)


def check_hindrance(fault: Fault, at: int, tmp_path: Path) -> None:
    files = FaultyFiles(fault, at)
    life = Life()
    insist(tmp_path / "store", files, life)

    assert view(tmp_path / "store", GIVEN) == life.possible(6)
    assert check(tmp_path / "store", GIVEN) == []
    verify_after_death(tmp_path / "store", life, tmp_path)


def test_the_script_makes_no_more_calls_than_the_tests_stop_at(tmp_path: Path) -> None:
    files = FaultyFiles()
    live(tmp_path / "store", files, Life())

    assert CALLS - 40 < files.calls <= CALLS


def test_the_script_passes_the_failpoints_of_an_append(tmp_path: Path) -> None:
    passed: set[Failpoint] = set()

    class Noting(FaultyFiles):
        def reach(self, point: Failpoint) -> None:
            passed.add(point)

    live(tmp_path / "store", Noting(), Life())

    assert {point for point in Failpoint if "marked" in point or "written" in point} <= passed


@pytest.mark.parametrize("at", every(9))
def test_a_process_that_dies_leaves_whole_batches(at: int, tmp_path: Path) -> None:
    check_death(DEATHS[at % 3], at, tmp_path)


@pytest.mark.parametrize("at", every(11))
def test_losing_power_leaves_what_was_promised(at: int, tmp_path: Path) -> None:
    check_power_loss(at, 0, tmp_path)


@pytest.mark.parametrize("at", every(13))
def test_a_call_that_fails_leaves_nothing_and_can_be_repeated(at: int, tmp_path: Path) -> None:
    check_hindrance(HINDRANCES[at % 3], at, tmp_path)


@pytest.mark.parametrize("point", UNDOING, ids=str)
@pytest.mark.parametrize("at", [*range(36, 60, 4), *every(20, start=60)])
def test_a_batch_that_is_being_taken_back_never_shows_up(
    point: Failpoint, at: int, tmp_path: Path
) -> None:
    """The disk is full, the caller's error is on its way, and then the process dies."""
    root = tmp_path / "store"
    files = FaultyFiles(Fault.FULL, at, stop_at=(point, 1))
    life = Life()
    with contextlib.suppress(Died, StorageError):
        live(root, files, life)
    files.abandon()

    del life.attempted[life.acknowledged :]
    verify_after_death(root, life, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", DEATHS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("at", every(1))
def test_every_death_leaves_whole_batches(fault: Fault, at: int, tmp_path: Path) -> None:
    check_death(fault, at, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("at", every(1))
def test_every_loss_of_power_leaves_what_was_promised(at: int, seed: int, tmp_path: Path) -> None:
    check_power_loss(at, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", HINDRANCES, ids=lambda fault: fault.name)
@pytest.mark.parametrize("at", every(1))
def test_every_failing_call_leaves_nothing_and_can_be_repeated(
    fault: Fault, at: int, tmp_path: Path
) -> None:
    check_hindrance(fault, at, tmp_path)
