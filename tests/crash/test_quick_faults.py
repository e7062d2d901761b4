"""The quick way into the log, mixed with the other, stopped or hindered at its n-th call.

Whatever became of the store, once it was opened again log, queues and index are what the way of
many alone would have written, byte for byte.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

from broker_core.errors import StorageError
from broker_core.store.check.store import check
from broker_core.store.io.files import Bytes, Failpoint
from broker_core.store.recovery.shutdown_state import CHECKPOINT_NAME
from broker_core.store.recovery.tail_marker import PAGE_START
from tests.kit.batches import view
from tests.kit.crash_script import Life, chance, verify_after_death, verify_after_power_loss
from tests.kit.faulty_files import Died, Fault, FaultyFiles
from tests.kit.two_ways import (
    ROOMY,
    SCRIPT,
    Notes,
    die,
    insist,
    live,
    open_store,
    require_twin,
    take,
)

CALLS = 248
"""The calls that the script makes; a test holds this number to the truth."""
DEATHS = [Fault.DIE_BEFORE, Fault.DIE_AFTER, Fault.DIE_TORN]
HINDRANCES = [Fault.FAIL_ONCE, Fault.FULL, Fault.SHORT, Fault.HALF]
QUICK = [
    Failpoint.ROOM_CLAIMED,
    Failpoint.MARKED_PENDING,
    Failpoint.PENDING_WRITTEN,
    Failpoint.LOG_SYNCED,
    Failpoint.QUEUE_WRITTEN,
    Failpoint.INDEX_ENTRIES_WRITTEN,
    Failpoint.INDEX_HEADER_WRITTEN,
    Failpoint.INDEX_SLOTS_WRITTEN,
    Failpoint.PENDING_DISPATCHED,
    Failpoint.MARKED_CLEAN,
]
"""What a quick append passes, and the dispatch of what is pending, in order."""


def every(step: int, start: int = 1) -> range:
    return range(start, CALLS + 1, step)


def verify(root: Path, life: Life, scratch: Path) -> None:
    """Hold the store to what was promised, and to its twin, before and after it goes on."""
    with contextlib.closing(open_store(root)) as store, store.turn("compare"):
        found = sum(map(len, view(root, ROOMY).values()))
        kept = 0
        while found:
            found -= len(life.attempted[kept][1])
            kept += 1
        assert life.acknowledged <= kept <= len(life.attempted)
        require_twin(root, life.attempted[:kept], scratch)
    verify_after_death(root, life, scratch, settings=ROOMY, boot=None)


def check_death(fault: Fault, at: int, tmp_path: Path) -> None:
    root = tmp_path / "store"
    files = FaultyFiles(fault, at)
    life = die(root, files)
    files.abandon()

    if life.acknowledged:  # read as it was left, before anything is repaired
        assert view(root, ROOMY) in [life.possible(life.acknowledged + more) for more in (0, 1)]
    verify(root, life, tmp_path)


def check_power_loss(at: int, seed: int, tmp_path: Path) -> None:
    files = FaultyFiles(Fault.DIE_AFTER, at, remember=True)
    life = die(tmp_path / "store", files)
    files.lose_power(chance("quick", at, seed))

    verify_after_power_loss(tmp_path / "store", life, tmp_path, settings=ROOMY)


class FailsBehind(FaultyFiles):
    """Files of which the call fails that follows a failpoint, the first time that one is passed."""

    def __init__(self, point: Failpoint, fault: Fault) -> None:
        super().__init__(fault)
        self._point: Failpoint | None = point

    def reach(self, point: Failpoint) -> None:
        super().reach(point)
        if point is self._point:
            self._point = None
            self.strike(self._fault, 1)


def check_hindrance(fault: Fault, at: int, tmp_path: Path) -> None:
    check_insisting(FaultyFiles(fault, at), tmp_path)


def check_insisting(files: FaultyFiles, tmp_path: Path) -> int:
    root, life = tmp_path / "store", Life()
    failures = insist(root, files, life)

    assert view(root, ROOMY) == life.possible(len(life.attempted))
    assert check(root, ROOMY) == []
    verify(root, life, tmp_path)
    return failures


def check_broken_disk(at: int, tmp_path: Path) -> None:
    """Not even what failed can be taken back: it is there or not, and all else is right."""
    root = tmp_path / "store"
    files, life = FaultyFiles(Fault.BROKEN, at), Life()
    with contextlib.suppress(StorageError):
        live(root, files, life)
    files.abandon()

    verify(root, life, tmp_path)


def test_the_script_makes_as_many_calls_as_the_tests_stop_at(tmp_path: Path) -> None:
    files, life = Notes(), Life()
    live(tmp_path / "store", files, life)

    assert files.calls == CALLS
    assert set(QUICK) <= set(files.passed)
    assert files.passed.count(Failpoint.PENDING_WRITTEN) == 10
    assert files.passed.count(Failpoint.LOG_WRITTEN) == 7
    require_twin(tmp_path / "store", life.attempted, tmp_path)


@pytest.mark.parametrize("at", every(60))
def test_a_process_that_dies_leaves_whole_appends(at: int, tmp_path: Path) -> None:
    check_death(DEATHS[at % 3], at, tmp_path)


@pytest.mark.parametrize("at", every(40, start=7))
def test_losing_power_leaves_what_was_promised(at: int, tmp_path: Path) -> None:
    check_power_loss(at, 0, tmp_path)


@pytest.mark.parametrize("half", [0, 1])
def test_a_step_that_fails_leaves_nothing_and_can_be_repeated(half: int, tmp_path: Path) -> None:
    """With a full disk, but for what needs no space: an fsync, and a marker in its old place."""
    for number, point in enumerate(QUICK[half:-1:2]):
        is_spaceless = point in (Failpoint.PENDING_WRITTEN, Failpoint.PENDING_DISPATCHED)
        fault = Fault.FAIL_ONCE if is_spaceless or number % 2 else Fault.FULL
        assert check_insisting(FailsBehind(point, fault), tmp_path / point) == 1


@pytest.mark.parametrize("at", every(100, start=90))
def test_a_disk_that_breaks_takes_nothing_acknowledged(at: int, tmp_path: Path) -> None:
    check_broken_disk(at, tmp_path)


@pytest.mark.parametrize("point", QUICK, ids=str)
def test_a_process_killed_between_two_steps_leaves_whole_appends(
    point: Failpoint, tmp_path: Path
) -> None:
    check_kill(point, 2 if point is Failpoint.QUEUE_WRITTEN else 1, tmp_path)


def check_kill(point: Failpoint, nth: int, tmp_path: Path) -> None:
    root = tmp_path / "store"
    files = FaultyFiles(stop_at=(point, nth))
    life = die(root, files)
    assert files.has_died
    files.abandon()

    assert view(root, ROOMY) in [life.possible(life.acknowledged + more) for more in (0, 1)]
    verify(root, life, tmp_path)


def undone(fault: Fault, at: int, tmp_path: Path) -> bool:
    """Fail once, and die while that is taken back; whether it came so far."""
    root = tmp_path / "store"
    # The first time is when the store is made.
    files = FaultyFiles(fault, at, stop_at=(Failpoint.LOG_CUT, 2))
    life = Life()
    with contextlib.suppress(Died, StorageError):
        live(root, files, life)
    files.abandon()
    # Whose append is being taken back gets an error: it must not show up.
    del life.attempted[life.acknowledged :]
    verify(root, life, tmp_path)
    return files.has_died


@pytest.mark.parametrize("fault", [Fault.FAIL_ONCE, Fault.HALF], ids=lambda fault: fault.name)
def test_an_append_that_is_being_taken_back_never_shows_up(fault: Fault, tmp_path: Path) -> None:
    first = first_quick_call(tmp_path)
    # The marker, the log, its fsync, that of its name.
    taken_back = [undone(fault, first + number, tmp_path / str(number)) for number in range(4)]
    is_fsync_hit = fault is Fault.FAIL_ONCE
    assert taken_back == [True, True, is_fsync_hit, is_fsync_hit]


@pytest.mark.parametrize("fault", [Fault.DIE_TORN, Fault.HALF], ids=lambda fault: fault.name)
def test_a_torn_append_behind_a_pending_tail_leaves_the_tail(fault: Fault, tmp_path: Path) -> None:
    """One record of three is whole, and does not count."""
    root = tmp_path / "torn" / "store"
    files = FaultyFiles(fault, first_quick_call(tmp_path) + 1)
    life = Life()
    with contextlib.suppress(Died, StorageError):
        live(root, files, life)
    files.abandon()

    assert life.acknowledged == 2
    assert view(root, ROOMY) == life.possible(2)
    del life.attempted[2:]
    verify(root, life, tmp_path)


class HalvesMarker(FaultyFiles):
    """Files of which the n-th write of the marker is done by half, and fails."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self._left = nth

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:
        if offset >= PAGE_START and self._open[descriptor].name == CHECKPOINT_NAME:
            self._left -= 1
            if not self._left:
                self.strike(Fault.HALF, 1)
        return super().pwrite(descriptor, data, offset)


@pytest.mark.parametrize("nth", range(6, 42, 5))
def test_a_marker_that_is_written_by_half_is_put_back(
    nth: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without it the store would have to be scanned, and its readers would see that happen."""
    caplog.set_level(logging.INFO)
    files = HalvesMarker(nth)

    assert check_insisting(files, tmp_path) == 1
    assert not [said for said in caplog.messages if "kind=ABNORMAL" in said]


def first_quick_call(tmp_path: Path) -> int:
    """The call by which the second quick append, with flush="sync", is marked."""
    files, life = FaultyFiles(), Life()
    store = open_store(tmp_path / "first" / "store", files)
    for step in SCRIPT[:2]:
        take(store, life, step)
    before = files.calls
    take(store, life, SCRIPT[2])
    assert files.calls - before == 5, "a claim, the marker, the log, its fsync, that of its name"
    store.close()
    return before + 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", DEATHS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("at", every(1))
def test_every_death_leaves_whole_appends(fault: Fault, at: int, tmp_path: Path) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("at", every(1))
def test_a_disk_that_breaks_anywhere_takes_nothing_acknowledged(at: int, tmp_path: Path) -> None:
    check_broken_disk(at, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(2, 6))
@pytest.mark.parametrize("point", QUICK, ids=str)
def test_a_process_killed_between_any_two_steps_leaves_whole_appends(
    point: Failpoint, nth: int, tmp_path: Path
) -> None:
    check_kill(point, nth, tmp_path)
