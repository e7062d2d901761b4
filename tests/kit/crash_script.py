"""A short life of a store, and what must hold of it whenever it ends.

The script appends batches of both flush modes that roll over all three kinds of files, flushes in
between, and closes. It notes what was acknowledged, and what was promised to be durable. Whatever
happened then, the store is opened again, and every message that was promised must be there, none
invented or doubled, `check` must find nothing, and the index must equal one made anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from broker_core.errors import StorageError
from broker_core.store.check.store import check
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from tests.kit.batches import (
    QuickFiles,
    View,
    batch,
    index_bytes,
    named,
    rebuilt_index,
    ticking,
    view,
)
from tests.kit.faulty_files import FaultyFiles

TINY = StoreSettings(
    commit_log_file_bytes=2048, consume_queue_file_bytes=100, index_slots=20, index_entries=24
)
GIVEN = StoreSettings.load(
    {
        "mappedFileSizeCommitLog": 2048,
        "mappedFileSizeConsumeQueue": 100,
        "maxHashSlotNum": 20,
        "maxIndexNum": 24,
    }
)
FIRST = [("A", 3, "async"), ("A", 9, "async"), ("B", 2, "sync")]
SECOND = [("A", 12, "sync"), ("B", 5, "async"), ("A", 1, "async")]
"""Topic, messages and flush mode of each batch, before and after a flush."""
BOOT = bytes(range(1, 17))
NEXT_BOOT = bytes(range(2, 18))

T = TypeVar("T")


@dataclass
class Life:
    """What a script did: batches in order, how many were acknowledged, how many are durable."""

    attempted: list[tuple[str, list[str]]] = field(default_factory=list)
    acknowledged: int = 0
    durable: int = 0

    def possible(self, count: int) -> View:
        """The queues if exactly the first `count` batches are there, and nothing was deleted."""
        found: View = {}
        for topic, bodies in self.attempted[:count]:
            for number, body in enumerate(bodies):
                found.setdefault((topic, number % 2), []).append(body.encode())
        return found


def options(boot: bytes | None = BOOT) -> SessionOptions:
    return SessionOptions(clock_ms=ticking(), lock_wait_s=10, boot=boot)


def live(root: Path, files: FaultyFiles, life: Life) -> None:
    """Run the script once, without looking back."""
    store = StoreWriter.open(root, GIVEN, create=True, files=files, options=options())
    for topic, count, flush in FIRST:
        append(store, life, topic, count, flush)
    store.flush()
    life.durable = life.acknowledged
    for topic, count, flush in SECOND:
        append(store, life, topic, count, flush)
    store.close()
    life.durable = life.acknowledged


def insist(root: Path, files: FaultyFiles, life: Life) -> int:
    """Run the script over a disk that fails; how many calls failed.

    Whenever one does, nothing of it may be visible, and the same call must work once the disk
    does.
    """
    failures = 0

    def attempt(work: Callable[[], T]) -> T:
        nonlocal failures
        try:
            return work()
        except StorageError:
            failures += 1
            files.heal()
            return work()

    store = attempt(
        lambda: StoreWriter.open(root, GIVEN, create=True, files=files, options=options())
    )
    for topic, count, flush in FIRST + SECOND:
        before = len(life.attempted)
        try:
            append(store, life, topic, count, flush)
        except StorageError:
            failures += 1
            del life.attempted[before:]
            assert view(root, GIVEN) == life.possible(before)
            files.heal()
            append(store, life, topic, count, flush)
        attempt(store.flush)
    attempt(store.close)
    return failures


def append(store: StoreWriter, life: Life, topic: str, count: int, flush: str) -> None:
    """Append a batch and note what became of it."""
    # Of many lengths, so that records are cut by sectors in all kinds of places.
    number = len(life.attempted)
    bodies = [
        body.ljust(10 + 17 * row % 50, ".")
        for row, body in enumerate(named(count, 100 * number, 10))
    ]
    life.attempted.append((topic, bodies))
    store.append(batch(bodies, topic=topic), flush=flush)
    life.acknowledged = len(life.attempted)
    if flush == "sync":
        life.durable = life.acknowledged


def verify_after_death(
    root: Path,
    life: Life,
    scratch: Path,
    *,
    settings: StoreSettings = GIVEN,
    boot: bytes | None = BOOT,
) -> None:
    """The process died: every batch is there as a whole or not at all, acknowledged ones are."""
    store = StoreWriter.open(root, settings, create=True, files=QuickFiles(), options=options(boot))
    found = view(root, settings)
    whole = [life.possible(count) for count in range(life.acknowledged, len(life.attempted) + 1)]
    assert found in whole
    _verify_goes_on(store, root, found, scratch)


def verify_after_power_loss(
    root: Path, life: Life, scratch: Path, *, settings: StoreSettings = GIVEN
) -> None:
    """The machine died: what was durable is there, and no more than a first part of the rest."""
    store = StoreWriter.open(
        root, settings, create=True, files=QuickFiles(), options=options(NEXT_BOOT)
    )
    found = view(root, settings)
    low, high = life.possible(life.durable), life.possible(len(life.attempted))
    for queue, bodies in low.items():
        assert found.get(queue, [])[: len(bodies)] == bodies
    for queue, bodies in found.items():
        assert bodies == high.get(queue, [])[: len(bodies)]
    _verify_goes_on(store, root, found, scratch)


def _verify_goes_on(store: StoreWriter, root: Path, found: View, scratch: Path) -> None:
    """The store is whole, takes another batch, and is whole after that too."""
    problems = check(root, store.settings)
    assert problems == []
    assert index_bytes(root) == rebuilt_index(root, scratch / "first", store.settings)
    store.append(batch(["last"], topic="A", queues=1))
    store.close()
    after = view(root, store.settings)
    assert after == found | {("A", 0): [*found.get(("A", 0), []), b"last"]}
    assert check(root, store.settings) == []
    assert index_bytes(root) == rebuilt_index(root, scratch / "second", store.settings)


def chance(*seeds: object) -> random.Random:
    """Randomness that is the same on every run."""
    return random.Random(repr(seeds))
