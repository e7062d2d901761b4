"""Segments: the fixed-size files that together hold one log.

A log (commit log, consume queue, consume-queue extension) is a run of files in one directory. A
file is named by the log offset of its first byte, 20 digits, zero-padded, and all files of one log
have one size, so the offset of any byte is `base + position`:

    00000000000000000000   00000000000000065536   00000000000000131072
    |------ size --------| |------ size --------| |-- data --|-- 0 --|

Files are created whole and sparse, one ahead of need: a trailing file of zeros is normal, and so is
an empty last one (a writer died while creating it). Retention deletes from the front. Files are
never shortened, which makes read-only maps safe: a map never reaches beyond the length its file had
when it was made, and stays readable after the file was deleted.
Names and sizes are RocketMQ's.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.errors import CorruptRecordError, StorageError
from broker_core.store.io.tmpfs import FileCopy, Residence, copy_file, residence

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME_DIGITS = 20
_NAME = re.compile(r"[0-9]{20}\Z", re.ASCII)
_MAX_BASE = (1 << 63) - 1
# Python's mmap keeps a descriptor per map, and a process commonly has 1024 of them.
_MAX_MAPS = 64


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a log: it holds the bytes [base, base + size).

    `inode` tells a file from another that took its name; a mapped file's is not given away.
    """

    path: Path
    base: int
    size: int
    inode: int = field(default=0, compare=False)

    @property
    def end(self) -> int:
        """The log offset after its last byte."""
        return self.base + self.size


def segment_name(base: int) -> str:
    """Return the file name of the segment that begins at a log offset.

    >>> segment_name(6_000_000)
    '00000000000006000000'
    """
    return f"{base:0{NAME_DIGITS}d}"


def is_path_part(name: str) -> bool:
    """Tell whether a name, such as a topic found in a record, can be a directory's name."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


def list_names(path: Path | str) -> set[str]:
    """Return the names directly below a directory; empty if there is no such directory."""
    try:
        return set(os.listdir(path))  # noqa: PTH208 - names are all that is wanted
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise unreadable(Path(path), error) from error


def list_directories(path: Path) -> list[Path]:
    """Return the directories directly below one; none if it does not exist."""
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(path, error) from error


def segment_base(name: str) -> int | None:
    """Return the log offset that a file name stands for, or None if it is no segment's name."""
    if not _NAME.match(name):
        return None
    base = int(name)
    return base if base <= _MAX_BASE else None


def list_segments(*directories: Path) -> list[Segment]:
    """Return the segments below one or several directories, by base.

    Missing directories count as empty; subdirectories and foreign names are skipped, and so is an
    empty last file. Files of unequal length, or names closer together than a file is long, are
    corruption. A gap between two files is not an error here: its offsets just can't be read.
    """
    found = sorted(
        (segment for directory in directories for segment in _scan(directory)),
        key=lambda segment: segment.base,
    )
    while found and found[-1].size == 0:
        found.pop()
    for segment, following in pairwise(found):
        if segment.size != found[0].size or segment.end > following.base:
            raise _unequal(segment, found[0])
    if found and found[-1].size != found[0].size:
        raise _unequal(found[-1], found[0])
    return found


def _scan(directory: Path) -> list[Segment]:
    segments = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                base = segment_base(entry.name)
                if base is None or not entry.is_file():
                    continue
                try:
                    found = entry.stat()
                    segments.append(Segment(Path(entry.path), base, found.st_size, found.st_ino))
                except FileNotFoundError:
                    continue  # retention was faster
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(directory, error) from error
    return segments


def _unequal(segment: Segment, first: Segment) -> CorruptRecordError:
    if segment.size == first.size:
        message = (
            f"File {segment.path} holds {segment.size} bytes from {segment.base} on and overlaps "
            f"the one after it; restore the file names from a backup."
        )
    else:
        message = (
            f"File {segment.path} is {segment.size} bytes long, but {first.path.name} beside it "
            f"is {first.size}: all files of a log have one size; restore it from a backup."
        )
    return CorruptRecordError(message, segment.path, segment.base)


def unreadable(path: Path, error: OSError) -> StorageError:
    """Return the error for a file or directory that the system would not let us read."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    advice = (
        "give this user read permission"
        if error.errno in (errno.EACCES, errno.EPERM)
        else "check the disk and the mount"
    )
    return StorageError(f"Can't read {path}: {reason}; {advice}.")


def map_file(path: Path) -> NDArray[np.uint8]:
    """Map a whole file read-only. FileNotFoundError if it is gone; an empty file gives no bytes.

    Where touching its holes could kill the process, the bytes are a copy (tmpfs.py).
    """
    return _mapped(path).data


class _Mapped(NamedTuple):
    """A file's bytes; `residence` is None for a map that stays good for as long as it is held."""

    data: NDArray[np.uint8]
    residence: Residence | None


def _mapped(path: Path) -> _Mapped:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        found = os.fstat(descriptor)
        length = found.st_size
        if length == 0:
            return _Mapped(np.empty(0, dtype=np.uint8), None)
        lies = residence(path, found)
        if lies is not None and lies.is_copy:
            mapped: mmap.mmap = copy_file(descriptor, length)
        else:
            mapped = mmap.mmap(descriptor, length, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise StorageError(f"Can't map {path}: {error}; check the address space limit.") from error
    finally:
        os.close(descriptor)
    data = np.frombuffer(mapped, dtype=np.uint8)
    data.flags.writeable = False
    return _Mapped(data, lies)


def let_go(mapped: NDArray[np.uint8], start: int, end: int) -> None:
    """Drop [start, end) of a map from this process's memory; the system's cache keeps it.

    Views of such bytes stay readable: touching them maps the pages again. See page_residency.py.
    """
    owner = getattr(mapped.base, "obj", None)  # the view that NumPy made of the map
    if isinstance(owner, FileCopy):
        return
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        owner.madvise(mmap.MADV_DONTNEED, first, max(0, min(end, len(mapped)) - first))


class SegmentedLog:
    """The read-only view of a log, which finds and maps the segment that holds an offset.

    Listings are cached; `refresh` lists again. Not thread-safe. A map handed out stays valid for
    as long as it is held, also when the file is deleted or falls out of the cache.
    """

    def __init__(self, *directories: Path) -> None:
        self._directories = directories
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._maps: OrderedDict[int, _Mapped] = OrderedDict()
        self.refresh()

    def refresh(self) -> None:
        """List the directories again; maps of files that are gone or replaced are dropped."""
        # A segment that was deleted and made anew has the old name and another inode.
        mapped = {segment.base: segment.inode for segment in self._segments}
        self._segments = list_segments(*self._directories)
        self._bases = [segment.base for segment in self._segments]
        present = {segment.base: segment.inode for segment in self._segments}
        for base in [base for base in self._maps if present.get(base) != mapped.get(base)]:
            del self._maps[base]

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments as last listed, by base."""
        return self._segments

    @property
    def start(self) -> int:
        """The offset of the first byte of the first file; 0 if there is none."""
        return self._bases[0] if self._bases else 0

    @property
    def capacity(self) -> int:
        """The offset after the last byte of the last file, zeros included; 0 if there is none."""
        return self._segments[-1].end if self._segments else 0

    @property
    def file_size(self) -> int | None:
        """The size that all files have; None if there is no file."""
        return self._segments[0].size if self._segments else None

    def find(self, offset: int) -> Segment | None:
        """Return the segment that holds an offset, or None for one before, between or after."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0 or offset >= self._segments[index].end:
            return None
        return self._segments[index]

    def map(self, segment: Segment) -> NDArray[np.uint8] | None:
        """Return a segment's bytes, or None if the file has been deleted."""
        cached = self._maps.get(segment.base)
        if cached is not None and (
            cached.residence is None or cached.residence.is_current(segment.path)
        ):
            self._maps.move_to_end(segment.base)
            return cached.data
        try:
            mapped = _mapped(segment.path)
        except FileNotFoundError:
            return None
        if len(mapped.data) < segment.size:
            raise _unequal(Segment(segment.path, segment.base, len(mapped.data)), segment)
        self._maps[segment.base] = mapped
        if len(self._maps) > _MAX_MAPS:
            self._maps.popitem(last=False)
        return mapped.data

    def close(self) -> None:
        """Drop all maps; those still held elsewhere stay valid."""
        self._maps.clear()
