"""Files: the seam to the operating system. Every change of a store's file goes through here.

`Files` is the seam. `OsFiles` is the real thing, one system call per method. A fake can fail,
shorten, drop or reorder any of them, and `reach` tells it by name how far a writer is, so that a
test can stop it there. What writers need on top of single calls (write all of it, create at full
size, zero what is not zero) are functions over the seam, which behave alike under a fake.

Bytes are written by pwrite: on a full disk a store into a sparse map is a SIGBUS that kills the
process, a pwrite is an error with a number. The one exception is `scatter`, for bytes whose disk
blocks are allocated already (`reserve`; index/slots.py, docs/decisions/0007).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from broker_core.errors import DiskFullError, StorageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Bytes = bytes | bytearray | memoryview

_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_KEEP_SIZE = 1
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Failpoint(StrEnum):
    """The steps of a writer's work after which tests can stop it."""

    # An append, in order.
    MARKED_APPENDING = "marked-appending"
    SEGMENT_CREATED = "segment-created"
    SEGMENT_WRITTEN = "segment-written"
    LOG_WRITTEN = "log-written"
    LOG_SYNCED = "log-synced"
    MARKED_DISPATCHING = "marked-dispatching"
    QUEUE_CREATED = "queue-created"
    QUEUE_WRITTEN = "queue-written"
    INDEX_CREATED = "index-created"
    INDEX_ENTRIES_WRITTEN = "index-entries-written"
    INDEX_HEADER_WRITTEN = "index-header-written"
    INDEX_SLOTS_WRITTEN = "index-slots-written"
    MARKED_CLEAN = "marked-clean"
    # A quick append, in order; then the dispatch of what is pending.
    ROOM_CLAIMED = "room-claimed"
    MARKED_PENDING = "marked-pending"
    PENDING_WRITTEN = "pending-written"
    PENDING_DISPATCHED = "pending-dispatched"
    # Taking an append back, and recovery.
    QUEUE_CUT = "queue-cut"
    INDEX_DROPPED = "index-dropped"
    INDEX_REWOUND = "index-rewound"
    SEGMENT_DROPPED = "segment-dropped"
    LOG_CUT = "log-cut"
    # Flush and close.
    FILES_SYNCED = "files-synced"
    CHECKPOINT_WRITTEN = "checkpoint-written"
    ABORT_REMOVED = "abort-removed"
    # Retention and topics.
    SEGMENT_DELETED = "segment-deleted"
    TOPIC_MOVED_AWAY = "topic-moved-away"


@dataclass(frozen=True)
class SharedMap:
    """Items of one kind in a file, mapped from `offset` on; setting one sets it in the file."""

    items: NDArray[Any]
    offset: int
    device: int
    inode: int

    @classmethod
    def of(cls, descriptor: int, kind: np.dtype[Any], offset: int, count: int) -> SharedMap:
        """Map `count` items of an open file, which must have them all."""
        pages = mmap.mmap(descriptor, offset + kind.itemsize * count)
        found = os.fstat(descriptor)
        items: NDArray[Any] = np.ndarray((count,), kind, buffer=pages, offset=offset)
        return cls(items, offset, found.st_dev, found.st_ino)

    def is_of(self, path: Path) -> bool:
        """Tell whether `path` is still this file: the inode of a mapped file is not reused."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == (self.device, self.inode)


class Files(Protocol):
    """The calls of the operating system that change files. They raise OSError and nothing else."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; with `create` the file may be new and empty."""

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """Read up to `size` bytes; fewer at the end of the file."""

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:
        """Write some of `data` and return how many bytes; `write_at` writes all of it."""

    def scatter(
        self, descriptor: int, shared: SharedMap, indexes: NDArray[np.int64], values: NDArray[Any]
    ) -> None:
        """Set the items at `indexes` of a mapped file whose blocks are all allocated."""

    def reserve(self, descriptor: int, offset: int, size: int) -> bool:
        """Allocate disk blocks for these bytes, so that writing them needs no more space.

        Content and length of the file stay. False if the file system can't.
        """

    def truncate(self, descriptor: int, size: int) -> None:
        """Set a file's length; growth reads as zeros and takes no space."""

    def fsync(self, descriptor: int) -> None:
        """Make a file's bytes and length durable. Its name is durable after `fsync_dir`."""

    def fsync_dir(self, path: Path) -> None:
        """Make the names in a directory durable."""

    def rename(self, source: Path, target: Path) -> None:
        """Move a name in one step; an existing target file is replaced."""

    def unlink(self, path: Path) -> None:
        """Remove a file's name; maps of it stay valid."""

    def mkdir(self, path: Path) -> None:
        """Make one directory; FileExistsError if there is one."""

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""

    def reach(self, point: Failpoint) -> None:
        """Tell a fake that the writer has just done what `point` says. Real files do nothing."""


class OsFiles:
    """The files of the running system."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """See Files; descriptors are not inherited by child processes."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o644)

    def close(self, descriptor: int) -> None:
        """See Files."""
        os.close(descriptor)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """See Files."""
        return os.pread(descriptor, size, offset)

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:
        """See Files."""
        return os.pwrite(descriptor, data, offset)

    def scatter(
        self, descriptor: int, shared: SharedMap, indexes: NDArray[np.int64], values: NDArray[Any]
    ) -> None:
        """See Files; the map is the file."""
        del descriptor
        shared.items[indexes] = values

    def reserve(self, descriptor: int, offset: int, size: int) -> bool:
        """See Files."""
        return fallocate(descriptor, offset, size)

    def truncate(self, descriptor: int, size: int) -> None:
        """See Files."""
        os.ftruncate(descriptor, size)

    def fsync(self, descriptor: int) -> None:
        """See Files."""
        os.fsync(descriptor)

    def fsync_dir(self, path: Path) -> None:
        """See Files."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """See Files."""
        os.replace(source, target)  # noqa: PTH105 - one system call a line, all from one module

    def unlink(self, path: Path) -> None:
        """See Files."""
        os.unlink(path)  # noqa: PTH108 - as above

    def mkdir(self, path: Path) -> None:
        """See Files."""
        os.mkdir(path, 0o755)  # noqa: PTH102 - as above

    def rmdir(self, path: Path) -> None:
        """See Files."""
        os.rmdir(path)  # noqa: PTH106 - as above

    def reach(self, point: Failpoint) -> None:
        """See Files."""


def fallocate(descriptor: int, offset: int, size: int) -> bool:
    """Allocate disk blocks for bytes of a file, by Linux's fallocate; False if it can't.

    OSError if it can and the disk refuses. Not os.posix_fallocate: where a file system can't
    allocate, that one writes a byte to every block instead, which is the cost to be saved.
    """
    call = _call()
    if call is None:
        return False
    while call(descriptor, _KEEP_SIZE, offset, size):
        number = ctypes.get_errno()
        if number in _DISK_ERRORS:
            raise OSError(number, os.strerror(number))
        if number != errno.EINTR:
            return False
    return True


@cache
def _call() -> Callable[[int, int, int, int], int] | None:
    """Return the C library's function; None where it has none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    return function


def write_at(files: Files, descriptor: int, data: Bytes, offset: int) -> None:
    """Write all of `data` at `offset`, however many calls it takes."""
    rest = data if type(data) is bytes else memoryview(data).cast("B")
    while len(rest):
        written = files.pwrite(descriptor, rest, offset)
        if written == len(rest):
            return  # nearly always, and all that one message needs
        rest = memoryview(rest)[written:]
        offset += written


def read_at(files: Files, descriptor: int, size: int, offset: int) -> bytes:
    """Return exactly `size` bytes, or fewer if the file ends before."""
    parts = []
    while size > 0:
        part = files.pread(descriptor, size, offset)
        if not part:
            break
        parts.append(part)
        size -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def zero(files: Files, descriptor: int, start: int, stop: int) -> None:
    """Make the bytes [start, stop) of a file zero.

    Holes and bytes that are zero already are left alone: the rest of a sparse file stays sparse,
    and a full disk can't refuse what needs no space.
    """
    position = _next_data(descriptor, start, stop)
    while position < stop:
        found = read_at(files, descriptor, min(_CHUNK, stop - position), position)
        if not found:
            return
        rest = found.lstrip(b"\0")
        if rest:
            skipped = len(found) - len(rest)
            write_at(files, descriptor, _ZEROS[: len(rest.rstrip(b"\0"))], position + skipped)
        position = _next_data(descriptor, position + len(found), stop)


def is_zero(path: Path, start: int) -> bool:
    """Tell whether a file holds only zeros from `start` on; holes are not read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        stop = os.fstat(descriptor).st_size
        position = _next_data(descriptor, start, stop)
        while position < stop:
            found = os.pread(descriptor, min(_CHUNK, stop - position), position)
            if not found or found.strip(b"\0"):
                return not found
            position = _next_data(descriptor, position + len(found), stop)
        return True
    finally:
        os.close(descriptor)


def first_hole(path: Path) -> int:
    """Return where a file's first hole begins, its length if it has none; zeros may precede it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(descriptor, 0, os.SEEK_HOLE)
    except OSError:
        return os.fstat(descriptor).st_size  # empty, or a file system that does not tell
    finally:
        os.close(descriptor)


def _next_data(descriptor: int, start: int, stop: int) -> int:
    """Return the position of the next byte that may not be in a hole, at most `stop`."""
    try:
        return min(stop, os.lseek(descriptor, start, os.SEEK_DATA))
    except OSError as error:
        # ENXIO: nothing but a hole follows. Anything else: this file system can't tell.
        return stop if error.errno == errno.ENXIO else start


def make_directory(files: Files, path: Path) -> None:
    """Make a directory and those above it; existing ones stay."""
    if path.is_dir():
        return
    make_directory(files, path.parent)
    try:
        files.mkdir(path)
    except FileExistsError:
        if not path.is_dir():
            raise


def write_new(files: Files, path: Path, content: bytes) -> None:
    """Create a small file, or replace its content, and make bytes and name durable."""
    descriptor = files.open(path, create=True)
    try:
        files.truncate(descriptor, 0)
        write_at(files, descriptor, content, 0)
        files.fsync(descriptor)
    finally:
        files.close(descriptor)
    files.fsync_dir(path.parent)


def storage_error(error: OSError, doing: str, where: Path) -> StorageError:
    """Return our error for an OSError: what failed, at which path, the reason, what to do."""
    path = error.filename or where
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return DiskFullError(
            f"No space to {doing} at {path} ({reason}); nothing of it was kept. "
            "Free space on that disk or delete old segments, then try again."
        )
    if error.errno in _REFUSED:
        return StorageError(
            f"Not allowed to {doing} at {path} ({reason}). "
            "Give this user write permission on the store, or open it with mode='r'."
        )
    return StorageError(
        f"Could not {doing} at {path} ({reason}, errno {error.errno}). "
        "Check the disk; the store is repaired at the next write."
    )
