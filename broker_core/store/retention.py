"""Retention: which files are deleted, and when. Only whole files go, oldest first.

A commit-log segment expires when it was last written longer ago than `fileReservedTime`. Expired
segments are deleted during the hours of `deleteWhen`, or at any hour when the disk is fuller than
`diskMaxUsedSpaceRatio`; beyond `diskSpaceCleanForciblyRatio` the oldest go whatever their age. The
first segment that stays ends a run, and the last one always stays, so that a log keeps its end.

Consume queues and index files follow: of each, leading files go whose last entry points before the
log's first segment, never the last file, so that numbering goes on. Readers notice when an offset
leads to a file that is gone. A crash in between leaves files that the next run deletes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.store.index.file import list_index_files, read_header
from broker_core.store.io.files import Failpoint
from broker_core.store.io.segments import Segment, list_segments
from broker_core.store.queue.consume_queue import ENTRY_BYTES, ConsumeQueue, list_queues

if TYPE_CHECKING:
    import os

    from broker_core.store.components import StoreComponents
    from broker_core.store.settings import StoreSettings

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class DatedSegment:
    """A commit-log segment and when it was last written."""

    segment: Segment
    modified_ms: int


def used_percent(status: os.statvfs_result) -> int:
    """Return how full a disk is for its users, in percent, rounded up.

    >>> from types import SimpleNamespace
    >>> used_percent(SimpleNamespace(f_blocks=1000, f_bfree=300, f_bavail=250))
    74
    """
    used = status.f_blocks - status.f_bfree
    everything = used + status.f_bavail
    return ceil(100 * used / everything) if everything else 0


def before(segments: Sequence[Segment], physical_offset: int) -> list[Segment]:
    """Return the leading segments that end at or before an offset; never the last one."""
    found = []
    for segment in segments[:-1]:
        if segment.end > physical_offset:
            break
        found.append(segment)
    return found


def expired(
    segments: Sequence[DatedSegment],
    settings: StoreSettings,
    *,
    now_ms: int,
    disk_percent: int,
    is_on_demand: bool = False,
) -> list[Segment]:
    """Return the segments that a run of retention deletes now; never the last one.

    `is_on_demand` ignores the hour and `deleteFileBatchMax`.
    """
    is_time = is_on_demand or is_delete_hour(settings.delete_when, now_ms)
    is_full = disk_percent > settings.disk_max_used_ratio
    is_forced = settings.clean_file_forcibly and disk_percent > settings.disk_clean_forcibly_ratio
    if not (is_time or is_full or is_forced):
        return []
    reserved_ms = settings.file_reserved_hours * _HOUR_MS
    found: list[Segment] = []
    limit = len(segments) if is_on_demand else settings.delete_file_batch_max
    for dated in segments[:-1][:limit]:
        if not is_forced and now_ms < dated.modified_ms + reserved_ms:
            break
        found.append(dated.segment)
    return found


def is_delete_hour(delete_when: str, now_ms: int) -> bool:
    """Tell whether the local hour is one of those listed, as in "04" or "03;15"."""
    hours = {int(hour) for hour in delete_when.split(";") if hour.strip().isdecimal()}
    return datetime.fromtimestamp(now_ms / 1000).astimezone().hour in hours


def dated_segments(components: StoreComponents) -> list[DatedSegment]:
    """Return the commit log's segments with their modification times."""
    directories = components.settings.commit_log_directories(components.root)
    return [
        DatedSegment(segment, segment.path.stat().st_mtime_ns // 1_000_000)
        for segment in list_segments(*directories)
    ]


def delete_segments(components: StoreComponents, segments: Sequence[Segment]) -> int:
    """Delete leading segments and what refers only to them; return the log's new start."""
    # The log first: readers skip entries that point before its start, but would not find records
    # without entries.
    for segment in segments:
        components.handles.delete(segment.path)
        components.files.reach(Failpoint.SEGMENT_DELETED)
    remaining = list_segments(*components.settings.commit_log_directories(components.root))
    log_start = remaining[0].base if remaining else 0
    for queue in list_queues(components.root / "consumequeue"):
        _sweep_queue(components, components.queues.directory_of(queue), log_start)
    _sweep_index(components, log_start)
    return log_start


def _sweep_queue(components: StoreComponents, directory: Path, log_start: int) -> None:
    view = ConsumeQueue(directory)
    for segment in view.segments[:-1]:
        end = segment.end // ENTRY_BYTES
        last = view.read(end - 1, end)
        if not len(last) or int(last[0]["physical_offset"]) >= log_start:
            return
        components.handles.delete(segment.path)


def _sweep_index(components: StoreComponents, log_start: int) -> None:
    for path in list_index_files(components.root / "index")[:-1]:
        if read_header(path).end_physical_offset >= log_start:
            return
        components.handles.delete(path)
