"""Commit log, read side: records by their PhysicalOffset.

The log is a run of segments (io/segments.py) that hold the records of all topics in the order they
were stored (codec/layout.py). A record never spans two segments: the rest of a full one is a blank.
No field says where the log ends: records chain by their sizes, and the first bytes that begin no
record are the end. Records before the end never change, so a record that was read stays valid.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from broker_core.codec import layout
from broker_core.codec.record import Record, decode_record
from broker_core.codec.scan import StopReason, walk
from broker_core.errors import CorruptRecordError, OffsetRangeError
from broker_core.store.io.segments import Segment, SegmentedLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAD = struct.Struct(">iI")
_TIME = struct.Struct(">q")
_FLAG = struct.Struct(">i")
# Walks take a segment in steps, so that a search for something near needs no pass over a gigabyte.
_WALK_BYTES = 16 << 20

Ending = Literal["more"] | StopReason


class Stretch(NamedTuple):
    """Consecutive valid records of one segment: record i begins at buffer[starts[i]].

    `end` is the physical offset after the last of them. `stop_reason` says what follows: "more"
    of the segment, or a reason of codec.scan.Walk, with `detail` for "invalid".
    """

    segment: Segment
    buffer: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    end: int
    stop_reason: Ending
    detail: str

    @property
    def next_offset(self) -> int:
        """The offset at which the log goes on: the next segment if this one is full."""
        return self.segment.end if self.stop_reason in ("blank", "stop") else self.end


class CommitLog:
    """The read-only view of a store's commit log. Not thread-safe.

    Segments are listed again when an offset lies outside what was listed before, so a log that
    grows or loses old files under the reader is followed.
    """

    def __init__(self, *directories: Path) -> None:
        self._log = SegmentedLog(*directories)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The files as last listed."""
        return tuple(self._log.segments)

    @property
    def start(self) -> int:
        """The physical offset of the first file's first byte; 0 for a log without files."""
        return self._log.start

    @property
    def capacity(self) -> int:
        """The physical offset after the last file's last byte, written or not."""
        return self._log.capacity

    def refresh(self) -> None:
        """List the files again."""
        self._log.refresh()

    def close(self) -> None:
        """Drop all maps."""
        self._log.close()

    def locate(self, physical_offset: int) -> tuple[Segment, NDArray[np.uint8]] | None:
        """Return the segment that holds an offset and its bytes, or None if no file does."""
        for is_fresh in (False, True):
            if is_fresh:
                self._log.refresh()
            segment = self._log.find(physical_offset)
            mapped = self._log.map(segment) if segment is not None else None
            if segment is not None and mapped is not None:
                return segment, mapped
        return None

    def is_missing(self, physical_offset: int) -> bool:
        """Tell whether the file that must hold an offset is missing although later ones exist."""
        return (
            self.start <= physical_offset < self.capacity and self.locate(physical_offset) is None
        )

    def record(
        self, physical_offset: int, *, verify: bool = True, with_body: bool = True
    ) -> Record:
        """Return the record that begins at an offset, or all of it but the body.

        OffsetRangeError for an offset that no file holds; CorruptRecordError if no record begins
        there, it says that it lies elsewhere, or `verify` finds a body that was changed.
        """
        segment, buffer = self._must_locate(physical_offset)
        position = physical_offset - segment.base
        record = _decode(segment, buffer, position, verify=verify, with_body=with_body)
        if record.physical_offset != physical_offset:
            message = (
                f"The record in {segment.path} at physical offset {physical_offset} says that it "
                f"lies at {record.physical_offset}; run `rocketmq-broker check` on the store."
            )
            raise CorruptRecordError(message, segment.path, physical_offset)
        return record

    def record_bytes(self, physical_offset: int) -> bytes:
        """Return the stored bytes of the record at an offset; errors as for `record`."""
        record = self.record(physical_offset, verify=False)
        segment, buffer = self._must_locate(record.physical_offset)
        position = physical_offset - segment.base
        (size, _) = _HEAD.unpack_from(buffer.data, position)
        return buffer[position : position + size].tobytes()

    def _must_locate(self, physical_offset: int) -> tuple[Segment, NDArray[np.uint8]]:
        found = self.locate(physical_offset)
        if found is None:
            raise self._out_of_range(physical_offset)
        return found

    def _out_of_range(self, physical_offset: int) -> OffsetRangeError:
        """Return the error for an offset that no file holds."""
        message = (
            f"Physical offset {physical_offset} is not in the commit log, which holds "
            f"{self.start} to {self.capacity}; its file was deleted, or never existed."
        )
        return OffsetRangeError(message, self.start, self.capacity)

    def store_time(self, physical_offset: int, size: int) -> int | None:
        """Return the store time of a record that lies at an offset, None if there is none.

        Checks size and magic only: for searches, which look at many records for one number.
        """
        found = self.locate(physical_offset)
        if found is None:
            return None
        segment, buffer = found
        position = physical_offset - segment.base
        if position + max(size, layout.MIN_RECORD_BYTES) > len(buffer):
            return None
        stored_size, magic = _HEAD.unpack_from(buffer.data, position)
        if stored_size != size or magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
            return None
        (flags,) = _FLAG.unpack_from(buffer.data, position + layout.SYS_FLAG)
        shift = layout.HOST_GROWTH if flags & layout.SysFlag.BORN_HOST_V6 else 0
        (time_ms,) = _TIME.unpack_from(buffer.data, position + layout.STORE_TIMESTAMP + shift)
        return int(time_ms)

    def walk(self, start: int, *, verify: bool = False) -> Iterator[Stretch]:
        """Yield the records from a record's start to the end of the log, stretch by stretch.

        Blanks lead to the next segment. The last stretch, which may hold no record, tells by
        `end` and `stop_reason` where and why the log ends: "zero" (unwritten bytes), "invalid"
        (bytes that are no record), or "blank"/"stop" (the last file is full).
        """
        at = start
        while (found := self.locate(at)) is not None:
            stretch = _stretch(*found, at, verify=verify)
            yield stretch
            if stretch.stop_reason in ("zero", "invalid"):
                return
            at = stretch.end if stretch.stop_reason == "more" else stretch.segment.end


def _stretch(
    segment: Segment, buffer: NDArray[np.uint8], physical_offset: int, *, verify: bool
) -> Stretch:
    """Walk one segment from an offset, at most about _WALK_BYTES of it."""
    start = physical_offset - segment.base
    stop = min(segment.size, start + _WALK_BYTES)
    name = str(segment.path)
    found = walk(buffer, start, stop, origin=segment.base, verify=verify, name=name)
    is_cut = stop < segment.size and found.stop_reason in ("stop", "invalid")
    if is_cut and not len(found.starts):
        # The first record may be longer than the step: only the rest of the segment can tell.
        found = walk(buffer, start, segment.size, origin=segment.base, verify=verify, name=name)
        is_cut = False
    # A record that the step cut in two looks invalid; the next step begins with it.
    reason: Ending = "more" if is_cut else found.stop_reason
    return Stretch(
        segment,
        buffer,
        found.starts,
        found.sizes,
        segment.base + found.end,
        reason,
        "" if is_cut else found.detail,
    )


def _decode(
    segment: Segment, buffer: NDArray[np.uint8], position: int, *, verify: bool, with_body: bool
) -> Record:
    try:
        return decode_record(
            buffer.data, position, name=str(segment.path), verify=verify, with_body=with_body
        )
    except CorruptRecordError as error:
        physical_offset = segment.base + position
        message = (
            f"No valid record at physical offset {physical_offset} in {segment.path}: "
            f"{error.__cause__}. Run `rocketmq-broker check` on the store."
        )
        raise CorruptRecordError(message, segment.path, physical_offset) from error
