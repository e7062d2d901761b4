"""Where recovery begins to scan the log: at the first record of some segment.

The last segments are looked at, newest first, until one is found before which everything is known
to be in place. A segment whose first record is not valid is skipped: the log ends before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError, OffsetRangeError

if TYPE_CHECKING:
    from broker_core.codec.record import Record
    from broker_core.store.log.commit_log import CommitLog
    from broker_core.store.recovery.checkpoint import Checkpoint


def normal_start(log: CommitLog, reached: int) -> int:
    """The last segment whose first record is valid and lies no later than queues have reached."""
    for segment in reversed(log.segments):
        record = _first_record(log, segment.base)
        if record is not None and record.store_timestamp != 0 and segment.base <= reached:
            return segment.base
    return log.start


def abnormal_start(log: CommitLog, checkpoint: Checkpoint) -> int:
    """The last segment before whose first record everything is flushed, says the checkpoint.

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
