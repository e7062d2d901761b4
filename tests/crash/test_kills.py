"""Real processes, killed with SIGKILL at every named failpoint and at random instants."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from broker_core.store.check.store import check
from broker_core.store.io.files import Failpoint
from broker_core.store.writer import StoreWriter
from tests.kit.batches import QuickFiles, View, index_bytes, rebuilt_index, view
from tests.kit.crash_child import Orders, acknowledged, bodies_of, kill, start
from tests.kit.crash_script import GIVEN, TINY, chance

BATCHES = 10
# Passed only while something is taken back or recovered; test_faults.py kills there.
UNDISTURBED = [
    point
    for point in Failpoint
    if point
    not in (
        Failpoint.QUEUE_CUT,
        Failpoint.INDEX_DROPPED,
        Failpoint.INDEX_REWOUND,
        Failpoint.SEGMENT_DROPPED,
    )
]


def expected(topics: Iterable[tuple[str, int]]) -> View:
    """The queues if the first `count` batches of each topic are there."""
    found: View = {}
    for topic, count in topics:
        for number in range(count):
            for row, body in enumerate(bodies_of(number)):
                found.setdefault((topic, row % 2), []).append(body.encode())
    return found


def verify(root: Path, promised: int, scratch: Path, *, is_trimmed: bool = False) -> None:
    """Reopen: every promised batch is there, at most the next one besides, all of it whole."""
    StoreWriter.open(root, GIVEN, create=True, files=QuickFiles()).close()
    found = view(root, GIVEN)
    found.pop(("Removed", 0), None)
    possible = [expected([("T", promised)]), expected([("T", promised + 1)])]
    if is_trimmed:
        # Retention may have taken the oldest segment: compare what is left with the ends.
        possible = [
            {queue: bodies[-len(found.get(queue, [])) :] for queue, bodies in whole.items()}
            for whole in possible
        ]
    assert found in possible
    assert check(root, GIVEN) == []
    if not is_trimmed:
        assert index_bytes(root) == rebuilt_index(root, scratch, TINY)


@pytest.mark.parametrize("point", UNDISTURBED, ids=str)
def test_killed_at_a_failpoint(point: Failpoint, tmp_path: Path) -> None:
    needs_removal = point in (Failpoint.TOPIC_MOVED_AWAY, Failpoint.SEGMENT_DELETED)
    flush = "sync" if point is Failpoint.LOG_SYNCED else "async"
    child, promises = start(
        Orders(tmp_path / "store", "T", BATCHES, (point, 1), flush, needs_removal)
    )

    promised = acknowledged(child, promises)

    assert child.exitcode == -9, "the failpoint was never reached"
    verify(tmp_path / "store", promised, tmp_path, is_trimmed=needs_removal)


@pytest.mark.parametrize("seed", range(12))
def test_killed_at_a_random_instant(seed: int, tmp_path: Path) -> None:
    check_random_kill(seed, tmp_path)


@pytest.mark.parametrize("seed", range(2))
def test_killed_over_and_over(seed: int, tmp_path: Path) -> None:
    """Each life finds what the last one left, also when that was a recovery."""
    random = chance("again", seed)
    root = tmp_path / "store"
    for life in range(6):
        child, promises = start(Orders(root, f"T{life}", 50))
        if promises.poll(60):
            promises.poll(random.random() * 0.02)
        kill(child)
        promised = acknowledged(child, promises)
        StoreWriter.open(root, GIVEN, create=True, files=QuickFiles()).close()
        found = {
            queue: bodies for queue, bodies in view(root, GIVEN).items() if queue[0] == f"T{life}"
        }
        assert found in [expected([(f"T{life}", promised + extra)]) for extra in (0, 1)]
        assert check(root, GIVEN) == []
    assert index_bytes(root) == rebuilt_index(root, tmp_path, TINY)


def test_survivor_goes_on_when_its_neighbour_is_killed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    StoreWriter.open(root, GIVEN, create=True, files=QuickFiles()).close()
    survivor, survivors = start(Orders(root, "Survivor", 40))
    victims = [start(Orders(root, f"Victim{number}", 400)) for number in range(2)]
    random = chance("neighbour")

    promised = {}
    for number, (victim, promises) in enumerate(victims):
        assert promises.poll(60)
        promises.poll(random.random() * 0.02)
        kill(victim)
        promised[f"Victim{number}"] = acknowledged(victim, promises)
    assert acknowledged(survivor, survivors) == 40
    assert survivor.exitcode == 0

    StoreWriter.open(root, GIVEN, files=QuickFiles()).close()
    found = view(root, GIVEN)
    for topic, count in {**promised, "Survivor": 40}.items():
        mine = {queue: bodies for queue, bodies in found.items() if queue[0] == topic}
        assert mine in [expected([(topic, count)]), expected([(topic, count + 1)])]
    assert check(root, GIVEN) == []
    assert index_bytes(root) == rebuilt_index(root, tmp_path, TINY)


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(1, 7))
@pytest.mark.parametrize("point", UNDISTURBED, ids=str)
def test_killed_at_a_failpoint_for_the_nth_time(point: Failpoint, nth: int, tmp_path: Path) -> None:
    needs_removal = point in (Failpoint.TOPIC_MOVED_AWAY, Failpoint.SEGMENT_DELETED)
    flush = "sync" if nth % 2 or point is Failpoint.LOG_SYNCED else "async"
    child, promises = start(Orders(tmp_path / "store", "T", 20, (point, nth), flush, needs_removal))

    promised = acknowledged(child, promises)

    assert child.exitcode in (-9, 0)
    verify(tmp_path / "store", promised, tmp_path, is_trimmed=needs_removal)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 350))
def test_killed_at_many_random_instants(seed: int, tmp_path: Path) -> None:
    check_random_kill(seed, tmp_path)


def check_random_kill(seed: int, tmp_path: Path) -> None:
    random = chance(seed)
    child, promises = start(
        Orders(tmp_path / "store", "T", 400, flush=random.choice(["async", "sync"]))
    )
    # Wait for its first sign of life, then for a moment of no particular length.
    assert promises.poll(60)
    for _ in range(random.randint(0, 5)):
        if promises.poll(random.random() * 0.003):
            break
    kill(child)

    verify(tmp_path / "store", acknowledged(child, promises), tmp_path)
