"""Stores that were left, or copied, between the log and its dispatch: read as they are, and opened.

The first reader changes nothing and sees all that counts; so does the writer that comes next.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core.store.io.files import Failpoint
from broker_core.store.reader import StoreReader
from broker_core.store.writer import StoreWriter
from tests.kit import stores
from tests.kit.batches import view
from tests.kit.crash_script import NEXT_BOOT, Life, options, verify_after_death
from tests.kit.faulty_files import Died, FaultyFiles
from tests.kit.two_ways import ROOMY, Step, open_store, require_twin, take

SCRIPT = (
    Step("many", "A", 2),
    Step("many", "B", 2),
    Step("few", "A", 1),
    Step("few", "B", 3),
    Step("few", "A", 2, "sync"),
)
LEFT = {
    Failpoint.MARKED_PENDING: 4,
    Failpoint.PENDING_WRITTEN: 5,
    Failpoint.LOG_SYNCED: 5,
    Failpoint.QUEUE_WRITTEN: 5,
    Failpoint.INDEX_ENTRIES_WRITTEN: 5,
    Failpoint.INDEX_HEADER_WRITTEN: 5,
    Failpoint.INDEX_SLOTS_WRITTEN: 5,
    Failpoint.PENDING_DISPATCHED: 5,
}
"""How many appends count if the writer died there in its last append, or in the dispatch."""
OF_DISPATCH = list(LEFT)[3:]


class DiesLater(FaultyFiles):
    """Files whose process dies at a failpoint, from a word on."""

    def __init__(self, point: Failpoint) -> None:
        super().__init__()
        self._point = point
        self.is_armed = False

    def reach(self, point: Failpoint) -> None:
        if self.is_armed and point is self._point:
            self._die()
        super().reach(point)


def leave(root: Path, point: Failpoint) -> Life:
    """Leave a store as a writer does that dies somewhere between its last append and dispatch."""
    files, life = DiesLater(point), Life()
    store = open_store(root, files)
    for step in SCRIPT[:-1]:
        take(store, life, step)
    files.is_armed = point not in OF_DISPATCH
    with pytest.raises(Died):
        finish(store, life, files)
    files.abandon()
    return life


def finish(store: StoreWriter, life: Life, files: DiesLater) -> None:
    """Append for the last time, and dispatch; the writer dies in one of the two."""
    take(store, life, SCRIPT[-1])
    files.is_armed = True
    take(store, life, Step("turn"))


def require_seen(root: Path, life: Life, count: int) -> None:
    """Hold a reader to what counts: by queue, by key, by the end of each queue."""
    expected = life.possible(count)
    assert view(root, ROOMY) == expected
    reader = StoreReader(root, ROOMY)
    for (topic, queue_id), bodies in expected.items():
        assert reader.queue_range(topic, queue_id) == (0, len(bodies))
        newest = reader.frames(topic, queue_id, len(bodies) - 1, len(bodies))
        (raw,) = (raw for frames in newest for raw in frames.records())
        assert bodies[-1] in raw
    for topic, said in life.attempted[:count]:
        keys = [reader.lookup(topic, f"key-{row}", 99) for row in range(len(said))]
        appends = [len(each) for name, each in life.attempted[:count] if name == topic]
        assert [len(found) for found in keys] == [
            sum(row < size for size in appends) for row in range(len(said))
        ]
    reader.close()


@pytest.mark.parametrize("point", LEFT, ids=str)
def test_a_store_that_was_left_is_read_as_it_is_and_then_opened(
    point: Failpoint, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    life, count = leave(root, point), LEFT[point]
    assert life.acknowledged in (count, count - 1)
    before = stores.snapshot(root)

    require_seen(root, life, count)
    require_seen(root, life, count)
    assert stores.snapshot(root) == before

    open_store(root).close()
    require_seen(root, life, count)
    require_twin(root, life.attempted[:count], tmp_path)
    verify_after_death(root, life, tmp_path, settings=ROOMY, boot=None)


def without_times(source: str, target: str) -> None:
    """Copy a file's bytes alone, as `cp -r` does."""
    shutil.copyfile(source, target)
    os.utime(target, (1, 1))


@pytest.mark.parametrize("copy", [shutil.copy2, without_times])
def test_a_copy_of_a_store_that_lives_has_what_is_pending(
    copy: Callable[[str, str], object], tmp_path: Path
) -> None:
    root, copied = tmp_path / "store", tmp_path / "copied"
    life = Life()
    store = open_store(root)
    for step in SCRIPT:
        take(store, life, step)
    shutil.copytree(root, copied, copy_function=copy)
    before = stores.snapshot(copied)

    require_seen(copied, life, 5)
    assert stores.snapshot(copied) == before
    open_store(copied).close()
    require_seen(copied, life, 5)
    require_twin(copied, life.attempted, tmp_path)
    require_seen(root, life, 5)
    take(store, life, Step("few", "B", 2))
    require_seen(root, life, 6)
    store.close()
    require_twin(root, life.attempted, tmp_path)


def test_writers_that_take_turns_dispatch_each_others_tails(tmp_path: Path) -> None:
    root, life = tmp_path / "store", Life()
    stores_open = [open_store(root), open_store(root), open_store(root)]
    take(stores_open[0], life, SCRIPT[0])
    take(stores_open[1], life, SCRIPT[1])
    for number in range(9):
        take(stores_open[number % 3], life, Step("few", "AB"[number % 2], 1 + number % 3))
        require_seen(root, life, 3 + number)
    for store in stores_open:
        store.close()
    require_twin(root, life.attempted, tmp_path)


# What a recovery passes that dispatches; a scan that finds queues in order passes the last four.
OF_RECOVERY = [
    Failpoint.QUEUE_CUT,
    Failpoint.QUEUE_WRITTEN,
    Failpoint.INDEX_REWOUND,
    Failpoint.INDEX_ENTRIES_WRITTEN,
    Failpoint.INDEX_HEADER_WRITTEN,
    Failpoint.INDEX_SLOTS_WRITTEN,
]


@pytest.mark.parametrize("point", OF_RECOVERY, ids=str)
def test_a_writer_does_not_go_on_from_memory_after_another_one_died_in_recovery(
    point: Failpoint, tmp_path: Path
) -> None:
    """It left its own tail, and nothing was appended since; but the store is not as it left it."""
    root, life = tmp_path / "store", Life()
    store = open_store(root)
    for step in SCRIPT:
        take(store, life, step)
    die_in_recovery(root, point, None)
    require_seen(root, life, 5)

    take(store, life, Step("few", "A", 2))
    require_seen(root, life, 6)
    store.close()
    require_twin(root, life.attempted, tmp_path)


@pytest.mark.parametrize("point", OF_RECOVERY[2:], ids=str)
def test_a_writer_does_not_go_on_from_memory_after_another_one_died_in_a_scan(
    point: Failpoint, tmp_path: Path
) -> None:
    root, life = tmp_path / "store", Life()
    store = open_store(root)
    for step in SCRIPT[:2]:
        take(store, life, step)
    die_in_recovery(root, point, NEXT_BOOT)

    take(store, life, SCRIPT[0])
    store.close()
    require_seen(root, life, 3)
    require_twin(root, life.attempted, tmp_path)


def die_in_recovery(root: Path, point: Failpoint, boot: bytes | None) -> None:
    """Open a store with another writer, which dies while it recovers it, or scans it."""
    files = FaultyFiles(stop_at=(point, 1))
    with pytest.raises(Died):
        open_store(root, files, how=options(boot)).flush()
    files.abandon()


class LooksOn(FaultyFiles):
    """Files beside whose changes a reader looks at the end of a queue."""

    def __init__(self, reader: StoreReader) -> None:
        super().__init__()
        self._reader = reader
        self.ends: list[int] = []

    def reach(self, point: Failpoint) -> None:
        super().reach(point)
        self.ends.append(self._reader.queue_range("A", 0)[1])


def test_what_a_reader_has_seen_of_an_append_that_died_stays_while_it_is_finished(
    tmp_path: Path,
) -> None:
    """It was promised to nobody, but its queue entries were there."""
    root, life = tmp_path / "store", Life()
    open_store(root).close()
    reader = StoreReader(root, ROOMY)
    assert reader.state.is_clean  # one that comes later sees what recovery will do
    files = DiesLater(Failpoint.INDEX_ENTRIES_WRITTEN)
    store = open_store(root, files)
    take(store, life, Step("many", "A", 2))
    files.is_armed = True
    with pytest.raises(Died):
        take(store, life, Step("many", "A", 6))
    files.abandon()
    assert reader.queue_range("A", 0) == (0, 4)

    looks = LooksOn(reader)
    open_store(root, looks).close()
    assert len(looks.ends) > 5
    assert set(looks.ends) == {4}
    require_twin(root, life.attempted, tmp_path)
