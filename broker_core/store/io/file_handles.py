"""File handles: the open files of one writer, and which of them still need an fsync.

Descriptors are kept, the least recently used closed first: a batch for a thousand queues must not
need a thousand of them, and the next batch for a queue must not open its file again. Every write is
noted in `Dirty` until a flush takes the note (flush.py), so that no kind of file can be forgotten.

Not thread-safe; only the holder of the store's lock may use it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_core.store.io.files import SharedMap, make_directory, read_at, write_at, zero

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from broker_core.store.io.files import Bytes, Files


WORTH_RESERVING = 1 << 20
"""Bytes from which on a write is faster with space reserved for all of them at once."""


@dataclass(slots=True)
class Dirty:
    """Files with bytes that are not known to be on disk, and those whose names are not."""

    written: set[Path] = field(default_factory=set)
    created: set[Path] = field(default_factory=set)

    def add(self, other: Dirty) -> None:
        """Add all files of another note."""
        self.written |= other.written
        self.created |= other.created


class OpenFile:
    """One file of a FileHandles, for those who read or write it again and again.

    It is opened again if it was closed meanwhile. See the module.
    """

    __slots__ = ("_handles", "_note", "descriptor", "path")

    def __init__(self, handles: FileHandles, path: Path, descriptor: int) -> None:
        self._handles = handles
        self._note = -1  # the handles' note that has this file
        self.path = path
        self.descriptor = descriptor
        """Negative once the file is closed."""

    def read(self, size: int, offset: int) -> bytes:
        """Read exactly `size` bytes, fewer where the file ends; FileNotFoundError if missing."""
        handles = self._handles
        descriptor = self.descriptor if self.descriptor >= 0 else handles.open(self)
        found = handles.files.pread(descriptor, size, offset)
        if len(found) == size:
            return found
        return found + read_at(handles.files, descriptor, size - len(found), offset + len(found))

    def write(self, data: Bytes, offset: int) -> None:
        """Write all of `data`; FileNotFoundError if there is no such file."""
        handles = self._handles
        descriptor = self.descriptor if self.descriptor >= 0 else handles.open(self)
        # Before the write: one that fails half-way has changed the file, too.
        if self._note != handles.notes:
            handles.note(self.path)
            self._note = handles.notes
        if not (type(data) is bytes or type(data) is bytearray):
            data = memoryview(data).cast("B")
        size = len(data)
        if size >= WORTH_RESERVING:
            handles.files.reserve(descriptor, offset, size)
        written = handles.files.pwrite(descriptor, data, offset)
        if written != size:
            write_at(handles.files, descriptor, memoryview(data)[written:], offset + written)


class FileHandles:
    """Reads and writes by path. See the module.

    A cached descriptor outlives its file's name: after another process may have deleted files,
    `close_all` is called, or writes would go to files that no reader opens.
    """

    def __init__(self, files: Files, limit: int = 256) -> None:
        self.files = files
        self._limit = limit
        self._open: OrderedDict[Path, OpenFile] = OrderedDict()
        self._dirty = Dirty()
        self.notes = 0
        """Grows whenever a file leaves the note of dirty files."""

    def file(self, path: Path) -> OpenFile:
        """Return a file to read and write, opened; FileNotFoundError if there is none."""
        found = self._open.get(path)
        if found is None:
            found = OpenFile(self, path, -1)
            self.open(found)
        else:
            self._open.move_to_end(path)
        return found

    def open(self, file: OpenFile) -> int:
        """Open a file that was closed, and return its descriptor."""
        known = self._open.get(file.path)
        if known is not None:  # others have opened it again
            file.descriptor = -1
            return known.descriptor
        return self._keep(file, self.files.open(file.path))

    def note(self, path: Path) -> None:
        """Note that a file has bytes that are not known to be on disk."""
        self._dirty.written.add(path)

    def read(self, path: Path, size: int, offset: int) -> bytes:
        """Read exactly `size` bytes, fewer where the file ends; FileNotFoundError if missing."""
        return self.file(path).read(size, offset)

    def write(self, path: Path, data: Bytes, offset: int) -> None:
        """Write all of `data`; FileNotFoundError if there is no such file."""
        self.file(path).write(data, offset)

    def reserve(self, path: Path, offset: int, size: int) -> bool:
        """Allocate disk blocks for bytes that the file has; False if the file system can't."""
        return self.files.reserve(self._descriptor(path), offset, size)

    def map(self, path: Path, kind: np.dtype[Any], offset: int, count: int) -> SharedMap:
        """Map items of a file whose bytes have all been written; it outlives the descriptor."""
        return SharedMap.of(self._descriptor(path), kind, offset, count)

    def scatter(
        self, path: Path, shared: SharedMap, indexes: NDArray[np.int64], values: NDArray[Any]
    ) -> None:
        """Set the items at some indexes of a mapped file."""
        descriptor = self._descriptor(path)
        self.note(path)
        self.files.scatter(descriptor, shared, indexes, values)

    def zero(self, path: Path, start: int, stop: int) -> None:
        """Make the bytes [start, stop) zero, leaving holes and zeros alone."""
        descriptor = self._descriptor(path)
        self._dirty.written.add(path)
        zero(self.files, descriptor, start, stop)

    def create(self, path: Path, size_bytes: int) -> None:
        """Make a file of zeros at its full size, and the directories above it.

        Nothing refers to a file that exists already (pre-allocated, or the rest of an append that
        died): it is replaced, so that no stale byte can be read as a record.
        """
        make_directory(self.files, path.parent)
        self.delete(path)
        descriptor = self._keep(OpenFile(self, path, -1), self.files.open(path, create=True))
        self._dirty.created.add(path)
        self._dirty.written.add(path)
        try:
            self.files.truncate(descriptor, size_bytes)
        except OSError:
            self.delete(path)
            raise

    def ensure(self, path: Path, size_bytes: int) -> bool:
        """Create a file unless it exists at its full size; return True if it was created.

        A shorter one was left by a process that died while creating it.
        """
        if self.is_whole(path, size_bytes):
            return False
        self.create(path, size_bytes)
        return True

    def is_whole(self, path: Path, size_bytes: int) -> bool:
        """Tell whether a file exists at its full size."""
        try:
            return path.stat().st_size == size_bytes
        except FileNotFoundError:
            return False

    def delete_empty(self, directory: Path) -> None:
        """Remove empty files, left by processes that died while creating them."""
        if not directory.is_dir():
            return
        for path in list(directory.iterdir()):
            if path.is_file() and path.stat().st_size == 0:
                self.delete(path)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name."""
        self.drop(source)
        self.files.rename(source, target)
        self.notes += 1
        self._dirty.written.discard(source)
        self._dirty.created.discard(source)
        self._dirty.written.add(target)
        self._dirty.created.add(target)

    def delete(self, path: Path) -> None:
        """Remove a file, if it exists."""
        self.drop(path)
        self.notes += 1
        self._dirty.written.discard(path)
        self._dirty.created.discard(path)
        try:
            self.files.unlink(path)
        except FileNotFoundError:
            return

    def drop(self, path: Path) -> None:
        """Close one file, if it is open."""
        found = self._open.pop(path, None)
        if found is not None:
            self._close(found)

    def fsync(self, path: Path) -> None:
        """Make one file's bytes durable now, but not its name."""
        self.files.fsync(self._descriptor(path))
        self.notes += 1
        self._dirty.written.discard(path)

    def take_dirty(self) -> Dirty:
        """Return the note of files that need an fsync, and begin a new one."""
        taken, self._dirty = self._dirty, Dirty()
        self.notes += 1
        return taken

    def add_dirty(self, dirty: Dirty) -> None:
        """Note files that other processes wrote, or that could not be made durable."""
        self._dirty.add(dirty)

    def close_all(self) -> None:
        """Close every file; the note of dirty files stays."""
        while self._open:
            _, file = self._open.popitem()
            self._close(file)

    def _descriptor(self, path: Path) -> int:
        return self.file(path).descriptor

    def _keep(self, file: OpenFile, descriptor: int) -> int:
        while len(self._open) >= self._limit:
            _, oldest = self._open.popitem(last=False)
            self._close(oldest)
        file.descriptor = descriptor
        self._open[file.path] = file
        return descriptor

    def _close(self, file: OpenFile) -> None:
        descriptor, file.descriptor = file.descriptor, -1
        self.files.close(descriptor)
