"""A reader in another process that looks without pause beside writers that die and fail.

Whatever was acknowledged before a look began is in it: by queue range, by reading, by key.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from broker_core.store.check.store import check
from broker_core.store.io.files import Failpoint
from broker_core.store.reader import StoreReader
from tests.kit.batches import bodies, index_bytes, rebuilt_index
from tests.kit.crash_child import kill
from tests.kit.demanding_reader import Report, reading
from tests.kit.promises import TOPIC, Promises, body_of
from tests.kit.promising_writer import SETTINGS, Orders, create, start

PLACES = [
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
    Failpoint.MARKED_APPENDING,
    Failpoint.LOG_WRITTEN,
    Failpoint.MARKED_DISPATCHING,
    Failpoint.SEGMENT_CREATED,
    Failpoint.INDEX_CREATED,
    Failpoint.CHECKPOINT_WRITTEN,
]
APPENDS = 150


def settle(root: Path, promises: Path, scratch: Path) -> int:
    """Open the store for writing; all is there that was promised. How many messages that is."""
    start(Orders(root, promises, 0)).join()
    assert check(root, SETTINGS) == []
    assert index_bytes(root) == rebuilt_index(root, scratch, SETTINGS)
    reader = StoreReader(root)
    count = 0
    for queue_id, promised in enumerate(Promises(promises).all()):
        found = bodies(reader, (TOPIC, queue_id))
        assert len(found) >= promised
        assert found == [body_of(queue_id, offset) for offset in range(len(found))]
        count += len(found)
    reader.close()
    return count


def live_and_die(root: Path, promises: Path, lives: int, seed: int) -> int:
    """Writers follow each other, each killed somewhere; how many were."""
    chance = Random(seed)
    killed = 0
    for life in range(lives):
        point = PLACES[(life + seed) % len(PLACES)]
        stop_at = (point, chance.randint(1, 12)) if chance.random() < 0.8 else None
        writer = start(Orders(root, promises, APPENDS, 1000 * seed + life, stop_at))
        if stop_at is None:
            writer.join(chance.random() * 0.05)
            kill(writer)
        writer.join()
        assert writer.exitcode in (0, -9)
        killed += writer.exitcode == -9
    return killed


def check_dying_writers(lives: int, seed: int, tmp_path: Path) -> tuple[int, int, Report]:
    root, promises = tmp_path / "store", tmp_path / "promises"
    create(root)
    with reading(root, promises, is_steady=True) as reports:
        killed = live_and_die(root, promises, lives, seed)
    return killed, settle(root, promises, tmp_path), reports[0]


def check_failing_writers(writers: int, appends: int, tmp_path: Path) -> tuple[int, Report]:
    """Writers beside each other, on a disk that fails every few appends."""
    root, promises = tmp_path / "store", tmp_path / "promises"
    create(root)
    with reading(root, promises, is_steady=False) as reports:
        for seed in range(writers):
            writer = start(Orders(root, promises, appends, seed, has_faults=True))
            writer.join()
            assert writer.exitcode == 0
    return settle(root, promises, tmp_path), reports[0]


def test_a_reader_beside_writers_that_are_killed_and_replaced_sees_what_was_promised(
    tmp_path: Path,
) -> None:
    killed, messages, report = check_dying_writers(5, 1, tmp_path)

    assert killed >= 3
    assert messages > 50
    assert report.looks > 20
    assert report.changes > 3


def test_a_reader_beside_writers_whose_disk_fails_sees_what_was_promised(tmp_path: Path) -> None:
    messages, report = check_failing_writers(1, 100, tmp_path)

    assert messages > 50
    assert report.looks > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(5))
def test_a_reader_beside_many_writers_that_are_killed_sees_what_was_promised(
    seed: int, tmp_path: Path
) -> None:
    killed, messages, report = check_dying_writers(100, seed, tmp_path)
    print(f"seed {seed}: {killed} killed, {messages} messages, {report.looks} looks")

    assert killed > 60
    assert report.changes > 500


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_reader_beside_many_writers_whose_disk_fails_sees_what_was_promised(
    tmp_path: Path,
) -> None:
    messages, report = check_failing_writers(10, 1000, tmp_path)
    print(f"{messages} messages, {report.looks} looks")

    assert report.changes > 500
