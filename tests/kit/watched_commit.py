"""Writers whose batches are watched by readers: one that commits, one that rolls back.

    commit_batches      prepares and commits batches in pieces, and lets the test look at a batch
                        of which a part is visible
    roll_back_batches   prepares batches and rolls them back, until it is told to stop

Each runs in a process of its own; the store's lock lets them take turns, append by append.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.api import Transactions
from broker_core.store.io.files import Failpoint, OsFiles
from broker_core.store.reader import StoreReader
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from broker_core.types import BatchRef, Receipt
from tests.kit.seen import OWNER, QUEUES, TOPIC, Fate, bodies
from tests.kit.transactions import in_pieces, prepare

TASKS = 2
HALF_WAY, DONE = "half-way", "done"
Reach = Callable[[Failpoint], None]


@dataclass(frozen=True)
class Size:
    """How much a committing writer has to do, and in what pieces."""

    batches: int
    rows: int
    piece_rows: int
    block_rows: int = 1
    file_bytes: int = 1 << 16

    @property
    def settings(self) -> StoreSettings:
        return StoreSettings.load(
            {
                "mappedFileSizeCommitLog": self.file_bytes,
                "mappedFileSizeConsumeQueue": 20 * (self.file_bytes // 64),
                "maxHashSlotNum": 500,
                "maxIndexNum": 2000 * self.file_bytes // (1 << 16),
            }
        )


class ToldFiles(OsFiles):
    """The real files, which tell how far their writer is."""

    def __init__(self, on_reach: Reach) -> None:
        super().__init__()
        self._on_reach = on_reach

    def reach(self, point: Failpoint) -> None:
        self._on_reach(point)


def open_writer(root: Path, size: Size, files: OsFiles | None = None) -> EmbeddedBroker:
    """The store, open for writing; made if it is not there."""
    writer = StoreWriter.open(root, size.settings, create=True, files=files)
    return EmbeddedBroker(str(root), StoreReader(root, writer.settings), writer)


def create(root: Path, size: Size) -> None:
    """A store with an empty topic."""
    with open_writer(root, size) as broker:
        broker.create_topic(TOPIC, queues=QUEUES)


def prepare_tasks(
    transactions: Transactions, number: int, rows: int, *, run: int = 0
) -> list[Receipt]:
    """Prepare a batch: an attempt that is left over, and one for each task."""
    batch = BatchRef(OWNER, "", number)
    attempt = 1000 * run + 10 * number
    left_over = bodies(number, 0, rows // 10, Fate.LEFT_OVER)
    prepare(transactions, batch, attempt + TASKS, left_over, topic=TOPIC)
    return [
        prepare(transactions, batch, attempt + task, bodies(number, task, rows), topic=TOPIC)
        for task in range(TASKS)
    ]


def roll_back(transactions: Transactions, number: int, rows: int) -> None:
    """Prepare a batch of another query, and take it back."""
    batch = BatchRef("query:other", "", number)
    attempt = 1_000_000 + number
    messages = bodies(number, 0, rows, Fate.ROLLED_BACK)
    receipt = prepare(transactions, batch, attempt, messages, topic=TOPIC)
    transactions.abort_batch(batch, [receipt])


def commit_batches(root: Path, size: Size, told: Connection) -> None:
    """Commit all batches; in the middle of each, say so and wait for a word."""
    left = 0

    def on_reach(point: Failpoint) -> None:
        nonlocal left
        left -= point is Failpoint.MARKED_CLEAN
        if left == 0 and point is Failpoint.MARKED_CLEAN:
            told.send(HALF_WAY)
            told.recv()

    with open_writer(root, size, ToldFiles(on_reach)) as broker:
        transactions = in_pieces(broker, size.piece_rows, block_rows=size.block_rows)
        for number in range(size.batches):
            receipts = prepare_tasks(transactions, number, size.rows)
            left = TASKS * size.rows // size.piece_rows // 2
            transactions.commit_batch(BatchRef(OWNER, "", number), receipts)
    told.send(DONE)


def roll_back_batches(root: Path, size: Size, told: Connection) -> None:
    """Roll back one batch after another until a word comes."""
    with open_writer(root, size) as broker:
        transactions = in_pieces(broker, size.piece_rows, block_rows=size.block_rows)
        number = 0
        while not told.poll():
            roll_back(transactions, number, size.piece_rows // 10)
            number += 1
        told.send(number)


@contextmanager
def running(
    target: Callable[[Path, Size, Connection], None], root: Path, size: Size
) -> Iterator[tuple[ForkServerProcess, Connection]]:
    """Run a writer in a process of its own, which does not outlive the block."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.kit.watched_commit"])
    here, there = multiprocessing.Pipe()
    child = context.Process(target=target, args=(root, size, there), daemon=True)
    child.start()
    there.close()
    try:
        yield child, here
    finally:
        child.kill()
        child.join()
