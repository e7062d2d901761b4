"""Commit log, write side: writes records, makes them durable, takes them back.

`plan_placement` decides from sizes alone where a batch lies: a record that would leave fewer than 8
bytes in its segment ends the segment with a blank (i32 rest, i32 magic) and begins the next one.
`LogWriter` then writes one run of records per segment. No queue entry refers to them until all runs
are written, so a process that dies in between leaves bytes that `cut` makes zero again. A cut never
shortens a file: readers have it mapped, and a page beyond the end of a file is a SIGBUS.

store/writer.py calls it, and takes an append back if one of its steps fails. Next in an append:
dispatch.py. Not thread-safe; only the holder of the store's lock may use it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec import layout
from broker_core.errors import IllegalMessageError
from broker_core.store.io.files import Failpoint
from broker_core.store.io.segments import list_segments, segment_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.encode import EncodedRecords
    from broker_core.store.io.file_handles import FileHandles, OpenFile
    from broker_core.store.io.files import Bytes

_BLANK = struct.Struct(">iI")


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """Rows [first, last) of a batch, which begin at `physical_offset` and lie in one segment.

    `blank_bytes` is the rest of the segment behind them if the batch goes on in the next one.
    """

    physical_offset: int
    first: int
    last: int
    blank_bytes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The physical offset of each record of a batch; `end` is the log's end after it."""

    physical_offsets: NDArray[np.int64]
    runs: tuple[SegmentRun, ...]
    end: int


def plan_placement(sizes: NDArray[np.int32], log_end: int, file_bytes: int) -> Placement:
    """Plan where records of these sizes lie behind `log_end`, in segments of `file_bytes` each.

    IllegalMessageError for a record that no segment can hold.
    """
    require_fitting(int(sizes.max(initial=0)), file_bytes)
    ends = np.cumsum(sizes, dtype=np.int64)
    physical_offsets = np.empty(len(sizes), dtype=np.int64)
    runs = []
    first, at = 0, log_end
    # One round per segment, not per record: the running sum finds the last record that fits.
    while first < len(sizes):
        room = file_bytes - at % file_bytes
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + room - layout.BLANK_BYTES, side="right"))
        last = max(last, first)
        used = (int(ends[last - 1]) if last else 0) - before
        physical_offsets[first:last] = at + ends[first:last] - sizes[first:last] - before
        blank = room - used if last < len(sizes) else 0
        runs.append(SegmentRun(at, first, last, blank))
        first, at = last, at + used + blank
    return Placement(physical_offsets, tuple(runs), at)


def require_fitting(largest: int, file_bytes: int) -> None:
    """Raise IllegalMessageError for a record of `largest` bytes that no segment can hold."""
    if largest + layout.BLANK_BYTES > file_bytes:
        message = (
            f"A record of {largest} bytes does not fit a commit-log file of {file_bytes} bytes "
            f"(mappedFileSizeCommitLog), which must leave {layout.BLANK_BYTES} free. "
            "Send smaller messages, or create the store with larger files."
        )
        raise IllegalMessageError(message)


class LogWriter:
    """The commit log of one store, open for appending. See the module.

    New segments go to the directories in turn, as Apache's broker spreads them.
    """

    def __init__(
        self, directories: Sequence[Path], handles: FileHandles, *, file_bytes: int
    ) -> None:
        self._directories = tuple(directories)
        self._handles = handles
        self._reach = handles.files.reach
        self._last_base = -1
        self._last_file: OpenFile | None = None
        self.file_bytes = file_bytes

    def write(self, batch: Sequence[EncodedRecords], placement: Placement) -> None:
        """Write a batch where its placement says; the placement counts rows across all parts."""
        starts = np.concatenate([[0], np.cumsum([len(part) for part in batch])]).tolist()
        for run in placement.runs:
            path = self._segment(run.physical_offset)
            at = run.physical_offset % self.file_bytes
            # A run may cover several parts, and a part several runs.
            for part, row in zip(batch, starts, strict=False):
                data = _rows(part, run.first - row, run.last - row)
                if len(data):
                    self._handles.write(path, data.data, at)
                    at += len(data)
            if run.blank_bytes:
                blank = _BLANK.pack(run.blank_bytes, layout.MAGIC_BLANK)
                self._handles.write(path, blank, at)
            self._reach(Failpoint.SEGMENT_WRITTEN)

    def write_behind(self, physical_offset: int, data: Bytes) -> None:
        """Write records behind those that a segment has, in one go."""
        base = physical_offset - physical_offset % self.file_bytes
        if self._last_file is None or self._last_base != base:
            self._last_base, self._last_file = base, self._handles.file(self.path_of(base))
        self._last_file.write(data, physical_offset - base)

    def fsync(self, start: int, end: int) -> None:
        """Make the log durable from `start` to `end`, other writers' records included.

        A record is only as durable as all before it: recovery ends the log at the first hole.
        """
        first = start - start % self.file_bytes
        for base in range(first, end, self.file_bytes):
            path = self.path_of(base)
            self._handles.fsync(path)
            if base >= start:  # created since: its name must be durable, too
                self._handles.files.fsync_dir(path.parent)

    def cut(self, end: int) -> list[Path]:
        """End the log at `end`: delete later segments, zero the rest of the one that holds it.

        Return the segment that was cut, if there is one. A segment that begins exactly at the
        end stays: without any file a log would begin at 0 again. Repeatable.
        """
        cut = []
        for directory in self._directories:
            self._handles.delete_empty(directory)
        # From the back, so that a crash in between leaves a log without a gap.
        for segment in reversed(list_segments(*self._directories)):
            if segment.base > end:
                self._handles.delete(segment.path)
                self._reach(Failpoint.SEGMENT_DROPPED)
            elif end < segment.end:
                self._handles.zero(segment.path, end - segment.base, segment.size)
                cut.append(segment.path)
        self._reach(Failpoint.LOG_CUT)
        return cut

    def take_back(self, end: int, written_end: int) -> None:
        """Cut a batch that was being written to [end, written_end).

        As `cut`, for a tail whose extent is known: everything behind it is zero already, and
        looking for data in the rest of a large file would cost more than the append.
        """
        base = end - end % self.file_bytes
        path = self.path_of(base)
        if path.exists():
            # The first record's head first: from then on the log ends here, whatever follows.
            self._handles.zero(path, end - base, min(end - base + _BLANK.size, self.file_bytes))
        later = range(base + self.file_bytes, written_end + 1, self.file_bytes)
        for start in reversed(later):
            self._handles.delete(self.path_of(start))
            self._reach(Failpoint.SEGMENT_DROPPED)
        if path.exists():
            self._handles.zero(path, end - base, min(written_end - base, self.file_bytes))
        self._reach(Failpoint.LOG_CUT)

    def path_of(self, physical_offset: int) -> Path:
        """Return the path of the segment that holds an offset, existing or to be created."""
        base = physical_offset - physical_offset % self.file_bytes
        name = segment_name(base)
        if len(self._directories) == 1:
            return self._directories[0] / name
        for directory in self._directories:
            if (directory / name).exists():
                return directory / name
        turn = (base // self.file_bytes) % len(self._directories)
        return self._directories[turn] / name

    def _segment(self, physical_offset: int) -> Path:
        """Return the segment to write at an offset, created if the offset is its first byte.

        An existing one holds zeros there: the writer that cut the log to this end zeroed it.
        """
        path = self.path_of(physical_offset)
        is_first = physical_offset % self.file_bytes == 0
        if is_first and self._handles.ensure(path, self.file_bytes):
            self._reach(Failpoint.SEGMENT_CREATED)
        return path


def _rows(part: EncodedRecords, first: int, last: int) -> NDArray[np.uint8]:
    """Return the bytes of rows [first, last) of a part, as far as it has them."""
    first, last = max(first, 0), min(last, len(part))
    if first >= last:
        return part.buffer[:0]
    return part.buffer[int(part.starts[first]) : int(part.starts[last - 1] + part.sizes[last - 1])]
