"""Check of one consume queue: every entry against the record it points to.

Fed with the queue's records as the log is walked, it counts which entries are theirs. An entry that
no record claimed, an entry after one that was never written, and a record that should have an entry
and has none are wrong. Records of an older topic of the same name have none, and that is right:
they lie before the queue's first entry, in the log and, as numbers go on, in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.store.queue.consume_queue import ENTRY_BYTES, ConsumeQueue, is_filler, is_written

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Tags below this are addresses in the consume-queue extension.
_FIRST_TAG = -(1 << 31)


class QueueCheck:
    """One queue under examination. `log_start` is where the commit log begins.

    Records from `pending` on, if given, need no entry yet.
    """

    def __init__(self, directory: Path, log_start: int, pending: int | None = None) -> None:
        self._queue = ConsumeQueue(directory)
        self._first = self._queue.first
        self._end, self._after_gap = self._written_range()
        self._log_start = log_start
        self._pending = pending
        self._claimed = 0
        self._missing: str | None = None
        self._first_live = self._first_live_offset()

    def records(self, offsets: NDArray[np.int64], entries: NDArray[np.void]) -> None:
        """Compare records of the queue, as the entries they should have, in log order."""
        for run_start, stop in _runs(offsets):
            # An older topic's records, before the first file: the rest of the run may have entries.
            older = min(max(self._first - int(offsets[run_start]), 0), stop - run_start)
            start = run_start + older
            if start == stop:
                continue
            first = int(offsets[start])
            found = self._queue.read(first, min(first + stop - start, self._end))
            wanted = entries[start:stop]
            same = _equal(found, wanted[: len(found)])
            self._claimed += int(np.count_nonzero(same))
            lost = np.ones(stop - start, dtype=np.bool_)
            lost[: len(found)] = ~same
            # Older records than any entry are those of a topic that was deleted.
            lost &= wanted["physical_offset"] >= self._first_live
            if self._pending is not None:
                lost &= wanted["physical_offset"] < self._pending
            if lost.any() and self._missing is None:
                row = int(lost.argmax())
                self._missing = (
                    f"message {first + row} at physical offset "
                    f"{int(wanted[row]['physical_offset'])} has no entry of its own"
                )

    def problems(self, log_end: int) -> Iterator[str]:
        """Yield everything that is wrong, after all records were seen."""
        if self._after_gap is not None:
            yield f"entry {self._after_gap} is written, entry {self._end} before it is not"
        if self._missing is not None:
            yield self._missing
        live = self._live_entries()
        if live != self._claimed:
            yield self._first_stray(log_end) or (
                f"{live} entries point into the log, {self._claimed} of them to their messages"
            )

    def _written_range(self) -> tuple[int, int | None]:
        """Return the end of the entries, and the first written one behind a gap, if any."""
        end: int | None = None
        at = self._first
        for segment in self._queue.segments:
            stop = segment.end // ENTRY_BYTES
            written = is_written(self._queue.read(at, stop))
            if end is not None and written.any():
                return end, at + int(written.argmax())
            if end is None and not written.all():
                end = at + int(written.argmin())
                if written[end - at :].any():
                    return end, end + int(written[end - at :].argmax())
            at = stop
        return (at if end is None else end), None

    def _first_live_offset(self) -> int:
        """Return the physical offset of the first message whose record is still in the log."""
        for entries in self._files():
            live = np.flatnonzero(self._is_live(entries))
            if len(live):
                return int(entries[int(live[0])]["physical_offset"])
        return self._log_start

    def _live_entries(self) -> int:
        """Count the entries that point into the log."""
        return sum(int(np.count_nonzero(self._is_live(entries))) for entries in self._files())

    def _is_live(self, entries: NDArray[np.void]) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = ~is_filler(entries) & (
            entries["physical_offset"] >= self._log_start
        )
        return mask

    def _files(self) -> Iterator[NDArray[np.void]]:
        """Yield the written entries, a file at a time."""
        at = self._first
        for segment in self._queue.segments:
            stop = min(segment.end // ENTRY_BYTES, self._end)
            if stop > at:
                yield self._queue.read(at, stop)
                at = stop

    def _first_stray(self, log_end: int) -> str | None:
        """Return a sentence on the first entry that points behind the log, if there is one."""
        at = self._first
        for entries in self._files():
            ends = entries["physical_offset"].astype(np.int64) + entries["size"]
            stray = np.flatnonzero(self._is_live(entries) & (ends > log_end))
            if len(stray):
                row = int(stray[0])
                return (
                    f"entry {at + row} points to physical offset "
                    f"{int(entries[row]['physical_offset'])}, the log ends at {log_end}"
                )
            at += len(entries)
        return None


def _runs(offsets: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the runs of consecutive offsets, as row ranges."""
    starts = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist()]
    return list(zip(starts, [*starts[1:], len(offsets)], strict=True))


def _equal(found: NDArray[np.void], wanted: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which entries are those that the records call for; an address stands for any tag."""
    tags = found["tags_code"]
    mask: NDArray[np.bool_] = (
        (found["physical_offset"] == wanted["physical_offset"])
        & (found["size"] == wanted["size"])
        & ((tags == wanted["tags_code"]) | (tags < _FIRST_TAG))
    )
    return mask
