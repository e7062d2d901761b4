"""Files in memory (tmpfs): reading their holes through a map takes space, and can kill the process.

A store's files are sparse. On a disk, reading a hole costs nothing. In a tmpfs every page that is
touched through a map is allocated first, also when it is only read, and where no space is left the
process gets SIGBUS, which can't be caught. Reading those bytes by a call never allocates.

So where space is short, such a file is copied instead of mapped: its data into private memory,
whose holes cost nothing. A copy does not follow the file, so it is valid only until the file is
written again.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
# Other processes write to this file system too, and a reader maps more than one file.
_SPARE_BYTES = 64 << 20
# File times in memory are those of the last tick of the clock.
_TICK_NS = 50_000_000


class FileCopy(mmap.mmap):
    """The bytes that a file had, in private memory; not to be given back to the system."""


@dataclass(frozen=True, slots=True)
class Residence:
    """One file in memory, as it is held: mapped or as a copy, and as of when."""

    is_copy: bool
    modified_ns: int
    seen_ns: int

    def is_current(self, path: Path) -> bool:
        """Tell whether the map may still be touched, or the copy still equals the file."""
        try:
            found = path.stat()
            if not self.is_copy:
                return not is_scarce(path, found)
        except OSError:
            return True  # deleted; the bytes that were read stay
        is_settled = self.seen_ns - self.modified_ns > _TICK_NS
        return is_settled and found.st_mtime_ns == self.modified_ns


def residence(path: Path, found: os.stat_result) -> Residence | None:
    """Return how to hold a file; None for one on a disk, which is just mapped."""
    if not is_in_memory(found.st_dev):
        return None
    return Residence(is_scarce(path, found), found.st_mtime_ns, time.time_ns())


def is_scarce(path: Path, found: os.stat_result) -> bool:
    """Tell whether a file's file system may lack the space to fill all of the file's holes."""
    space = os.statvfs(path)
    hole_bytes = max(0, found.st_size - found.st_blocks * 512)
    return space.f_bavail * space.f_frsize < hole_bytes + _SPARE_BYTES and hole_bytes > 0


@cache
def is_in_memory(device: int) -> bool:
    """Tell whether a device number is that of a file system in memory; False if unknown."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="replace") as mounts:
            lines = [line.split() for line in mounts]
    except OSError:
        return False
    return any(
        words[2] == wanted and words[words.index("-") + 1] in _IN_MEMORY
        for words in lines
        if "-" in words
    )


def copy_file(descriptor: int, length: int) -> FileCopy:
    """Copy a file's data; holes stay holes. OSError as the system has it."""
    copied = FileCopy(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = memoryview(copied)
    start = _seek(descriptor, 0, os.SEEK_DATA, length)
    while start < length:
        end = _seek(descriptor, start, os.SEEK_HOLE, length)
        while start < end:
            count = os.preadv(descriptor, [view[start:end]], start)
            if not count:
                return copied
            start += count
        start = _seek(descriptor, end, os.SEEK_DATA, length)
    return copied


def _seek(descriptor: int, start: int, what: int, length: int) -> int:
    """Return where the next data or hole begins, at most `length`."""
    try:
        return min(length, os.lseek(descriptor, start, what))
    except OSError:
        return length  # ENXIO: no data follows
