"""A commit in several appends, whose process dies or loses power at its n-th call of the system."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest

from tests.kit.faulty_files import Died, Fault, FaultyFiles
from tests.kit.transaction_script import SEQUELS, Memory, begin, verify, write_batch

DEATHS = [Fault.DIE_BEFORE, Fault.DIE_AFTER, Fault.DIE_TORN]
ANOTHER_BOOT = b"the next morning"
CALLS = 230
"""At least as many calls as the script makes; a test holds this number to the truth."""


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("begun") / "store"
    begin(root)
    return root


def die(begun: Path, root: Path, files: FaultyFiles) -> Memory:
    shutil.copytree(begun, root)
    memory = Memory()
    with contextlib.suppress(Died):
        write_batch(root, files, memory)
    return memory


def check_death(fault: Fault, at: int, begun: Path, root: Path) -> None:
    files = FaultyFiles(fault, at)
    memory = die(begun, root, files)
    files.abandon()

    verify(root, memory, SEQUELS[at % len(SEQUELS)])


def check_power_loss(at: int, seed: int, begun: Path, root: Path) -> None:
    files = FaultyFiles(Fault.DIE_AFTER, at, remember=True)
    memory = die(begun, root, files)
    files.lose_power(random.Random(1000 * at + seed))

    verify(root, memory, SEQUELS[(at + seed) % len(SEQUELS)], boot=ANOTHER_BOOT)


def test_the_script_makes_no_more_calls_than_the_tests_stop_at(begun: Path, tmp_path: Path) -> None:
    files = FaultyFiles()
    die(begun, tmp_path / "store", files)

    assert CALLS - 40 < files.calls <= CALLS


@pytest.mark.parametrize("at", range(1, CALLS, 15))
def test_a_writer_that_dies_leaves_its_batch_to_be_written_once(
    at: int, begun: Path, tmp_path: Path
) -> None:
    check_death(DEATHS[at % 3], at, begun, tmp_path / "store")


@pytest.mark.parametrize("at", range(2, CALLS, 17))
def test_a_writer_that_loses_power_leaves_its_batch_to_be_written_once(
    at: int, begun: Path, tmp_path: Path
) -> None:
    check_power_loss(at, 0, begun, tmp_path / "store")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fault", DEATHS, ids=lambda fault: fault.name)
def test_a_writer_that_dies_at_any_call(fault: Fault, begun: Path, tmp_path: Path) -> None:
    for at in range(1, CALLS + 1):
        check_death(fault, at, begun, tmp_path / str(at))
        shutil.rmtree(tmp_path / str(at))


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", range(4))
def test_a_writer_that_loses_power_at_any_call(seed: int, begun: Path, tmp_path: Path) -> None:
    for at in range(1, CALLS + 1):
        check_power_loss(at, seed, begun, tmp_path / str(at))
        shutil.rmtree(tmp_path / str(at))
