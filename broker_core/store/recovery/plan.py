"""Recovery plan: where the log ends and what must change for a store to be whole; only reads.

The pure half of recover.py, which carries a plan out; the package's first page has the whole story.

The tail marker (tail_marker.py) is looked at first. If it can be believed, the plan is nothing, or
to dispatch what is pending, or to finish or take back the one batch that a writer died over. If
not, because a foreign broker started or power was lost in between, the log is scanned as RocketMQ
scans it:

    NORMAL     the store was closed cleanly (no `abort`): from the last segment that begins no later
               than what consume queues have reached.
    ABNORMAL   it was not: from the last segment that the checkpoint says is flushed everywhere.

Either way every record is checked with its checksum, the first that is not valid ends the log, and
consume queues are compared with what the scan found (queue_plan.py). After an abnormal stop index
files that were not filled and flushed before the checkpoint are rebuilt (index_plan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError, OffsetRangeError
from broker_core.store.format_check import batch_topics
from broker_core.store.index.file import IndexHeader
from broker_core.store.index.writer import IndexPosition
from broker_core.store.log.commit_log import CommitLog
from broker_core.store.log.scan import LogScan, counted_end, follows_record, is_unwritten
from broker_core.store.queue.consume_queue import ConsumeQueue, list_queues
from broker_core.store.queue.deletions import Deletions, QueueOrigins
from broker_core.store.recovery.index_plan import IndexPlan, plan_abnormal, plan_normal
from broker_core.store.recovery.queue_plan import (
    GapError,
    LastEntry,
    QueuePlan,
    ScannedRecords,
    collect,
    known_topics,
    last_entry,
    leads_beyond,
    read_tail,
    reconcile,
)
from broker_core.store.recovery.shutdown_state import (
    ShutdownState,
    lacks_queues,
    read_shutdown_state,
)
from broker_core.store.recovery.tail_marker import NO_RECORD, TailMarker, TailState, boot_id

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from broker_core.codec.record import Record
    from broker_core.store.queue.writer import QueueKey
    from broker_core.store.recovery.checkpoint import Checkpoint
    from broker_core.store.settings import StoreSettings

Progress = Callable[[int, int], None]
"""Called with the bytes scanned so far and the bytes to scan."""


class RecoveryKind(Enum):
    """Kinds of recovery; the package's first page says what each trusts and changes."""

    NONE = "none"
    TAKE_BACK = "take back an append"
    UNDO = "take back a dispatched append"
    FINISH = "dispatch what is in the log"
    NORMAL = "normal"
    ABNORMAL = "abnormal"


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """A recovery: the store as it will be, and the changes that lead there.

    The log's valid records lie in [log_start, log_end); the last begins at `last_start`. `queues`
    holds only queues that change. `tail` is the marker that the plan goes by, None for a scan.
    `ending` says why the log ends where it does, if something follows that is no record.
    """

    kind: RecoveryKind
    log_start: int
    log_end: int
    last_start: int = NO_RECORD
    last_store_ms: int = 0
    scan_start: int = 0
    queues: Mapping[QueueKey, QueuePlan] = field(default_factory=dict)
    index: IndexPlan | None = None
    tail: TailMarker | None = None
    ending: str = ""


def plan(
    root: Path,
    settings: StoreSettings,
    *,
    boot: bytes | None = None,
    distrust_tail: bool = False,
    progress: Progress | None = None,
) -> RecoveryPlan:
    """Plan the recovery of the store at `root`; change nothing.

    `settings` must agree with the files. With `distrust_tail` the marker is ignored.
    CorruptRecordError if a cleanly closed log has damage with valid records behind it: cutting
    there, as RocketMQ does, would lose acknowledged messages without a word.
    """
    survey = _Survey(root, settings, read_shutdown_state(root))
    # A marker at rest does not notice that the consume queues were removed since: scan the log.
    tail = survey.shutdown.tail
    is_at_rest = tail is not None and (tail.is_at_rest or tail.has_pending)
    distrust_tail = distrust_tail or (is_at_rest and lacks_queues(root, settings))
    boot = boot_id() if boot is None else boot
    if not distrust_tail and survey.shutdown.is_tail_believable(boot):
        believed = survey.by_marker()
        if believed is not None:
            return believed
    return survey.by_scan(progress or _no_progress)


def _no_progress(done: int, total: int) -> None:
    del done, total


class _Survey:
    """The files of one store, looked at to plan its recovery."""

    def __init__(self, root: Path, settings: StoreSettings, shutdown: ShutdownState) -> None:
        self.root = root
        self.settings = settings
        self.shutdown = shutdown
        self.log = CommitLog(*settings.commit_log_directories(root))

    # By the marker

    def by_marker(self) -> RecoveryPlan | None:
        """Return the plan that the marker calls for; None if the files are not as it says."""
        tail = self.shutdown.tail
        assert tail is not None, "only called for a marker"
        if tail.last_start == NO_RECORD:
            is_as_left = tail.log_end == self.log.start
        else:
            is_as_left = follows_record(self.log, tail.last_start, tail.log_end)
        if not is_as_left:
            return None
        if tail.state is TailState.PENDING:
            end = counted_end(self.log, tail)
            # Whole, with bytes behind it: a copy of a living store, or a foreign writer's.
            is_as_left = end < tail.pending_end or is_unwritten(self.log, end)
            return self._finish(tail, end) if is_as_left else None
        is_unwritten_behind = is_unwritten(self.log, tail.log_end)
        if tail.state is TailState.APPENDING and tail.has_pending:
            return self._finish(tail, tail.log_end)
        if tail.state is TailState.APPENDING:
            return self._at(tail, RecoveryKind.TAKE_BACK)
        if tail.state is TailState.DISPATCHING:
            return self._finish(tail, tail.pending_end)
        if tail.state is TailState.UNDOING and not is_unwritten_behind:
            return self._undo(tail)
        if tail.state is TailState.UNDOING:
            # The log is cut last: with nothing at its end, queues and index were undone before.
            return self._at(tail, RecoveryKind.TAKE_BACK)
        # At rest with bytes behind the end: a foreign writer's, or left over. Only a scan tells.
        return self._at(tail, RecoveryKind.NONE) if is_unwritten_behind else None

    def _at(self, tail: TailMarker, kind: RecoveryKind) -> RecoveryPlan:
        """Return a plan of this kind for a log that ends where the marker says."""
        return RecoveryPlan(
            kind,
            self.log.start,
            tail.log_end,
            tail.last_start,
            tail.last_store_ms,
            tail.log_end,
            tail=tail,
        )

    def _finish(self, tail: TailMarker, end: int) -> RecoveryPlan | None:
        """Plan to dispatch what the log has up to `end`: queues and index get what they lack.

        None if it is not whole, as after a loss of power.
        """
        found = self._scan_undispatched(tail, end)
        if found is None:
            return None
        scan, starts = found
        if scan.last_start == NO_RECORD:
            scan.last_start, scan.last_store_ms = tail.last_start, tail.last_store_ms
        # All entries of the batch, written or not: writing one again changes nothing.
        queues = {queue: QueuePlan(start, start, entries) for queue, start, entries in starts}
        return RecoveryPlan(
            RecoveryKind.FINISH,
            self.log.start,
            scan.end,
            scan.last_start,
            scan.last_store_ms,
            tail.dispatched_end,
            queues,
            self._rewound(tail, index_from=tail.dispatched_end),
            tail,
        )

    def _undo(self, tail: TailMarker) -> RecoveryPlan | None:
        """Plan to take back a batch that failed: the log still has it and tells its queues."""
        found = self._scan_undispatched(tail, tail.pending_end)
        if found is None:
            return None
        queues = {queue: QueuePlan(start, start, entries[:0]) for queue, start, entries in found[1]}
        plan_at = self._at(tail, RecoveryKind.UNDO)
        return replace(plan_at, queues=queues, index=self._rewound(tail, index_from=-1))

    def _scan_undispatched(
        self, tail: TailMarker, end: int
    ) -> tuple[LogScan, list[tuple[QueueKey, int, NDArray[np.void]]]] | None:
        """Scan what queues and index may lack; None if it is not whole up to `end`.

        Return the scan, and of each queue its first offset and its entries.
        """
        # What lies behind a pending tail is told elsewhere; behind a batch it spoils the batch.
        stop = end if tail.has_pending else None
        scan = LogScan(self.log, self.settings, tail.dispatched_end, stop=stop)
        found: dict[QueueKey, ScannedRecords] = {}
        for requests in scan.batches():
            collect(found, requests)
        if scan.end != end:
            return None
        joined = [(queue, *records.joined()) for queue, records in found.items()]
        return scan, [(queue, int(offsets[0]), entries) for queue, offsets, entries in joined]

    def _rewound(self, tail: TailMarker, *, index_from: int) -> IndexPlan | None:
        """Plan the index as the marker has it, then filled from an offset on."""
        if not self.settings.index_enabled:
            return None
        position = IndexPosition(tail.index_name, IndexHeader.decode(tail.index_header))
        return IndexPlan(index_from, 0, position)

    # By a scan of the log

    def by_scan(self, progress: Progress) -> RecoveryPlan:
        """Return the plan of a normal or abnormal recovery."""
        found = (last_entry(queue, self._directory(queue)) for queue in self._queues())
        lasts = [last for last in found if last is not None]
        reached = max((last.end for last in lasts), default=-1)
        if self.shutdown.is_unclean:
            kind = RecoveryKind.ABNORMAL
            start = abnormal_start(self.log, self.shutdown.checkpoint)
        else:
            kind = RecoveryKind.NORMAL
            start = normal_start(self.log, reached)
        try:
            return self._scan(kind, start, lasts, reached, progress)
        except GapError:
            # More of a queue is missing than lies behind the start: only the whole log has it.
            return self._scan(kind, self.log.start, lasts, reached, progress)

    def _scan(
        self,
        kind: RecoveryKind,
        start: int,
        lasts: list[LastEntry],
        reached: int,
        progress: Progress,
    ) -> RecoveryPlan:
        """Scan the log from `start` to its valid end, and compare queues and index with it."""
        is_normal = kind is RecoveryKind.NORMAL
        scan = LogScan(self.log, self.settings, start, suspects_tears=not is_normal)
        found: dict[QueueKey, ScannedRecords] = {}
        for requests in scan.batches():
            collect(found, requests)
            progress(scan.end - start, self.log.capacity - start)
        if is_normal:
            self._refuse_damage(scan, lasts)
        # After a clean stop queues are right up to what they have reached; records before that
        # which have no entry are those of deleted topics, and get none.
        dispatch_from = reached if is_normal else 0
        queues = self._reconciled(found, start, dispatch_from, is_normal=is_normal)
        return RecoveryPlan(
            kind,
            self.log.start,
            scan.end,
            scan.last_start,
            scan.last_store_ms,
            start,
            queues,
            self._index_plan(kind, start, reached),
            ending=scan.ending,
        )

    def _reconciled(
        self,
        found: dict[QueueKey, ScannedRecords],
        start: int,
        dispatch_from: int,
        *,
        is_normal: bool,
    ) -> dict[QueueKey, QueuePlan]:
        """Plan every queue that differs from what the scan found of it."""
        existing = set(self._queues())
        deletions = Deletions.load(self.root).log_ends
        origins = QueueOrigins(self.root)
        foreign = batch_topics(self.root)
        is_known = known_topics(self.root) if not is_normal else lambda _topic: True
        plans = {}
        for queue in sorted(existing | found.keys()):
            records = found.get(queue, ScannedRecords())
            if queue[0] in foreign or (queue not in existing and not is_known(queue[0])):
                continue
            change = reconcile(
                queue,
                read_tail(ConsumeQueue(self._directory(queue), partial(origins.of, *queue)), start),
                records,
                dispatch_from=max(dispatch_from, deletions.get(queue[0], 0)),
                log_start=self.log.start if start == self.log.start else None,
            )
            if change is not None:
                plans[queue] = change
        return plans

    def _index_plan(self, kind: RecoveryKind, start: int, reached: int) -> IndexPlan | None:
        """Plan the index; None where it is off."""
        if not self.settings.index_enabled:
            return None
        directory = self.root / "index"
        if kind is RecoveryKind.NORMAL:
            return plan_normal(directory, self.settings, max(reached, self.log.start))
        return plan_abnormal(
            directory,
            self.settings,
            self.shutdown.checkpoint.index_msg_timestamp,
            log_start=self.log.start,
            scan_start=self.log.start if self.shutdown.tail is not None else start,
        )

    def _refuse_damage(self, scan: LogScan, lasts: list[LastEntry]) -> None:
        """Raise CorruptRecordError if a queue shows a whole message behind the log's valid end.

        Cutting there would lose messages that were acknowledged before a clean stop.
        """
        for last in lasts:
            if leads_beyond(self.log, last, scan.end, scan.last_store_ms):
                topic, queue_id = last.queue
                message = (
                    f"The commit log in {self.root} is damaged at physical offset {scan.end} "
                    f"({scan.ending or 'nothing is written there'}), but message {last.offset} of "
                    f"{topic}/{queue_id} lies whole behind it, at {last.physical_offset}. Restore "
                    "the file from a backup, or create a file named `abort` in the store to cut "
                    "the log there."
                )
                raise CorruptRecordError(message, self.root, scan.end)

    def _queues(self) -> list[QueueKey]:
        return list_queues(self.root / "consumequeue")

    def _directory(self, queue: QueueKey) -> Path:
        return self.root / "consumequeue" / queue[0] / str(queue[1])


def normal_start(log: CommitLog, reached: int) -> int:
    """Return where a normal recovery starts to scan: as late as queues allow.

    It is the last segment whose first record is valid and lies no later than what consume queues
    have reached. A segment whose first record is not valid is skipped: the log ends before it.
    """
    for segment in reversed(log.segments):
        record = _first_record(log, segment.base)
        if record is not None and record.store_timestamp != 0 and segment.base <= reached:
            return segment.base
    return log.start


def abnormal_start(log: CommitLog, checkpoint: Checkpoint) -> int:
    """Return where an abnormal recovery starts to scan: as late as the checkpoint allows.

    It is the last segment before whose first record everything is flushed, says the checkpoint.
    RocketMQ 5.5 goes by the offset that consume queues have reached; older releases, which do not
    write it, by times.
    """
    for segment in reversed(log.segments):
        record = _first_record(log, segment.base)
        if record is None or record.store_timestamp == 0:
            continue
        if checkpoint.logics_physical_offset > 0:
            is_flushed = segment.base <= checkpoint.logics_physical_offset
        else:
            is_flushed = record.store_timestamp <= checkpoint.min_timestamp_ms
        if is_flushed:
            return segment.base
    return log.start


def _first_record(log: CommitLog, base: int) -> Record | None:
    try:
        return log.record(base)
    except (CorruptRecordError, OffsetRangeError):
        return None
