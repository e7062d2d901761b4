"""Readers beside processes that commit large batches in pieces, and roll others back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_core.store.check.store import check
from broker_core.types import BatchRef
from tests.kit import stores
from tests.kit.crash_child import kill
from tests.kit.seen import OWNER, Seen, changes, faults, look, wanted
from tests.kit.watched_commit import (
    DONE,
    HALF_WAY,
    TASKS,
    Size,
    commit_batches,
    create,
    open_writer,
    prepare_tasks,
    roll_back_batches,
    running,
)

MEDIUM = Size(batches=2, rows=15_000, piece_rows=1_500, block_rows=100, file_bytes=1 << 20)
LARGE = Size(batches=3, rows=50_000, piece_rows=5_000, block_rows=100, file_bytes=1 << 22)
"""Three hundred thousand messages that are committed, twenty pieces a batch."""


class Watcher:
    """A reader that looks again and again: each look is judged, and against the one before."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept_open = stores.open_r(root)
        self.last = look(self._kept_open)
        self.looks = 1

    def look(self) -> Seen:
        """Look once, by a reader that was there all the time and by a new one."""
        for _ in range(2):
            seen = look(self._kept_open) if self.looks % 2 else self._look_anew()
            assert faults(seen) + changes(self.last, seen) == []
            self.last = seen
            self.looks += 1
        return self.last

    def _look_anew(self) -> Seen:
        with stores.open_r(self._root) as reader:
            return look(reader)

    def close(self) -> None:
        self._kept_open.close()


@contextmanager
def watching(root: Path) -> Iterator[Watcher]:
    watcher = Watcher(root)
    try:
        yield watcher
    finally:
        watcher.close()


def rows_of(seen: Seen, batch: int) -> int:
    return int((seen.messages["batch"] == batch).sum())


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(MEDIUM, id="medium"),
        pytest.param(LARGE, id="large", marks=pytest.mark.slow),  # looks at so much take long
    ],
)
def test_readers_beside_commits_and_roll_backs_see_what_is_decided_in_order(
    tmp_path: Path, size: Size
) -> None:
    root = tmp_path / "store"
    create(root, size)
    parts: list[int] = []
    word = ""

    with (
        watching(root) as watcher,
        running(roll_back_batches, root, size) as (_, roller),
        running(commit_batches, root, size) as (_, told),
    ):
        while word != DONE:
            watcher.look()
            word = told.recv() if told.poll() else ""
            if word == HALF_WAY:
                parts.append(rows_of(watcher.look(), batch=len(parts)))
                told.send("go on")
        roller.send("stop")
        rolled_back = roller.recv()
        last = watcher.look()

    whole = TASKS * size.rows
    assert rolled_back > 0
    assert parts == [whole // 2] * size.batches
    assert last.bodies() == wanted(range(size.batches), TASKS, size.rows)


@pytest.mark.parametrize("is_replayed", [True, False], ids=["replayed", "checked-back"])
def test_readers_of_a_batch_whose_writer_was_killed_see_a_beginning_and_then_the_rest(
    tmp_path: Path, is_replayed: bool
) -> None:
    root = tmp_path / "store"
    create(root, MEDIUM)
    with running(commit_batches, root, MEDIUM) as (committer, told):
        told.recv()
        kill(committer)

    with watching(root) as watcher:
        left = watcher.look()
        with open_writer(root, MEDIUM) as broker:
            if is_replayed:
                receipts = prepare_tasks(broker.transactions, 0, 100, run=1)
                broker.transactions.commit_batch(BatchRef(OWNER, "", 0), receipts)
            else:
                broker.transactions.check_back()
        finished = watcher.look()

    assert len(left) == TASKS * MEDIUM.rows // 2
    assert finished.bodies() == wanted([0], TASKS, MEDIUM.rows)
    assert check(root, MEDIUM.settings) == []
