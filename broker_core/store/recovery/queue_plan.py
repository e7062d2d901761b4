"""Queue plan: which entries of a consume queue recovery keeps, and which it writes.

The log is the authority, a queue a list of physical offsets in it. Recovery scans the log from some
offset on (the scan start; before it, queues are known to be right) and compares. The rules:

- An entry from the scan start on counts only if the scan found that very record: same offset,
  size and queue offset. The first that does not ends what is kept.
- Records behind the last kept entry are appended, if they go on where it ends.
- A queue offset that goes back means that a broker that numbers anew (Apache's, an older release)
  deleted the topic and made it again: only the last run of consecutive offsets is the living queue,
  and older entries go.
- Queue offsets that leave a gap after what is kept mean that more of the queue is missing than
  the scan covers. Recovery then scans the whole log; if the gap stays, the messages in it went
  with deleted segments, and the queue begins behind them.
- Records of a deleted topic belong to no queue (queue/deletions.py, `known_topics`). A queue of one
  made again begins where the old one ended, which its ConsumeQueue knows.

recover.py carries these plans out; readers lay them over a crashed store (inspect.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.property_names import is_system_topic
from broker_core.errors import CorruptRecordError, OffsetRangeError
from broker_core.store import config_files
from broker_core.store.dispatch import group_by_queue, queue_entries
from broker_core.store.io.files import first_hole, is_zero
from broker_core.store.io.segments import is_path_part
from broker_core.store.queue.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    FILLER_SIZE,
    ConsumeQueue,
    is_filler,
    is_written,
)
from broker_core.types import LogicalOffset, PhysicalOffset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.dispatch_request import DispatchRequests
    from broker_core.store.io.segments import Segment
    from broker_core.store.log.commit_log import CommitLog
    from broker_core.store.queue.writer import QueueKey

log = logging.getLogger(__name__)


class GapError(Exception):
    """Raised if a queue lacks entries that this scan of the log can't supply."""


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A queue's recovery: its first `keep` entries stay, and `entries` follow from `start` on.

    `start` is `keep`, except for a queue that starts again (`keep` is 0).
    """

    keep: int
    start: int
    entries: NDArray[np.void]

    @property
    def end(self) -> int:
        """The queue's end after recovery."""
        return self.start + len(self.entries) if len(self.entries) else self.keep


@dataclass(frozen=True, slots=True)
class QueueTail:
    """The end of a queue before recovery: `first` is the number of entries[0].

    Everything before `first` points to records before the scan start. `last_end` is where the
    record of entry `first` - 1 ends in the log, -1 if there is none or it is a filler.
    `has_more` says that something is written behind the entries, after a hole.
    """

    first: int
    last_end: int
    entries: NDArray[np.void]
    has_more: bool = False


@dataclass(slots=True)
class ScannedRecords:
    """Records of one queue that a scan found, in log order."""

    offsets: list[NDArray[np.int64]] = field(default_factory=list)
    entries: list[NDArray[np.void]] = field(default_factory=list)

    def joined(self) -> tuple[NDArray[np.int64], NDArray[np.void]]:
        """Return queue offsets and entries of all records."""
        if not self.offsets:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=ENTRY)
        # Joining would otherwise turn big-endian fields into native ones.
        return np.concatenate(self.offsets), np.concatenate(self.entries, dtype=ENTRY)


def collect(found: dict[QueueKey, ScannedRecords], requests: DispatchRequests) -> None:
    """Add a batch of scanned records to those of their queues."""
    for queue, offsets, entries in records_by_queue(requests):
        records = found.setdefault(queue, ScannedRecords())
        records.offsets.append(offsets)
        records.entries.append(entries)


def records_by_queue(
    requests: DispatchRequests,
) -> Iterator[tuple[QueueKey, NDArray[np.int64], NDArray[np.void]]]:
    """Yield each queue of a batch with its records: queue offsets, and entries to expect.

    Records whose topic can't be a directory, or whose queue is negative, have no queue: no writer
    of ours appends such, and one of an older release must not become a path.
    """
    groups = group_by_queue(
        requests.topics, requests.topic_codes, requests.queue_ids, requests.in_queue
    )
    entries = queue_entries(requests, groups.rows)
    offsets = requests.queue_offsets[groups.rows]
    for number, queue in enumerate(groups.queues):
        part = slice(int(groups.bounds[number]), int(groups.bounds[number + 1]))
        if not is_path_part(queue[0]) or queue[1] < 0:
            log.warning(
                "event=records_without_queue topic=%r queue=%d count=%d physical_offset=%d",
                *queue,
                part.stop - part.start,
                int(entries[part][0]["physical_offset"]),
            )
            continue
        yield queue, offsets[part], entries[part]


def read_tail(queue: ConsumeQueue, scan_start: int) -> QueueTail:
    """Read the entries of a queue that a scan from `scan_start` has to account for."""
    # Newest file first: the one whose first entry points before the scan's start holds the border.
    for segment in reversed(queue.segments):
        base = segment.base // ENTRY_BYTES
        first = queue.read(base, base + 1)
        if not is_written(first).all() or not _is_before(first, scan_start).all():
            continue
        entries = queue.read(base, _stop(segment))
        sound = is_written(entries) & _is_before(entries, scan_start)
        count = len(entries) if sound.all() else int(np.argmin(sound))
        start = base + count
        return QueueTail(start, _end_of(entries[count - 1]), *_written_from(queue, start))
    return QueueTail(queue.first, -1, *_written_from(queue, queue.first))


def _stop(segment: Segment) -> int:
    """Return the number of the first entry in a hole: nothing behind it need be read."""
    stop = segment.base + min(first_hole(segment.path), segment.size)
    return -(-stop // ENTRY_BYTES)


def _is_before(entries: NDArray[np.void], scan_start: int) -> NDArray[np.bool_]:
    """Return which entries point to records before the scan's start; fillers point to none."""
    mask: NDArray[np.bool_] = is_filler(entries) | (
        (entries["physical_offset"] < scan_start) & (entries["physical_offset"] >= 0)
    )
    return mask


def _end_of(entry: np.void) -> int:
    """Return the physical offset at which an entry's record ends; -1 for a filler."""
    if is_filler(np.array([entry], dtype=ENTRY))[0]:
        return -1
    return int(entry["physical_offset"]) + int(entry["size"])


def _written_from(queue: ConsumeQueue, start: int) -> tuple[NDArray[np.void], bool]:
    """Read entries from `start` to the first that was never written; tell whether more follow."""
    parts = [np.zeros(0, dtype=ENTRY)]
    has_more = False
    is_done = False
    for segment in queue.segments:
        base, end = segment.base // ENTRY_BYTES, segment.end // ENTRY_BYTES
        if end <= start:
            continue
        if is_done:
            has_more = has_more or not is_zero(segment.path, 0)
            continue
        first = max(start, base)
        entries = queue.read(first, max(first, _stop(segment)))
        written = is_written(entries)
        if len(entries) < end - first or not written.all():
            count = len(entries) if written.all() else int(np.argmin(written))
            entries, is_done = entries[:count], True
            has_more = not is_zero(segment.path, (first - base + count) * ENTRY_BYTES)
        parts.append(entries)
    return np.concatenate(parts, dtype=ENTRY), has_more


def reconcile(
    queue: QueueKey,
    tail: QueueTail,
    records: ScannedRecords,
    *,
    dispatch_from: int,
    log_start: int | None,
) -> QueuePlan | None:
    """Decide what happens to a queue; None if it is right as it is.

    Only records from the physical offset `dispatch_from` on may be added. `log_start` is given
    when the scan covered the whole log; without it a gap raises GapError, with it a gap between
    messages that the log still holds is corruption.
    """
    offsets, entries = records.joined()
    matched = _matching(tail, offsets, entries)
    keep = tail.first + matched
    last_end = _end_of(tail.entries[matched - 1]) if matched else tail.last_end
    # What lies before the last kept record and has no entry is of an earlier topic of that name.
    new = entries["physical_offset"] >= max(last_end, dispatch_from)
    offsets, entries = offsets[new], entries[new]
    is_whole = matched == len(tail.entries) and not tail.has_more
    if not len(offsets):
        return None if is_whole else QueuePlan(keep, keep, entries)
    # Row 0 counts as a break, by the value put before it: the last break begins the living queue.
    run = int(np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)[-1])
    start = int(offsets[run])
    if start > keep and run == 0:
        # A gap. The missing records lie before the scan's start, or went with deleted segments; if
        # the log still holds what is kept, neither is true.
        if log_start is None:
            raise GapError
        if last_end > log_start:
            raise _missing(queue, keep, start, int(entries[0]["physical_offset"]))
    if run > 0 and start > 0:
        # Our numbers go on, a foreign broker's begin at 0: any other break is a changed record.
        raise _missing(queue, int(offsets[run - 1]), start, int(entries[run]["physical_offset"]))
    # A run that does not go on where the kept entries end is another queue of that name: they go.
    return QueuePlan(keep if start == keep else 0, start, entries[run:])


def _missing(queue: QueueKey, end: int, start: int, physical_offset: int) -> CorruptRecordError:
    topic, queue_id = queue
    message = (
        f"The log has no message {end} to {start - 1} of queue {topic}/{queue_id}, but message "
        f"{start} at physical offset {physical_offset}. Restore the store from a backup, or open "
        "it with mode='r'."
    )
    return CorruptRecordError(message, "", physical_offset)


def _matching(tail: QueueTail, offsets: NDArray[np.int64], entries: NDArray[np.void]) -> int:
    """Count the tail's entries, from its first on, that are records which the scan found."""
    if not len(tail.entries) or not len(entries):
        return 0
    scanned = entries["physical_offset"].astype(np.int64)
    wanted = tail.entries["physical_offset"].astype(np.int64)
    at = np.minimum(np.searchsorted(scanned, wanted), len(scanned) - 1)
    same = (
        (scanned[at] == wanted)
        & (entries["size"][at] == tail.entries["size"])
        & (offsets[at] == tail.first + np.arange(len(wanted)))
    )
    return len(same) if same.all() else int(np.argmin(same))


@dataclass(frozen=True, slots=True)
class LastEntry:
    """The newest entry of a queue, by its bytes alone."""

    queue: QueueKey
    offset: LogicalOffset
    physical_offset: PhysicalOffset
    size: int

    @property
    def end(self) -> int:
        """The physical offset at which its record ends; -1 for a filler."""
        return -1 if self.size == FILLER_SIZE else self.physical_offset + self.size


def last_entry(queue: QueueKey, directory: Path) -> LastEntry | None:
    """Return the newest entry of a queue; None if it has none."""
    view = ConsumeQueue(directory)
    end = view.written_end(may_have_holes=True)
    for entry in view.read(end - 1, end) if end > view.first else ():
        physical_offset = PhysicalOffset(int(entry["physical_offset"]))
        return LastEntry(queue, LogicalOffset(end - 1), physical_offset, int(entry["size"]))
    return None


def leads_beyond(log: CommitLog, last: LastEntry, log_end: int, last_store_ms: int) -> bool:
    """Return True if a queue's last entry leads to its message, whole, behind the log's end.

    Records from before an earlier cut can lie there too: they are older than `last_store_ms`, the
    store time of the last record before `log_end`.
    """
    if last.physical_offset <= log_end:
        return False
    try:
        record = log.record(last.physical_offset)
    except (CorruptRecordError, OffsetRangeError):
        return False
    same = (record.topic, record.queue_id, record.queue_offset) == (*last.queue, last.offset)
    return same and record.store_timestamp >= last_store_ms


def known_topics(root: Path) -> Callable[[str], bool]:
    """Return the test for whether records of a topic without consume queues should get some.

    After an unclean stop its queues may be lost, or it may have been deleted: the configuration
    tells, where there is one. Topics that brokers make for themselves are not always in it.
    """
    table = config_files.load(root / "config" / "topics.json").get("topicConfigTable")
    if not isinstance(table, dict):
        return lambda _topic: True
    return lambda topic: topic in table or is_system_topic(topic)
