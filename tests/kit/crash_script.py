"""A short life of a store, and what must hold of it whenever it ends.

The script appends batches of both flush modes that roll over all three kinds of files, flushes,
deletes a topic and old segments, and closes. It notes what was acknowledged. Afterwards, whatever
happened, `verify` opens the store again and requires that every acknowledged message is there,
none is invented or doubled, `check` finds nothing, and the index equals one made anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from broker_core.errors import StorageError
from broker_core.store.check import check
from broker_core.store.files import Files
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
BOOT = bytes(range(1, 17))
NEXT_BOOT = bytes(range(2, 18))


@dataclass
class Life:
    """What a script did: batches in order, how many were acknowledged, how many are durable."""

    attempted: list[tuple[str, list[str]]] = field(default_factory=list)
    acknowledged: int = 0
    durable: int = 0
    deleted: list[str] = field(default_factory=list)
    is_deleting: bool = False

    def possible(self, count: int) -> View:
        """The queues if exactly the first `count` batches are there, and nothing was deleted."""
        found: View = {}
        for topic, bodies in self.attempted[:count]:
            for number, body in enumerate(bodies):
                found.setdefault((topic, number % 2), []).append(body.encode())
        return found


def options(boot: bytes = BOOT) -> SessionOptions:
    return SessionOptions(clock_ms=ticking(), lock_wait_s=10, boot=boot)


def live(root: Path, files: Files, life: Life, *, is_failing: bool = False) -> None:
    """Run the script. With `is_failing`, errors of the disk are met with another attempt."""
    attempt = _insisting if is_failing else _once
    store = attempt(
        lambda: StoreWriter.open(root, GIVEN, create=True, files=files, options=options())
    )

    def append(topic: str, count: int, flush: str) -> None:
        bodies = named(count, 100 * len(life.attempted), width=10)
        life.attempted.append((topic, bodies))
        try:
            store.append(batch(bodies, topic=topic), flush=flush)
        except StorageError:
            if not is_failing:
                raise
            # Nothing of it may have been kept, so that it can be sent again.
            life.attempted.pop()
            append(topic, count, flush)
            return
        life.acknowledged = len(life.attempted)
        if flush == "sync":
            life.durable = life.acknowledged

    append("A", 3, "async")
    append("A", 9, "async")
    append("B", 2, "sync")
    attempt(store.flush)
    life.durable = life.acknowledged
    append("A", 12, "sync")
    append("B", 5, "async")
    append("A", 1, "async")
    attempt(store.close)
    life.durable = life.acknowledged


def _once(work: Callable[[], StoreWriter | None]) -> StoreWriter:
    return work()  # type: ignore[return-value]  # only `open` gives anything


def _insisting(work: Callable[[], StoreWriter | None]) -> StoreWriter:
    for _ in range(3):
        try:
            return _once(work)
        except StorageError:
            continue
    return _once(work)


def verify_after_death(root: Path, life: Life, scratch: Path) -> None:
    """The process died: every batch is there as a whole or not at all, acknowledged ones are."""
    store = StoreWriter.open(root, GIVEN, create=True, files=QuickFiles(), options=options())
    found = view(root, GIVEN)
    whole = [life.possible(count) for count in range(life.acknowledged, len(life.attempted) + 1)]
    assert found in whole
    _verify_goes_on(store, root, found, scratch)


def verify_after_power_loss(root: Path, life: Life, scratch: Path) -> None:
    """The machine died: what was durable is there, and no more than a first part of the rest."""
    store = StoreWriter.open(
        root, GIVEN, create=True, files=QuickFiles(), options=options(NEXT_BOOT)
    )
    found = view(root, GIVEN)
    low, high = life.possible(life.durable), life.possible(len(life.attempted))
    for queue, bodies in low.items():
        assert found.get(queue, [])[: len(bodies)] == bodies
    for queue, bodies in found.items():
        assert bodies == high.get(queue, [])[: len(bodies)]
    _verify_goes_on(store, root, found, scratch)


def _verify_goes_on(store: StoreWriter, root: Path, found: View, scratch: Path) -> None:
    """The store is whole, takes another batch, and is whole after that too."""
    problems = check(root, GIVEN)
    assert problems == []
    assert index_bytes(root) == rebuilt_index(root, scratch / "first", TINY)
    store.append(batch(["last"], topic="A", queues=1))
    store.close()
    after = view(root, GIVEN)
    assert after == found | {("A", 0): [*found.get(("A", 0), []), b"last"]}
    assert check(root, GIVEN) == []
    assert index_bytes(root) == rebuilt_index(root, scratch / "second", TINY)


def chance(*seeds: object) -> random.Random:
    """Randomness that is the same on every run."""
    return random.Random(repr(seeds))


__all__ = [
    "BOOT",
    "GIVEN",
    "TINY",
    "Life",
    "chance",
    "live",
    "options",
    "replace",
    "verify_after_death",
    "verify_after_power_loss",
]
