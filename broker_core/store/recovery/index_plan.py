"""What recovery does to the index: from which file and which record on it is made anew.

After a clean stop the index is right, and only records that consume queues lack are added. After an
unclean one, files that were not filled and flushed before the checkpoint's index time may be
anything: the first of them is emptied and refilled from the log, the others go. Emptied, not
deleted, so that a recovery that dies half-way still sees that there was an index.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.store.index.file import IndexFile, list_index_files, read_header
from broker_core.store.index.writer import IndexPosition, inherited

if TYPE_CHECKING:
    from broker_core.store.settings import StoreSettings


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Rewind the index to a position, then index the log from a record on.

    The record at `from_offset` has `skip` keys in the index already; -1: nothing is added.
    Without `rewind_to` what the index holds stays.
    """

    from_offset: int
    skip: int = 0
    rewind_to: IndexPosition | None = None


def plan_normal(directory: Path, settings: StoreSettings, dispatch_from: int) -> IndexPlan:
    """After a clean stop: add the records from `dispatch_from` on that are not there yet."""
    paths = list_index_files(directory)
    if not paths:
        return IndexPlan(dispatch_from)
    newest = IndexFile(paths[-1], settings.index_slots)
    if newest.header.end_physical_offset < dispatch_from:
        return IndexPlan(dispatch_from)
    return _behind(newest)


def plan_abnormal(
    directory: Path, settings: StoreSettings, flushed_ms: int, *, log_start: int, scan_start: int
) -> IndexPlan:
    """After an unclean stop: keep files that were filled and flushed, make the rest anew.

    A store that has no index file at all is indexed from the scan's start, as RocketMQ does.
    """
    kept: IndexFile | None = None
    doomed: Path | None = None
    for path in list_index_files(directory):
        header = read_header(path)
        is_kept = settings.index_entries <= header.entry_count and (
            0 < header.end_timestamp <= flushed_ms
        )
        if not is_kept or path.stat().st_size != settings.index_file_bytes:
            doomed = path
            break
        kept = IndexFile(path, settings.index_slots)
    rewind_to = None
    if doomed is not None:
        before = kept.header if kept is not None else None
        rewind_to = IndexPosition(int(doomed.name), inherited(before))
    if kept is not None:
        behind = _behind(kept)
        return IndexPlan(behind.from_offset, behind.skip, rewind_to)
    return IndexPlan(scan_start if doomed is None else log_start, 0, rewind_to)


def _behind(file: IndexFile) -> IndexPlan:
    """Go on behind a file's last entry, which may not be its record's last key."""
    last = file.header.end_physical_offset
    offsets = file.entries()[1:]["physical_offset"]
    skip = len(offsets) if (offsets == last).all() else int(np.argmin(offsets[::-1] == last))
    return IndexPlan(last, skip)
