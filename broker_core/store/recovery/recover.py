"""Recover: cuts a torn tail from the log, and makes queues and index agree with what is left.

The deed to plan.py's plan; the package's first page has the whole story. Order: the log is cut,
then consume queues are filled and cut, then the index is rewound and filled. A batch that is taken
back leaves the log last: until then the log tells which queues it went to. Every step can be
repeated, and only after all of them does the tail marker say that they are done, so a process that
dies here leaves a store that is recovered again from the start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from broker_core.errors import CorruptRecordError
from broker_core.store.log.scan import LogScan
from broker_core.store.recovery.plan import RecoveryKind

if TYPE_CHECKING:
    from broker_core.store.components import StoreComponents
    from broker_core.store.queue.writer import QueueKey
    from broker_core.store.recovery.index_plan import IndexPlan
    from broker_core.store.recovery.plan import RecoveryPlan
    from broker_core.store.recovery.queue_plan import QueuePlan

log = logging.getLogger(__name__)


def recover(plan: RecoveryPlan, components: StoreComponents) -> None:
    """Carry out a plan. Only the holder of the store's lock may call it."""
    if plan.kind is RecoveryKind.NONE:
        return
    log.info(
        "event=store_recovery root=%s kind=%s scan_start=%d log_end=%d queues=%d ending=%s",
        components.root,
        plan.kind.name,
        plan.scan_start,
        plan.log_end,
        len(plan.queues),
        plan.ending or "none",
    )
    if plan.kind in (RecoveryKind.NORMAL, RecoveryKind.ABNORMAL):
        _cut_log(plan, components)
    for queue, change in plan.queues.items():
        _mend_queue(queue, change, components)
    if plan.index is not None and components.index is not None:
        _rebuild_index(plan, plan.index, components)
        components.index.drop_empty()
    if plan.tail is not None and plan.tail.pending_end > plan.log_end:
        # The marker gives the extent, so the rest of a large file need not be searched.
        components.log.take_back(plan.log_end, plan.tail.pending_end)


def _mend_queue(queue: QueueKey, change: QueuePlan, components: StoreComponents) -> None:
    """Give a queue the entries that it lacks, and take those behind them."""
    queues = components.queues
    starts_again = change.start != change.keep
    if starts_again:
        queues.cut(queue, change.keep)
    if len(change.entries):
        queues.write(queue, change.start, change.entries)
    if not starts_again:
        # Not before: a reader may have seen some of these entries, and does not see them go.
        queues.cut(queue, change.end)


def _cut_log(plan: RecoveryPlan, components: StoreComponents) -> None:
    """Cut the log at the plan's end, durably."""
    # Synced at once: after a loss of power, bytes that were cut could otherwise lie behind records
    # written since, line up with them, and be taken for records again.
    for path in components.log.cut(plan.log_end):
        components.handles.fsync(path)
    for directory in components.settings.commit_log_directories(components.root):
        if directory.is_dir():
            components.files.fsync_dir(directory)


def _rebuild_index(plan: RecoveryPlan, index: IndexPlan, components: StoreComponents) -> None:
    """Rewind the index, then index the log from the plan's offset to its end."""
    if components.index is None:
        return
    if index.rewind_to is not None:
        components.index.rewind(index.rewind_to)
    if index.from_offset < 0:
        return
    # Retention may have deleted the segment of the last indexed record; its keys went with it, so
    # there is nothing to skip in the first record that is left.
    is_whole = index.from_offset >= plan.log_start
    start = index.from_offset if is_whole else plan.log_start
    skip = index.skip if is_whole else 0
    if start >= plan.log_end:
        return
    # Unverified: planning has checked what follows its scan's start, what precedes is flushed. Not
    # beyond the end: whole records of an append that does not count may lie there, cut last.
    log, end = components.read_log(), plan.log_end
    scan = LogScan(log, components.settings, start, verify=False, stop=end)
    for requests in scan.batches():
        # An Apache broker may have indexed its last record twice: count no further than its keys.
        first = int(np.searchsorted(requests.index_rows, 1))
        components.dispatcher.put_keys(requests, skip=min(skip, first))
        skip = 0
    if scan.end != plan.log_end:
        directory = components.root / "index"
        message = (
            f"The index in {directory} was to go on at physical offset {start}, but no record "
            f"begins there. Delete that directory; the next writer rebuilds it."
        )
        raise CorruptRecordError(message, directory, start)
