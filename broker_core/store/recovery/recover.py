"""Recover: cuts a torn tail from the log, and makes queues and index agree with what is left.

The deed to plan.py's plan; the package's first page has the whole story. Order: the log is cut,
then consume queues are cut and filled, then the index is rewound and filled. A batch that is taken
back leaves the log last: until then the log tells which queues it went to. Every step can be
repeated, and the session writes the tail marker only after all of them, so a process that dies here
leaves a store that is recovered again from the start.
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
    from broker_core.store.recovery.index_plan import IndexPlan
    from broker_core.store.recovery.plan import RecoveryPlan

log = logging.getLogger(__name__)


def recover(plan: RecoveryPlan, parts: StoreComponents) -> None:
    """Carry out a plan. Only the holder of the store's lock may call it."""
    if plan.kind is RecoveryKind.NONE:
        return
    log.info(
        "event=store_recovery root=%s kind=%s scan_start=%d log_end=%d queues=%d ending=%s",
        parts.root,
        plan.kind.name,
        plan.scan_start,
        plan.log_end,
        len(plan.queues),
        plan.ending or "none",
    )
    if plan.kind in (RecoveryKind.NORMAL, RecoveryKind.ABNORMAL):
        _cut_log(plan, parts)
    for queue, change in plan.queues.items():
        parts.queues.cut(queue, change.keep)
        if len(change.entries):
            parts.queues.write(queue, change.start, change.entries)
    if plan.index is not None and parts.index is not None:
        _rebuild_index(plan, plan.index, parts)
        parts.index.drop_empty()
    if plan.kind in (RecoveryKind.TAKE_BACK, RecoveryKind.UNDO):
        # The marker gives the batch's extent, so the rest of a large file need not be searched.
        assert plan.tail is not None, "taking back goes by the marker"
        parts.log.take_back(plan.log_end, plan.tail.pending_end)


def _cut_log(plan: RecoveryPlan, parts: StoreComponents) -> None:
    """Cut the log at the plan's end, durably."""
    # Synced at once: after a loss of power, bytes that were cut could otherwise lie behind records
    # written since, line up with them, and be taken for records again.
    for path in parts.log.cut(plan.log_end):
        parts.handles.fsync(path)
    for directory in parts.settings.commit_log_directories(parts.root):
        if directory.is_dir():
            parts.files.fsync_dir(directory)


def _rebuild_index(plan: RecoveryPlan, index: IndexPlan, parts: StoreComponents) -> None:
    """Rewind the index, then index the log from the plan's offset to its end."""
    if parts.index is None:
        return
    if index.rewind_to is not None:
        parts.index.rewind(index.rewind_to)
    if index.from_offset < 0:
        return
    # Retention may have deleted the segment of the last indexed record; its keys went with it, so
    # there is nothing to skip in the first record that is left.
    is_whole = index.from_offset >= plan.log_start
    start = index.from_offset if is_whole else plan.log_start
    skip = index.skip if is_whole else 0
    if start >= plan.log_end:
        return
    # Unverified: planning has checked what follows its scan's start, what precedes is flushed.
    scan = LogScan(parts.read_log(), parts.settings, start, verify=False)
    for fields in scan.batches():
        # An Apache broker may have indexed its last record twice: count no further than its keys.
        first = int(np.searchsorted(fields.index_rows, 1))
        parts.dispatcher.put_keys(fields, skip=min(skip, first))
        skip = 0
    if scan.end != plan.log_end:
        message = (
            f"The index in {parts.root / 'index'} was to go on at physical offset {start}, but no "
            f"record begins there. Delete that directory; the next writer rebuilds it."
        )
        raise CorruptRecordError(message, parts.root / "index", start)
