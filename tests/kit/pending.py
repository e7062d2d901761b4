"""Pending tails for tests: what a store has in its log and not yet in queues and index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from broker_core.broker.broker import EmbeddedBroker
from broker_core.store.few_records import FewRecords
from broker_core.store.log.commit_log import CommitLog
from broker_core.store.log.scan import counted_end
from broker_core.store.queue.consume_queue import ConsumeQueue, list_queues
from broker_core.store.recovery.shutdown_state import CHECKPOINT_NAME
from broker_core.store.recovery.tail_marker import TailMarker, decode_tail
from broker_core.store.writer import StoreWriter
from tests.kit.batches import batch


def marker(root: Path) -> TailMarker:
    """The marker of a store."""
    found = decode_tail((root / CHECKPOINT_NAME).read_bytes())
    assert found is not None, f"{root} has no valid marker"
    return found


def pending_records(root: Path) -> int:
    """How many records of the log that count lie behind what queues and index have."""
    tail = marker(root)
    if not tail.has_pending:
        return 0
    log = CommitLog(root / "commitlog")
    end = counted_end(log, tail)
    return sum(
        int((stretch.starts + stretch.segment.base < end).sum())
        for stretch in log.walk(tail.dispatched_end)
    )


def require_pending(root: Path, records: int) -> None:
    """Fail unless exactly so many records are pending: the log has them, no queue leads to them."""
    assert pending_records(root) == records
    reached = 0
    for topic, queue_id in list_queues(root / "consumequeue"):
        queue = ConsumeQueue(root / "consumequeue" / topic / str(queue_id))
        end = queue.written_end(may_have_holes=True)
        for entry in queue.read(max(queue.first, end - 1), end):
            reached = max(reached, int(entry["physical_offset"]) + int(entry["size"]))
    assert reached <= marker(root).dispatched_end


def few(
    writer: StoreWriter,
    bodies: Sequence[str],
    *,
    topic: str = "T",
    queues: int = 2,
    first: int = 0,
    flush: str = "async",
) -> None:
    """Append messages of batches.batch the quick way, or fail."""
    messages = batch(bodies, topic=topic, queues=queues, first=first)
    records = FewRecords.of(writer.as_batch(messages))
    assert records is not None
    writer.append_few(records, flush=flush)


@contextmanager
def abandoned(broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """A broker that is left as a process that is killed leaves one: nothing is flushed."""
    try:
        yield broker
    finally:
        broker.writer._session.close()
        broker.reader.close()


def tear(root: Path) -> None:
    """Take half of the last append away, as a kill in the middle of its write does."""
    tail = marker(root)
    assert tail.pending_end > tail.log_end, "the last append was not a quick one"
    path = next(
        segment.path
        for segment in CommitLog(root / "commitlog").segments
        if segment.base < tail.pending_end <= segment.end
    )
    with path.open("r+b") as file:
        lost = (tail.pending_end - tail.log_end) // 2
        file.seek((tail.pending_end - lost) % path.stat().st_size)
        file.write(bytes(lost))
