"""Consume queue: maps a LogicalOffset to a record's PhysicalOffset and size.

One entry per message, dense, big-endian, 20 bytes, so entry n starts at byte 20 * n of the log that
the queue's segments form (consumequeue/TOPIC/QUEUE/, 300 000 entries a file by default):

    0                 8      12          20
    | physical_offset | size | tags_code |
    | int64           | int32| int64     |

`size` is the whole record's. `tags_code` is the hash of the tag (0: none), the time of delivery in
SCHEDULE_TOPIC_XXXX, or an address in the consume-queue extension (ext.py).
Entries of zeros are not written yet. A queue that starts above 0 begins with fillers (offset 0,
size 0x7fffffff, tag 0) up to its first entry within the first file.

Written by dispatch after the record is in the commit log, never before. Not checksummed: after an
unclean stop recovery drops entries past the log's valid end and rebuilds them from records.
Apache's broker does not zero the entries that it drops, so a non-zero entry need not be one that
counts: the record it points to decides (view.py).
The layout is RocketMQ's; changing it needs a decision record and new golden files.

Packing, unpacking and selecting by tag each have a compiled twin in consume_queue_kernels.py, which
runs for large batches (`availability.is_worth`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.errors import CorruptRecordError
from broker_core.jit import arguments, availability
from broker_core.store.io.segments import (
    Segment,
    SegmentedLog,
    is_path_part,
    list_directories,
    map_file,
    unreadable,
)
from broker_core.store.queue.ext import MAX_ADDRESS, has_address

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.record import Record

# The only statement of this layout in code.
ENTRY = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
ENTRY_BYTES = ENTRY.itemsize
_ENTRY = struct.Struct(">qiq")  # the same, for entries one by one
pack_entry = _ENTRY.pack
"""Return the bytes of one entry: physical offset, size, tags code."""
iter_entries = _ENTRY.iter_unpack
"""Return (physical offset, size, tags code) of each entry of some bytes, one by one."""
FILLER_SIZE = 0x7FFFFFFF
# Forward probes read this many entries at a time: one small read when nothing was added.
_PROBE_ENTRIES = 512
_MOST_PROBE_ENTRIES = 1 << 16
# From as many entries on, mapping the file for a while costs less than copying them.
_MAPPED_ENTRIES = 1 << 14
# Selecting from packed entries is slow, but faster than unpacking all if 8 times fewer are wanted.
_FEW = 8


def _field_positions() -> tuple[int, int, int, int]:
    """Return the positions of an entry's fields, and its length, as kernels take them."""
    assert ENTRY.fields is not None
    offset, size, tags = (int(ENTRY.fields[name][1]) for name in ENTRY.names or ())
    return offset, size, tags, ENTRY_BYTES


_FIELD_POSITIONS = _field_positions()


def as_bytes(entries: NDArray[np.void]) -> NDArray[np.uint8]:
    """Return entries as the bytes of their file."""
    return np.ascontiguousarray(entries, dtype=ENTRY).view(np.uint8)


def join_entries(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Return entries one after another; joined as bytes, since NumPy would swap theirs."""
    if len(parts) == 1:
        return parts[0]
    raw = [as_bytes(part) for part in parts]
    return np.concatenate(raw).view(ENTRY) if raw else np.empty(0, dtype=ENTRY)


def packed_entries(
    physical_offsets: NDArray[np.int64],
    sizes: NDArray[np.int32],
    codes: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> NDArray[np.void]:
    """Return the entries of some rows of columns; by kernel `pack_entries` for many."""
    entries = np.empty(len(rows), dtype=ENTRY)
    if availability.is_worth(len(rows)):
        from broker_core.store.queue.consume_queue_kernels import pack_entries

        columns = (arguments.longs(physical_offsets), arguments.ints(sizes), arguments.longs(codes))
        pack_entries(columns, arguments.longs(rows), _FIELD_POSITIONS, as_bytes(entries))
        return entries
    entries["physical_offset"] = physical_offsets[rows]
    entries["size"] = sizes[rows]
    entries["tags_code"] = codes[rows]
    return entries


def tags_codes(entries: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the tags codes of entries as native integers."""
    codes: NDArray[np.int64] = entries["tags_code"].astype(np.int64)
    return codes


def rows_tagged(entries: NDArray[np.void], hashes: NDArray[np.int32]) -> NDArray[np.intp] | None:
    """Return which entries carry one of these tag hashes, by the low 32 bits of their tags codes.

    Damaged entries are always among them, so that reading reports them. None if a code is an
    address in the extension, which says nothing about the tag. By kernel `select_tags` for many.
    """
    if availability.is_worth(len(entries)) and len(hashes):
        from broker_core.store.queue.consume_queue_kernels import select_tags

        rows = np.empty(len(entries), dtype=np.int64)
        count, smallest = select_tags(
            as_bytes(entries), _FIELD_POSITIONS, FILLER_SIZE, hashes, rows
        )
        return None if smallest <= MAX_ADDRESS else rows[:count].copy()
    codes = tags_codes(entries)
    if has_address(codes):
        return None
    return np.flatnonzero(np.isin(codes.astype(np.int32), hashes) | is_damaged(entries["size"]))


def fillers(count: int) -> NDArray[np.void]:
    """Return entries that stand for messages a queue never had."""
    entries = np.zeros(count, dtype=ENTRY)
    entries["size"] = FILLER_SIZE
    return entries


def is_filler(entries: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which entries are fillers."""
    mask: NDArray[np.bool_] = entries["size"] == FILLER_SIZE
    mask &= entries["physical_offset"] == 0
    return mask


def is_damaged(sizes: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which sizes no entry of a message can have."""
    mask: NDArray[np.bool_] = (sizes <= 0) | (sizes == FILLER_SIZE)
    return mask


def is_written(entries: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which entries have any byte other than zero."""
    words = entries.view(np.uint32).reshape(len(entries), ENTRY_BYTES // 4)
    mask: NDArray[np.bool_] = words[:, 0] != 0
    for column in range(1, words.shape[1]):
        mask |= words[:, column] != 0
    return mask


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """Entries as native integers; `offsets` are their LogicalOffsets."""

    offsets: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    sizes: NDArray[np.int32]

    @classmethod
    def of(cls, entries: NDArray[np.void], first: int) -> EntryColumns:
        """Split entries into columns; `first` is the offset of entries[0].

        By kernel `unpack_entries` for many.
        """
        offsets = np.arange(first, first + len(entries))
        if availability.is_worth(len(entries)):
            from broker_core.store.queue.consume_queue_kernels import unpack_entries

            physical_offsets = np.empty(len(entries), dtype=np.int64)
            sizes = np.empty(len(entries), dtype=np.int32)
            unpack_entries(as_bytes(entries), _FIELD_POSITIONS, physical_offsets, sizes)
            return cls(offsets, physical_offsets, sizes)
        return cls(
            offsets,
            entries["physical_offset"].astype(np.int64),
            entries["size"].astype(np.int32),
        )

    @classmethod
    def of_rows(cls, entries: NDArray[np.void], first: int, rows: NDArray[np.intp]) -> EntryColumns:
        """Return some of the entries as columns."""
        if _FEW * len(rows) < len(entries):
            physical_offsets, sizes = entries["physical_offset"][rows], entries["size"][rows]
            return cls(first + rows, physical_offsets.astype(np.int64), sizes.astype(np.int32))
        whole = cls.of(entries, first)
        return cls(whole.offsets[rows], whole.physical_offsets[rows], whole.sizes[rows])

    @classmethod
    def join(cls, parts: Sequence[EntryColumns]) -> EntryColumns:
        """Return columns one after another; there must be at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.physical_offsets for part in parts]),
            np.concatenate([part.sizes for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.sizes)


def list_queue_ids(topic_directory: Path) -> list[int]:
    """Return the queues below a topic's directory, sorted; other names are skipped."""
    names = (path.name for path in list_directories(topic_directory))
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def list_queues(directory: Path) -> list[tuple[str, int]]:
    """Return every (topic, queue id) below consumequeue/, sorted."""
    return sorted(
        (topic.name, queue_id)
        for topic in list_directories(directory)
        for queue_id in list_queue_ids(topic)
    )


def has_entry(root: Path, record: Record) -> bool:
    """Tell whether the queue that a record names has an entry that points to it."""
    if not is_path_part(record.topic):
        return False
    queue = ConsumeQueue(root / "consumequeue" / record.topic / str(record.queue_id))
    found = queue.read(record.queue_offset, record.queue_offset + 1)
    return any(int(entry["physical_offset"]) == record.physical_offset for entry in found)


class ConsumeQueue:
    """The read-only view of one queue's entries, without a look at the records they point to.

    Offsets here are LogicalOffsets. Listings are cached; `refresh` lists again. Files are read, or
    mapped while entries are looked at, never for longer: a store can have thousands of queues,
    and a process has far fewer descriptors. `origin` tells where a queue without files begins
    (deletions.py).
    """

    def __init__(self, directory: Path, origin: Callable[[], int] = lambda: 0) -> None:
        self.directory = directory
        self._origin = origin
        self._log = SegmentedLog(directory)
        self._check_file_size()

    def refresh(self) -> None:
        """List the queue's files again."""
        self._log.refresh()
        self._check_file_size()

    def _check_file_size(self) -> None:
        size = self._log.file_size
        if size is not None and size % ENTRY_BYTES:
            path = self._log.segments[0].path
            message = (
                f"Consume-queue file {path} is {size} bytes long, not a multiple of {ENTRY_BYTES}; "
                f"restore it from a backup or delete the queue's directory and let a writer "
                f"rebuild it."
            )
            raise CorruptRecordError(message, path)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The queue's files as last listed."""
        return tuple(self._log.segments)

    @property
    def first(self) -> int:
        """The offset of the first file's first entry, filler or not; the origin without a file."""
        return self._log.start // ENTRY_BYTES if self._log.segments else self._origin()

    @property
    def capacity(self) -> int:
        """The offset after the last entry that the files have room for."""
        return self._log.capacity // ENTRY_BYTES

    def read(self, start: int, stop: int) -> NDArray[np.void]:
        """Return the entries [start, stop), fewer if a file that holds them is missing or gone."""
        parts = []
        while start < stop:
            segment = self._log.find(start * ENTRY_BYTES)
            if segment is None:
                break
            last = min(stop, segment.end // ENTRY_BYTES)
            part = _read_entries(segment, start, last)
            parts.append(part)
            start += len(part)
            if start < last:
                break
        return join_entries(parts)

    def file_of(self, start: int, stop: int) -> tuple[str, int] | None:
        """Return the file that holds all entries [start, stop), and the position of the first.

        None if there is no such file.
        """
        segment = self._log.find(start * ENTRY_BYTES)
        if segment is None or stop * ENTRY_BYTES > segment.end:
            return None
        return os.fspath(segment.path), start * ENTRY_BYTES - segment.base

    def read_bytes(self, start: int, stop: int) -> bytes:
        """Return the bytes of the entries [start, stop), none if not one file holds them all."""
        lies = self.file_of(start, stop)
        data = _read_at(*lies, (stop - start) * ENTRY_BYTES) if lies is not None else b""
        return data if len(data) == (stop - start) * ENTRY_BYTES else b""

    def written_end(self, known: int | None = None, *, may_have_holes: bool = False) -> int:
        """Return the offset of the first entry of zeros: the end by the bytes alone.

        With `known`, an end found before, it looks forward from there: one small read if nothing
        was added. Without, it looks at the first entries of the last files and then searches one
        file by halves. CorruptRecordError if a file lacks its first entry but not its second: of
        all entries only the first of a log can be zeroed by one changed byte. After a loss of
        power that is no damage (`may_have_holes`).
        """
        if known is not None and self.first <= known <= self.capacity:
            return self._probe_forward(known)
        for segment in reversed(self._log.segments):
            first = segment.base // ENTRY_BYTES
            if self._is_begun(segment, may_have_holes=may_have_holes):
                return self._search(first, segment.end // ENTRY_BYTES)
        return self.first

    def _is_begun(self, segment: Segment, *, may_have_holes: bool) -> bool:
        """Tell whether the first entry of a file is written."""
        first = segment.base // ENTRY_BYTES
        # Twice: a writer that takes entries back zeroes one after the other.
        for _ in range(2):
            written = is_written(self.read(first, first + 2)).tolist()
            if written != [False, True] or may_have_holes:
                return any(written[:1])
        message = (
            f"Consume-queue file {segment.path} has nothing in entry {first}, but something in "
            f"the one after it; restore it from a backup, or delete the queue's directory and let "
            f"a writer rebuild it."
        )
        raise CorruptRecordError(message, segment.path)

    def _probe_forward(self, end: int) -> int:
        step = _PROBE_ENTRIES
        while True:
            entries = self.read(end, min(end + step, self.capacity))
            written = is_written(entries)
            if not written.all():
                return end + int(np.argmin(written))
            if not len(entries):
                return end
            end += len(entries)
            step = min(2 * step, _MOST_PROBE_ENTRIES)  # where many were added, there may be more

    def _search(self, low: int, high: int) -> int:
        """Return the first unwritten offset in (low, high], where `low` is written."""
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_written(middle):
                low = middle
            else:
                high = middle
        return high

    def _is_written(self, offset: int) -> bool:
        return bool(is_written(self.read(offset, offset + 1)).any())


def _read_entries(segment: Segment, start: int, stop: int) -> NDArray[np.void]:
    """Read the entries [start, stop) of a segment; none if the file has been deleted."""
    first = start * ENTRY_BYTES - segment.base
    wanted = (stop - start) * ENTRY_BYTES
    if stop - start >= _MAPPED_ENTRIES:
        try:
            found = map_file(segment.path)[first : first + wanted]
        except FileNotFoundError:
            return np.empty(0, dtype=ENTRY)
        return found[: len(found) // ENTRY_BYTES * ENTRY_BYTES].view(ENTRY)
    data = _read_at(os.fspath(segment.path), first, wanted)
    return np.frombuffer(data, dtype=ENTRY, count=len(data) // ENTRY_BYTES)


def _read_at(path: str, position: int, size: int) -> bytes:
    """Return bytes of a file, fewer at its end; none if it has been deleted."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise unreadable(Path(path), error) from error
    try:
        return os.pread(descriptor, size, position)
    except OSError as error:
        raise unreadable(Path(path), error) from error
    finally:
        os.close(descriptor)
