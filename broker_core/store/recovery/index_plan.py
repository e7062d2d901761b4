"""Index plan: from which index file and which record on recovery rebuilds the index.

After a clean stop the index is right, and only records that consume queues lack are added. After an
unclean one, files that were not filled and flushed before the checkpoint's index time may hold
anything: the first of them is emptied and refilled from the log, the others are deleted. Emptied,
not deleted, so that a recovery that dies half-way still sees that there was an index.
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
    """The index's recovery: rewound to a position, then filled from a record of the log on.

    The record at `from_offset` has `skip` keys in the index already; -1: nothing is added.
    Without `rewind_to` what the index holds stays.
    """

    from_offset: int
    skip: int = 0
    rewind_to: IndexPosition | None = None


def plan_normal(directory: Path, settings: StoreSettings, dispatch_from: int) -> IndexPlan:
    """Plan the index after a clean stop: add what is missing from `dispatch_from` on."""
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
    """Plan the index after an unclean stop: keep files that were filled and flushed.

    A store that has no index file at all is indexed from the scan's start, as RocketMQ does.
    """
    kept: IndexFile | None = None
    doomed: Path | None = None
    for path in list_index_files(directory):
        header = read_header(path)
        is_kept = settings.index_entries <= header.entry_count and (
            0 < header.end_timestamp <= flushed_ms
        )
        # Files fill in order: behind the first that is not kept, none was flushed for sure.
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
    """Plan to go on behind a file's last entry, which may not be its record's last key."""
    last = file.header.end_physical_offset
    offsets = file.entries()[1:]["physical_offset"]
    # One record can have several keys, and a full file can end between two of them.
    skip = len(offsets) if (offsets == last).all() else int(np.argmin(offsets[::-1] == last))
    return IndexPlan(last, skip)
