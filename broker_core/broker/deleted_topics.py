"""Deleted topics: those whose records are in the commit log, and nowhere else.

Deleting a topic removes its configuration and its consume queues; its records stay in the log until
their segments expire. They are found by walking the whole log. A queue that was deleted more than
once is shown as one, since its numbers went on. Where a broker numbered it anew (Apache's, an older
release), only the records from where its offsets last went back count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.store.recovery.queue_plan import ScannedRecords, collect

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.reader import StoreReader


class DeletedQueue(NamedTuple):
    """The messages [first, first + len(physical_offsets)) of a queue that is gone."""

    topic: str
    queue_id: int
    first: int
    physical_offsets: NDArray[np.int64]

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.first + len(self.physical_offsets)


def deleted_queues(
    reader: StoreReader,
    known_topics: Collection[str],
    progress: Callable[[int, int], None] | None = None,
) -> list[DeletedQueue]:
    """Return the queues of all topics that are in the log but not among the known ones, sorted.

    `progress` is told the bytes walked and the bytes to walk.
    """
    found: dict[tuple[str, int], ScannedRecords] = {}
    start = reader.log.start
    for fields in reader.scan_log():
        collect(found, fields)
        if progress is not None:
            done = int(fields.physical_offsets[-1])
            progress(done - start, reader.log.capacity - start)
    return [
        _last_run(topic, queue_id, records)
        for (topic, queue_id), records in sorted(found.items())
        if topic not in known_topics
    ]


def _last_run(topic: str, queue_id: int, records: ScannedRecords) -> DeletedQueue:
    """Return the records behind the last break in a queue's offsets."""
    offsets, entries = records.joined()
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    run = int(breaks[-1]) + 1 if len(breaks) else 0
    physical_offsets = entries["physical_offset"][run:].astype(np.int64)
    return DeletedQueue(topic, queue_id, int(offsets[run]), physical_offsets)
