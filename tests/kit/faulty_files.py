"""Files that fail, stop and forget: what a dying process, a failing disk or a loss of power do.

`FaultyFiles` works on real files and passes every call on, counting those that change something.
At a chosen one it does what its `Fault` says. It also remembers all that is not durable yet, by the
strictest reading of the rules: bytes and length of a file until its fsync, names in a directory
until that directory's. `lose_power` then makes the files what a disk may hold after power was lost:
of each sector what it held at any time since, whatever others hold; of names and lengths, which
file systems keep in a journal, any first part.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_core.store.io.files import Bytes, Failpoint, OsFiles, SharedMap

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SECTOR = 512


class Died(BaseException):
    """The process is gone: nothing of ours may run any more, not even error handling."""


class Fault(Enum):
    """What happens at the chosen call."""

    DIE_BEFORE = "the process dies before the call"
    DIE_AFTER = "the process dies right after the call"
    DIE_TORN = "the process dies with half of a write done"
    FAIL_ONCE = "the call fails"
    FULL = "the disk is full from here on: every call that needs space fails"
    SHORT = "a write takes only some of its bytes, as it may"
    HALF = "a write takes only some of its bytes, and the call for the others fails"
    BROKEN = "the disk is broken from here on: every call fails"


@dataclass(frozen=True)
class Change:
    """Something that is not durable: how to take it back, how to do it again, what makes it last.

    `file` is what an fsync of that file makes durable, `directory` what one of that directory
    does; one of the two is set. Those that are journaled happen in order or not at all, and so do
    those of one `sector` of a file.
    """

    undo: Callable[[], None]
    redo: Callable[[], None]
    file: Path | None = None
    directory: Path | None = None
    is_journaled: bool = False
    sector: int = 0


class FaultyFiles(OsFiles):
    """See the module. `at` counts changing calls from 1; 0 never strikes."""

    def __init__(
        self,
        fault: Fault = Fault.DIE_BEFORE,
        at: int = 0,
        *,
        stop_at: tuple[Failpoint, int] | None = None,
        on_stop: Callable[[], None] | None = None,
        remember: bool = False,
    ) -> None:
        self._fault = fault
        self._at = at
        self._stop_at = stop_at
        self._on_stop = on_stop or self._die
        self._remember = remember
        self._open: dict[int, Path] = {}
        self._changes: list[Change] = []
        self._reached = 0
        self.calls = 0
        self.has_died = False
        self.has_failed = False

    # Life and death

    def _die(self) -> None:
        self.has_died = True
        raise Died

    def _alive(self) -> None:
        if self.has_died:
            raise Died

    def heal(self) -> None:
        """Let nothing go wrong from here on."""
        self._at = 0

    def strike(self, fault: Fault, after: int) -> None:
        """Let something go wrong at the n-th call from here on."""
        self._fault, self._at = fault, self.calls + after

    def abandon(self) -> None:
        """Close what a dead process had open; its lock goes with it."""
        for descriptor in list(self._open):
            os.close(descriptor)
        self._open.clear()

    def reach(self, point: Failpoint) -> None:
        """Stop if this is the chosen failpoint for the chosen time."""
        self._alive()
        if self._stop_at is not None and self._stop_at[0] is point:
            self._reached += 1
            if self._reached == self._stop_at[1]:
                self._on_stop()

    def _strike(self, *, needs_space: bool = False) -> bool:
        """Count a call; do what the fault says before it. Whether to die after it."""
        self._alive()
        self.calls += 1
        if self._fault is Fault.FULL and self._at and self.calls >= self._at and needs_space:
            self.has_failed = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._fault is Fault.BROKEN and 0 < self._at < self.calls:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.calls != self._at:
            return False
        if self._fault is Fault.DIE_BEFORE:
            self._die()
        if self._fault in (Fault.FAIL_ONCE, Fault.BROKEN):
            self.has_failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._fault in (Fault.DIE_AFTER, Fault.DIE_TORN)

    def _note(self, change: Change) -> None:
        if self._remember:
            self._changes.append(change)

    # Calls

    def open(self, path: Path, *, create: bool = False) -> int:
        self._alive()
        is_new = create and not path.exists()
        is_last = self._strike(needs_space=True) if is_new else False
        descriptor = super().open(path, create=create)
        self._open[descriptor] = path
        if is_new:
            name = _Name(path)
            self._note(Change(name.take, name.give, directory=path.parent, is_journaled=True))
        if is_last:
            self._die()
        return descriptor

    def close(self, descriptor: int) -> None:
        if self._open.pop(descriptor, None) is not None:
            super().close(descriptor)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        self._alive()
        return super().pread(descriptor, size, offset)

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:
        before = os.pread(descriptor, len(data), offset)
        is_growing = offset + len(data) > os.fstat(descriptor).st_size
        needs_space = not before.strip(b"\0") and bool(bytes(data).strip(b"\0"))
        is_last = self._strike(needs_space=needs_space)
        is_short = is_last and self._fault is Fault.DIE_TORN
        if self._fault in (Fault.SHORT, Fault.HALF) and self.calls == self._at:
            is_short = len(data) > 1
            if self._fault is Fault.HALF and is_short:
                self._fault, self._at = Fault.FAIL_ONCE, self.calls + 1
        written = bytes(data[: max(1, len(data) // 2)] if is_short else data)
        count = super().pwrite(descriptor, written, offset)
        path = self._open[descriptor]
        for start, stop in _sectors(offset, offset + count):
            part = slice(start - offset, stop - offset)
            self._note_write(path, start, before[part], written[part], is_growing=is_growing)
        if is_last:
            self._die()
        return count

    def scatter(
        self, descriptor: int, shared: SharedMap, indexes: NDArray[np.int64], values: NDArray[Any]
    ) -> None:
        """One call, of which any death may leave a part; each item is lost or kept on its own."""
        is_last = self._strike()
        done = len(indexes) // 2 if is_last and self._fault is Fault.DIE_TORN else len(indexes)
        before = shared.items[indexes[:done]]
        super().scatter(descriptor, shared, indexes[:done], values[:done])
        path, size = self._open[descriptor], shared.items.itemsize
        for index, old, new in zip(indexes[:done].tolist(), before, values[:done], strict=True):
            at = shared.offset + size * index
            self._note_write(path, at, old.tobytes(), new.tobytes(), is_growing=False)
        if is_last:
            self._die()

    def reserve(self, descriptor: int, offset: int, size: int) -> bool:
        is_last = self._strike(needs_space=True)
        is_done = super().reserve(descriptor, offset, size)
        if is_last:
            self._die()
        return is_done

    def _note_write(
        self, path: Path, offset: int, before: bytes, after: bytes, *, is_growing: bool
    ) -> None:
        self._note(
            Change(
                lambda: _put(path, before.ljust(len(after), b"\0"), offset),
                lambda: _put(path, after, offset, may_grow=is_growing),
                file=path,
                sector=offset // SECTOR,
            )
        )

    def truncate(self, descriptor: int, size: int) -> None:
        is_last = self._strike()
        path = self._open[descriptor]
        before = os.fstat(descriptor).st_size
        kept = path.read_bytes() if size < before else b""
        super().truncate(descriptor, size)
        self._note(
            Change(
                lambda: _restore(path, before, kept),
                lambda: _resize(path, size),
                file=path,
                is_journaled=True,
            )
        )
        if is_last:
            self._die()

    def fsync(self, descriptor: int) -> None:
        is_last = self._strike()
        path = self._open[descriptor]
        self._changes = [change for change in self._changes if change.file != path]
        if is_last:
            self._die()

    def fsync_dir(self, path: Path) -> None:
        is_last = self._strike()
        self._changes = [change for change in self._changes if change.directory != path]
        if is_last:
            self._die()

    def rename(self, source: Path, target: Path) -> None:
        is_last = self._strike()
        replaced = target.read_bytes() if target.is_file() else None
        super().rename(source, target)
        self._note(
            Change(
                lambda: _move_back(source, target, replaced),
                lambda: _move(source, target),
                directory=target.parent,
                is_journaled=True,
            )
        )
        # Writes noted under the old name are the new name's from now on.
        self._changes = [_renamed(change, source, target) for change in self._changes]
        if is_last:
            self._die()

    def unlink(self, path: Path) -> None:
        is_last = self._strike()
        content = path.read_bytes() if self._remember else b""
        super().unlink(path)
        self._note(
            Change(
                lambda: _recreate(path, content),
                lambda: path.unlink(missing_ok=True),
                directory=path.parent,
                is_journaled=True,
            )
        )
        if is_last:
            self._die()

    def mkdir(self, path: Path) -> None:
        is_last = self._strike(needs_space=True)
        super().mkdir(path)
        self._note(
            Change(
                lambda: shutil.rmtree(path, ignore_errors=True),
                lambda: path.mkdir(parents=True, exist_ok=True),
                directory=path.parent,
                is_journaled=True,
            )
        )
        if is_last:
            self._die()

    def rmdir(self, path: Path) -> None:
        is_last = self._strike()
        super().rmdir(path)
        self._note(
            Change(
                lambda: path.mkdir(parents=True, exist_ok=True),
                lambda: shutil.rmtree(path, ignore_errors=True),
                directory=path.parent,
                is_journaled=True,
            )
        )
        if is_last:
            self._die()

    # Power

    def lose_power(self, chance: random.Random) -> None:
        """Make the files what the disk may hold: all that is durable, and any part of the rest."""
        self.abandon()
        for change in reversed(self._changes):
            change.undo()
        journal = [change for change in self._changes if change.is_journaled]
        kept = set(map(id, journal[: chance.randint(0, len(journal))]))
        odds = chance.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        old_sectors: set[tuple[Path | None, int]] = set()
        for change in self._changes:
            if change.is_journaled:
                if id(change) in kept:
                    change.redo()
                continue
            sector = change.file, change.sector
            if sector not in old_sectors and chance.random() < odds:
                change.redo()
            else:
                old_sectors.add(sector)
        self._changes.clear()


def _sectors(start: int, stop: int) -> list[tuple[int, int]]:
    """A range of a file as the shares of the disk's sectors, which are written one by one."""
    cuts = [start, *range((start // SECTOR + 1) * SECTOR, stop, SECTOR), stop]
    return list(pairwise(cuts))


def kill_self() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _put(path: Path, data: bytes, offset: int, *, may_grow: bool = False) -> None:
    """Write to a file that may have been lost itself, or lost its length."""
    if not path.is_file():
        return
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data if may_grow else data[: max(0, size - offset)])


class _Name:
    """A new name: taking it away keeps what the file holds by then, in case it comes back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = b""

    def take(self) -> None:
        if self._path.is_file():
            self._content = self._path.read_bytes()
            self._path.unlink()

    def give(self) -> None:
        if self._path.parent.is_dir():
            self._path.write_bytes(self._content)


def _resize(path: Path, size: int) -> None:
    if path.is_file():
        os.truncate(path, size)


def _restore(path: Path, size: int, kept: bytes) -> None:
    if path.is_file():
        os.truncate(path, size)
        _put(path, kept, 0, may_grow=True)


def _recreate(path: Path, content: bytes) -> None:
    if path.parent.is_dir():
        path.write_bytes(content)


def _move(source: Path, target: Path) -> None:
    if source.exists() and target.parent.is_dir():
        os.replace(source, target)  # noqa: PTH105 - as the code under test does


def _move_back(source: Path, target: Path, replaced: bytes | None) -> None:
    _move(target, source)
    if replaced is not None:
        _recreate(target, replaced)


def _renamed(change: Change, source: Path, target: Path) -> Change:
    if change.file != source:
        return change
    return replace(change, file=target)
