"""Frame reader: a range of a queue as frame batches, cut where segments and limits are.

It goes from entries, which queue/view.py answers for, to the mapped segments that they point into;
reader.py decides which range may be asked for. Here is also what a missing segment means.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.frames import FrameBatch
from broker_core.errors import CorruptRecordError, OffsetRangeError
from broker_core.store.io.page_residency import PageResidency
from broker_core.store.queue.ext import ConsumeQueueExt
from broker_core.types import QueueRef

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.io.segments import Segment
    from broker_core.store.log.commit_log import CommitLog
    from broker_core.store.queue.consume_queue import EntryColumns
    from broker_core.store.queue.view import EntrySelect, QueueView

# Entries examined at a time: 2 MB, or 10 MB where a filter may leave few of them.
_STRETCH_ENTRIES = 100_000
_FILTERED_STRETCH_ENTRIES = 500_000
FEW_RECORDS = 64
"""Up to as many are read one by one: columns cost the same for one record as for a thousand."""

Select = Callable[["NDArray[np.void]", ConsumeQueueExt], "NDArray[np.intp]"]
"""Returns which rows are wanted, by entries and the extension that they may lead to."""


class FrameReader:
    """Reads the frames of one store's queues. Not thread-safe."""

    def __init__(self, root: Path, log: CommitLog, broker_name: str) -> None:
        self._root = root
        self._log = log
        self._broker_name = broker_name
        self._memory = PageResidency()

    def frames(
        self,
        view: QueueView,
        wanted: range,
        select: Select | None,
        limits: tuple[int, int],
        is_checked: bool,
    ) -> Iterator[FrameBatch]:
        """Yield the records of a range in batches; `limits` are most rows and most bytes of one.

        See StoreReader.frames.
        """
        if select is None and 0 < len(wanted) <= FEW_RECORDS:
            batch = self._few(view, wanted, limits, is_checked)
            if batch is not None:
                yield batch
                first, last = int(batch.starts[0]), int(batch.starts[-1])
                end = last + int(batch.sizes[-1])
                self._memory.has_read(batch.buffer, first, end, batch.size_bytes / len(batch))
                return
        start, end = wanted.start, wanted.stop
        wants: EntrySelect | None = None
        # A multiple of a batch, or the last batch of each stretch would be a small one.
        rows = min(limits[0], _STRETCH_ENTRIES)
        stretch = _STRETCH_ENTRIES // rows * rows
        if select is not None:
            directory = self._root / "consumequeue_ext" / view.topic / str(view.queue_id)
            wants = _bound(select, ConsumeQueueExt(directory))
            stretch = _FILTERED_STRETCH_ENTRIES
        for at in range(start, end, stretch):
            stop = min(end, at + stretch)
            entries = view.columns(at, stop, wants)
            for batch in self._batches(view, entries, stop, limits):
                yield replace(batch, verify=is_checked)

    def _few(
        self, view: QueueView, wanted: range, limits: tuple[int, int], is_checked: bool
    ) -> FrameBatch | None:
        """Return a few records as one batch; None if they are not one, or anything is wrong."""
        found = view.few(wanted.start, wanted.stop)
        located = self._log.locate(found[0][0]) if found is not None else None
        if found is None or located is None:
            return None
        starts, sizes = found
        segment, buffer = located
        count, base = len(starts), segment.base
        if starts[-1] >= segment.end or count > limits[0] or (count > 1 and sum(sizes) > limits[1]):
            return None
        return FrameBatch(
            buffer=buffer,
            starts=np.array(starts, dtype=np.int64) - base,
            sizes=np.array(sizes, dtype=np.int32),
            offsets=np.arange(wanted.start, wanted.stop),
            queue=QueueRef(view.topic, self._broker_name, view.queue_id),
            next_offset=wanted.stop,
            origin=base,
            name=os.fspath(segment.path),
            verify=is_checked,
        )

    def _batches(
        self,
        view: QueueView,
        entries: EntryColumns,
        stop: int,
        limits: tuple[int, int],
    ) -> Iterator[FrameBatch]:
        """Yield the records behind some entries, cut where segments end and at both limits.

        The last batch says that entries were examined up to `stop`; without entries, one empty
        batch says it.
        """
        queue = QueueRef(view.topic, self._broker_name, view.queue_id)
        offsets, starts, sizes = entries.offsets, entries.physical_offsets, entries.sizes
        if not len(entries):
            nothing = np.empty(0, dtype=np.uint8)
            yield FrameBatch(nothing, starts, sizes, offsets, queue, next_offset=stop)
        at = 0
        while at < len(entries):
            segment, buffer = self.segment_of(view, int(offsets[at]), int(starts[at]))
            last = min(at + limits[0], int(np.searchsorted(starts, segment.end)))
            filled = np.cumsum(sizes[at:last], dtype=np.int64)
            last = at + max(1, int(np.searchsorted(filled, limits[1], side="right")))
            yield FrameBatch(
                buffer=buffer,
                starts=starts[at:last] - segment.base,
                sizes=sizes[at:last],
                offsets=offsets[at:last],
                queue=queue,
                next_offset=int(offsets[last]) if last < len(offsets) else stop,
                origin=segment.base,
                name=str(segment.path),
            )
            end = int(starts[last - 1]) + int(sizes[last - 1])
            first = int(starts[at]) - segment.base
            mean_bytes = int(filled[last - at - 1]) / (last - at)
            self._memory.has_read(buffer, first, end - segment.base, mean_bytes)
            at = last

    def segment_of(
        self, view: QueueView, offset: int, physical_offset: int
    ) -> tuple[Segment, NDArray[np.uint8]]:
        """Return the segment that a message's record begins in, and its bytes.

        OffsetRangeError if it was deleted, CorruptRecordError if it is missing.
        """
        found = self._log.locate(physical_offset)
        if found is not None:
            return found
        where = f"Message {offset} of queue {view.topic}/{view.queue_id}"
        if physical_offset < self._log.start:
            minimum, maximum = view.range()
            message = (
                f"{where} was deleted with its commit-log file; the queue now holds {minimum} to "
                f"{maximum}. Start at {minimum}."
            )
            raise OffsetRangeError(message, minimum, maximum)
        message = (
            f"{where} should lie at physical offset {physical_offset}, but no commit-log file in "
            f"{self._root} holds it: the log spans {self._log.start} to {self._log.capacity}. "
            f"Restore the missing file."
        )
        raise CorruptRecordError(message, view.directory, physical_offset)


def _bound(select: Select, extension: ConsumeQueueExt) -> EntrySelect:
    return lambda entries: select(entries, extension)
