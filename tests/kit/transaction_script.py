"""A writer of batches that may die anywhere, and those who come after it.

The script does what a driver and its tasks do with one batch: two tasks prepare, a third attempt is
left over, one commit decides, in several appends. In between it sends single messages and a half
message, which stay pending until the next append of the batch dispatches them. What follows is one
of the ways in which the world goes on: Spark replays the batch, after check-back, an abort or
another query's commit, or before all of them. Whatever happened, at the end every message of the
batch is visible once, and every single one that was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.api import Transactions
from broker_core.errors import UnknownTransactionError
from broker_core.store.check.store import check
from broker_core.store.reader import StoreReader
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from broker_core.types import BatchRef, LocalTransactionState, Receipt
from tests.kit.faulty_files import FaultyFiles
from tests.kit.pending import pending_records
from tests.kit.transactions import SMALL_FILES, in_pieces, prepare, visible

FIRST = BatchRef("query:q", "", 0)
BATCH = BatchRef("query:q", "", 1)
LATER = BatchRef("query:q", "", 2)
OTHER = BatchRef("query:other", "", 0)
PIECE_ROWS = 4

ONE = [b"one-%d" % number for number in range(5)]
TWO = [b"two-%d" % number + b"." * 3000 for number in range(4)]
BEFORE = [b"before-%d" % number for number in range(2)]
AFTER = [b"after-%d" % number for number in range(2)]
LEFT_OVER = [b"left-over"]
SINGLES = [b"single-%d" % number for number in range(8)]
HALF = b"half"
SENT_TO, HALF_TO = 0, 1
"""The queues of the topic `s` that single messages, and the half message, are for."""


class Memory:
    """What outlives the process: the receipts that Spark holds, and whether it got its answer."""

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self.is_acknowledged = False
        self.singles = 0
        self.has_half = self.has_settled_half = False
        self.has_lost_power = False


def open_with(
    root: Path, files: FaultyFiles | None = None, boot: bytes | None = None
) -> EmbeddedBroker:
    settings = StoreSettings.load(SMALL_FILES)
    options = SessionOptions(boot=boot)
    writer = StoreWriter.open(root, settings, create=True, files=files, options=options)
    return EmbeddedBroker(str(root), StoreReader(root, writer.settings), writer)


def begin(root: Path) -> None:
    """A store in which the query has written its first batch."""
    with open_with(root) as broker:
        broker.create_topic("t", queues=2)
        broker.create_topic("u", queues=2)
        broker.create_topic("s", queues=2)
        for queue_id in (SENT_TO, HALF_TO):
            # Makes the files without which nothing goes the quick way.
            broker.send("s", b"first", keys="k", queue_id=queue_id)
        commit(broker.transactions, FIRST, 1, BEFORE)


def commit(transactions: Transactions, batch: BatchRef, attempt: int, bodies: list[bytes]) -> None:
    transactions.commit_batch(batch, [prepare(transactions, batch, attempt, bodies)], flush="sync")


def write_batch(root: Path, files: FaultyFiles, memory: Memory) -> None:
    """Prepare and commit the batch, with a piece per few messages, and single ones in between."""
    broker = open_with(root, files)
    transactions = in_pieces(broker, PIECE_ROWS, block_rows=2)
    send_single(broker, memory)
    prepare(transactions, BATCH, 13, LEFT_OVER)
    send_single(broker, memory, 2)
    receipts = [prepare(transactions, BATCH, 11, ONE)]
    memory.has_half = True
    half = transactions.prepare("s", HALF, group="g", queue_id=HALF_TO)
    assert pending_records(root) == 1
    receipts.append(prepare(transactions, BATCH, 12, TWO))
    send_single(broker, memory, 2)
    memory.receipts = receipts
    transactions.commit_batch(BATCH, memory.receipts, flush="sync")
    memory.is_acknowledged = True
    send_single(broker, memory)
    transactions.end(half, LocalTransactionState.COMMIT)
    memory.has_settled_half = True
    send_single(broker, memory)
    transactions.check_back()
    send_single(broker, memory)
    broker.close()


def send_single(broker: EmbeddedBroker, memory: Memory, count: int = 1) -> None:
    """Send messages one by one, none of which is dispatched yet."""
    for number in range(count):
        broker.send("s", SINGLES[memory.singles], keys="k", queue_id=SENT_TO)
        memory.singles += 1
        assert pending_records(broker.reader.root) > number


def replay(broker: EmbeddedBroker, memory: Memory) -> None:
    """Spark writes the batch again, in other tasks, unless it knows that it was committed."""
    if not memory.is_acknowledged:
        transactions = in_pieces(broker, PIECE_ROWS)
        receipts = [prepare(transactions, BATCH, 21, TWO), prepare(transactions, BATCH, 22, ONE)]
        transactions.commit_batch(BATCH, receipts, flush="sync")


def check_first(broker: EmbeddedBroker, memory: Memory) -> None:
    broker.transactions.check_back()
    replay(broker, memory)


def abort_first(broker: EmbeddedBroker, memory: Memory) -> None:
    # Half messages that were not flushed may be gone with the power.
    with suppress(*[UnknownTransactionError] * memory.has_lost_power):
        broker.transactions.abort_batch(BATCH, memory.receipts)
    replay(broker, memory)


def another_first(broker: EmbeddedBroker, memory: Memory) -> None:
    receipt = prepare(broker.transactions, OTHER, 31, [b"another"], topic="u")
    broker.transactions.commit_batch(OTHER, [receipt])
    broker.transactions.check_back()
    replay(broker, memory)


SEQUELS: list[Callable[[EmbeddedBroker, Memory], None]] = [
    replay,
    check_first,
    abort_first,
    another_first,
]


def verify(
    root: Path,
    memory: Memory,
    sequel: Callable[[EmbeddedBroker, Memory], None],
    boot: bytes | None = None,
) -> None:
    """Let the world go on, after another `boot` perhaps: everything must be there once."""
    memory.has_lost_power = boot is not None
    may_wait = memory.has_half and (memory.has_lost_power or not memory.has_settled_half)
    with open_with(root, boot=boot) as broker:
        verify_singles(broker, memory)
        sequel(broker, memory)
        commit(broker.transactions, LATER, 41, AFTER)
        report = broker.transactions.check_back()
        found = sorted(visible(broker))
    assert found == sorted(BEFORE + ONE + TWO + AFTER)
    assert report.waiting <= int(may_wait)
    assert check(root, StoreSettings.load(SMALL_FILES)) == []


def verify_singles(broker: EmbeddedBroker, memory: Memory) -> None:
    """Fail unless what was sent singly is there in its order: all that was acknowledged.

    Losing power may take the last ones, which nobody flushed.
    """
    sent = broker.read("s", SENT_TO, columns=["body"])["body"].to_pylist()[1:]
    halves = broker.read("s", HALF_TO, columns=["body"])["body"].to_pylist()[1:]
    assert sent == SINGLES[: len(sent)]
    assert halves in ([], [HALF])
    if not memory.has_lost_power:
        assert memory.singles <= len(sent) <= memory.singles + 1
        assert len(halves) >= int(memory.has_settled_half)
        assert broker.query("s", "k", 1000).num_rows == 2 + len(sent)
