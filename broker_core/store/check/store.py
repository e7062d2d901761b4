"""Check of a store: reads all of it and reports everything that is wrong; changes nothing.

Looks at every record with its checksum, at how records and segments follow each other, at every
consume-queue entry against its record (queue.py), at every index entry and chain (index.py), at the
checkpoint and the configuration files, and whether recovery has work to do. One pass over the log,
vectorised, so a large store takes as long as reading it.

A pending tail (store/log_first.py) is no problem: its records may lack entries and keys, the others
may not. An append at its end that does not count is one, and so is a dispatch that was broken off
in the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.errors import BrokerError
from broker_core.store import config_files
from broker_core.store.check.index import IndexCheck
from broker_core.store.check.queue import QueueCheck
from broker_core.store.format_check import batch_topics, require_store
from broker_core.store.index.file import IndexHeader, list_index_files, read_header
from broker_core.store.log.commit_log import CommitLog
from broker_core.store.log.scan import LogScan
from broker_core.store.queue.consume_queue import list_queues
from broker_core.store.recovery.plan import Progress, RecoveryKind, plan
from broker_core.store.recovery.queue_plan import records_by_queue
from broker_core.store.settings import StoreSettings

if TYPE_CHECKING:
    from broker_core.codec.dispatch_request import DispatchRequests
    from broker_core.store.queue.writer import QueueKey
    from broker_core.store.recovery.tail_marker import TailMarker


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the file, queue or topic, and a sentence."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def check(
    root: Path, settings: StoreSettings | None = None, progress: Progress | None = None
) -> list[Problem]:
    """Examine the store at `root`; an empty list means that all of it is right.

    StoreNotFoundError or FormatVersionError if there is no store that we read. A store that is
    being written to can look wrong for a moment.
    """
    given = settings or StoreSettings()
    require_store(root, given.commit_log_directories(root))
    try:
        agreed = given.agreeing_with(root)
        return list(_Check(root, agreed, progress).problems())
    except BrokerError as error:
        return [Problem(str(root), str(error))]


class _Check:
    """One examination of a store."""

    def __init__(self, root: Path, settings: StoreSettings, progress: Progress | None) -> None:
        self._root = root
        self._settings = settings
        self._progress = progress
        self._log = CommitLog(*settings.commit_log_directories(root))
        self._unopened: list[Problem] = []
        # The marker of a pending tail whose end is behind the records that count.
        self._pending: TailMarker | None = None
        self._log_end: int | None = None

    def problems(self) -> Iterator[Problem]:
        """Yield everything that is wrong, the log first."""
        yield from self._config()
        yield from (
            Problem(f"topic {topic}", "it has batch consume queues, which can't be checked")
            for topic in sorted(batch_topics(self._root))
        )
        yield from self._unfinished()
        yield from self._gaps()
        queues = dict(self._queues())
        indexes = list(self._indexes())
        yield from self._unopened
        for index in indexes:
            yield from (Problem(str(index.path), what) for what in index.structure())
        scan = LogScan(self._log, self._settings, self._log.start, stop=self._log_end)
        for requests in scan.batches():
            self._compare_queues(requests, queues)
            for index in indexes:
                yield from (Problem(str(index.path), what) for what in index.against(requests))
            if self._progress is not None:
                done, total = scan.end - self._log.start, self._log.capacity - self._log.start
                self._progress(done, total)
        yield from self._end_of_log(scan)
        for (topic, queue_id), examined in queues.items():
            where = f"queue {topic}/{queue_id}"
            yield from (Problem(where, what) for what in examined.problems(scan.end))
        for index in indexes:
            yield from (Problem(str(index.path), what) for what in index.beyond(scan.end))

    def _config(self) -> Iterator[Problem]:
        for path in sorted((self._root / "config").glob("*.json")):
            text = path.read_text(encoding="utf-8", errors="replace")
            try:
                if text.strip():
                    config_files.parse(text)
            except ValueError as error:
                yield Problem(str(path), f"it is not a configuration document ({error})")

    def _unfinished(self) -> Iterator[Problem]:
        """Yield what the next writer's recovery would change."""
        planned = plan(self._root, self._settings)
        if planned.kind is RecoveryKind.NONE:
            return
        tail = planned.tail
        if tail is not None and tail.has_pending:
            self._pending, self._log_end = tail, planned.log_end
            if planned.log_end < tail.pending_end:
                yield self._died(RecoveryKind.TAKE_BACK, planned.log_end)
            if self._is_index_ahead(tail):
                yield self._died(RecoveryKind.FINISH, tail.dispatched_end)
            return
        for (topic, queue_id), change in sorted(planned.queues.items()):
            yield Problem(
                f"queue {topic}/{queue_id}",
                f"recovery keeps {change.keep} entries and adds {len(change.entries)}; open the "
                "store for writing to recover it",
            )
        if planned.kind in (RecoveryKind.TAKE_BACK, RecoveryKind.UNDO, RecoveryKind.FINISH):
            yield self._died(planned.kind, planned.scan_start)

    def _died(self, kind: RecoveryKind, physical_offset: int) -> Problem:
        return Problem(
            str(self._root),
            f"a writer died; recovery will {kind.value} at physical offset {physical_offset}: open "
            "the store for writing to recover it",
        )

    def _is_index_ahead(self, tail: TailMarker) -> bool:
        """Tell whether the index has other entries than a marker says: a dispatch broke off."""
        if not self._settings.index_enabled:
            return False
        paths = list_index_files(self._root / "index")
        newest = int(paths[-1].name) if paths else 0
        header = read_header(paths[-1]) if paths else IndexHeader()
        return (newest, header) != (tail.index_name, IndexHeader.decode(tail.index_header))

    def _gaps(self) -> Iterator[Problem]:
        for segment, following in pairwise(self._log.segments):
            if segment.end != following.base:
                missing = following.base - segment.end
                yield Problem(str(following.path), f"{missing} bytes of the log before it are gone")

    def _queues(self) -> Iterator[tuple[QueueKey, QueueCheck]]:
        for topic, queue_id in list_queues(self._root / "consumequeue"):
            directory = self._root / "consumequeue" / topic / str(queue_id)
            try:
                pending = self._pending.dispatched_end if self._pending else None
                yield (topic, queue_id), QueueCheck(directory, self._log.start, pending)
            except BrokerError as error:
                self._unopened.append(Problem(f"queue {topic}/{queue_id}", str(error)))

    def _indexes(self) -> Iterator[IndexCheck]:
        for path in list_index_files(self._root / "index"):
            try:
                yield IndexCheck(path, self._settings)
            except BrokerError as error:
                self._unopened.append(Problem(str(path), str(error)))

    def _compare_queues(
        self, requests: DispatchRequests, queues: dict[QueueKey, QueueCheck]
    ) -> None:
        for queue, offsets, entries in records_by_queue(requests):
            if queue in queues:
                queues[queue].records(offsets, entries)

    def _end_of_log(self, scan: LogScan) -> Iterator[Problem]:
        """Yield whatever follows the last valid record and should not."""
        if scan.ending:
            yield Problem(str(self._root), f"the log ends at {scan.end}: {scan.ending}")
        for segment in self._log.segments:
            if segment.base > scan.end and self._has_record(segment.base):
                yield Problem(
                    str(segment.path),
                    f"it begins with a valid record, but the log ends before it, at {scan.end}",
                )
                return

    def _has_record(self, physical_offset: int) -> bool:
        try:
            self._log.record(physical_offset)
        except BrokerError:
            return False
        return True
