"""A life of a store that takes both ways into the log, and what the way of many alone leaves.

The script's quick appends (log_first.py) meet every border: of the log's segments, of consume-queue
files and of index files. Between them come appends of the way of many, turns that dispatch, and a
flush. Whatever happened, the log, the consume queues and the index of the store that is left equal
those of its `twin`, byte for byte.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from broker_core.errors import StorageError
from broker_core.store.few_records import FewRecords
from broker_core.store.io.files import Failpoint, OsFiles
from broker_core.store.log.commit_log import CommitLog
from broker_core.store.log.scan import LogScan
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from tests.kit.batches import QuickFiles, batch, named, view
from tests.kit.crash_script import Life, options
from tests.kit.faulty_files import Died, FaultyFiles

ROOMY = StoreSettings.load(
    {
        "mappedFileSizeCommitLog": 4096,
        "mappedFileSizeConsumeQueue": 200,
        "maxHashSlotNum": 20,
        "maxIndexNum": 60,
    }
)
"""Files of about twenty messages: quick appends fit between the borders."""
TREES = ("commitlog", "consumequeue", "consumequeue_ext", "index")


class Step(NamedTuple):
    """What a script does next: `way` is "few", "many", "turn" or "flush"."""

    way: str
    topic: str = ""
    records: int = 0
    flush: str = "async"


SCRIPT = (
    Step("many", "A", 2),
    Step("few", "A", 1),
    Step("few", "A", 3, "sync"),
    Step("few", "B", 2),  # no files yet: goes the way of many
    Step("few", "B", 1, "sync"),
    Step("few", "A", 4),
    Step("turn"),
    Step("few", "B", 2),
    Step("few", "A", 5),  # over the borders of queue files
    Step("few", "A", 1),
    Step("flush"),
    Step("few", "B", 3),  # over the border of a segment
    Step("few", "A", 2, "sync"),
    Step("few", "A", 1),
    Step("many", "B", 3, "sync"),
    Step("few", "B", 1),
    Step("few", "A", 4),  # over the border of an index file
    Step("few", "B", 2, "sync"),
    Step("few", "A", 1),
)


def bodies_of(number: int, count: int) -> list[str]:
    """The messages of a script's step, of many lengths."""
    return [
        body.ljust(10 + 17 * row % 50, ".")
        for row, body in enumerate(named(count, 100 * number, 10))
    ]


def open_store(
    root: Path,
    files: OsFiles | None = None,
    *,
    settings: StoreSettings = ROOMY,
    how: SessionOptions | None = None,
) -> StoreWriter:
    """The store, open for writing on this machine's boot; made if it is not there."""
    return StoreWriter.open(
        root, settings, create=True, files=files or QuickFiles(), options=how or options(None)
    )


def take(store: StoreWriter, life: Life, step: Step) -> None:
    """Take a step of a script, and note what became of it."""
    if step.way == "turn":
        with store.turn("look"):
            return
    if step.way == "flush":
        store.flush()
        life.durable = life.acknowledged
        return
    bodies = bodies_of(len(life.attempted), step.records)
    life.attempted.append((step.topic, bodies))
    messages = batch(bodies, topic=step.topic)
    if step.way == "few":
        few = FewRecords.of(store.as_batch(messages))
        assert few is not None
        store.append_few(few, flush=step.flush)
    else:
        put_many(store, step.topic, bodies, step.flush)
    life.acknowledged = len(life.attempted)
    if step.flush == "sync":
        life.durable = life.acknowledged


def put_many(store: StoreWriter, topic: str, bodies: Sequence[str], flush: str = "async") -> None:
    """Append by the way of many, however few: what is decided under a guard goes that way."""
    store.append(batch(bodies, topic=topic), flush=flush, guard=lambda: None)


def live(root: Path, files: FaultyFiles, life: Life, script: Iterable[Step] = SCRIPT) -> None:
    """Run a script once, without looking back."""
    store = open_store(root, files)
    for step in script:
        take(store, life, step)
    store.close()
    life.durable = life.acknowledged


def die(root: Path, files: FaultyFiles, script: Iterable[Step] = SCRIPT) -> Life:
    """Run a script until its process dies, or to its end."""
    life = Life()
    with contextlib.suppress(Died):
        live(root, files, life, script)
    return life


def insist(root: Path, files: FaultyFiles, life: Life) -> int:
    """Run the script over a disk that fails; how many calls failed.

    Whenever one does, nothing of it may be visible, all that was acknowledged is, and the same call
    works once the disk does.
    """
    failures = 0

    def attempt(work: Callable[[], StoreWriter | None]) -> StoreWriter | None:
        nonlocal failures
        before = len(life.attempted)
        try:
            return work()
        except StorageError:
            failures += 1
            del life.attempted[before:]
            if life.attempted:
                assert view(root, ROOMY) == life.possible(before)
            files.heal()
            done = work()
            assert view(root, ROOMY) == life.possible(len(life.attempted))
            return done

    store = attempt(lambda: open_store(root, files))
    assert store is not None
    for step in SCRIPT:
        attempt(partial(take, store, life, step))
    attempt(store.close)
    return failures


class Notes(FaultyFiles):
    """Files that note every failpoint that their writer passes."""

    def __init__(self) -> None:
        super().__init__()
        self.passed: list[Failpoint] = []

    def reach(self, point: Failpoint) -> None:
        super().reach(point)
        self.passed.append(point)


# Twins


def store_bytes(root: Path) -> dict[str, bytes]:
    """Every file of log, queues and index that holds something.

    Files of zeros may be left by what was taken back, or made ahead.
    """
    found = {}
    for tree in TREES:
        for path in sorted((root / tree).rglob("*")):
            content = path.read_bytes() if path.is_file() else b""
            if content.strip(b"\0"):
                found[str(path.relative_to(root))] = content
    return found


def store_times(root: Path, settings: StoreSettings) -> Iterator[int]:
    """The store time of each record of the log, in order."""
    log = CommitLog(*settings.commit_log_directories(root))
    for requests in LogScan(log, settings, log.start).batches():
        times = requests.store_timestamps
        yield from [int(times[row]) for row in range(len(requests.physical_offsets))]


def require_twin(
    root: Path,
    appends: Sequence[tuple[str, list[str]]],
    scratch: Path,
    settings: StoreSettings = ROOMY,
) -> None:
    """Append all of it again by the way of many, at the times that the store says; compare bytes.

    A writer must have dispatched what the store had pending.
    """
    twin = scratch / "twin"
    shutil.rmtree(twin, ignore_errors=True)
    times = list(store_times(root, settings))
    now = [0]
    how = SessionOptions(clock_ms=lambda: now[0])
    done = 0
    with contextlib.closing(open_store(twin, settings=settings, how=how)) as store:
        for topic, bodies in appends:
            now[0] = times[done]
            put_many(store, topic, bodies)
            done += len(bodies)
        with store.turn("compare"):
            assert differing(store_bytes(root), store_bytes(twin)) == []
    assert done == len(times)


def differing(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    """The names of files that are not the same."""
    return sorted(
        name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)
    )
