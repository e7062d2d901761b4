"""The store's lock: byte 0 of the file `lock`, as Apache RocketMQ takes it.

Problem. Apache's broker, our server and any number of embedded writers may open one store. At most
one may write at a time, two writers within one process included, and a holder that dies must not
block the others.

Invariants.

- Apache's broker takes a POSIX record lock on the byte range [0, 1) for as long as it runs, and
  writes the word `lock` into the file when it starts. We take an open-file-description lock on that
  range. The two kinds exclude each other, but ours belongs to one open file instead of the process.
- The kernel releases the lock when its holder dies. Nothing about the lock is stored.
- Byte 1 is ours: a server locks it together with byte 0, for life. A waiter that finds it locked
  (or finds a POSIX lock, which is Apache's broker) gives up after 2 s instead of 30 s, because such
  a holder releases nothing until it stops. Embedded writers release after each batch.
- The file's modification time tells whether a foreign broker has started: Apache's writes to the
  file then, ours only on creating it (session.py compares).
- After taking the lock the file is compared with the one at its path. A store that was deleted and
  made anew has another lock file, and holding the old one would exclude no other writer.

Outline. `acquire` tries without blocking, and between attempts backs off by 5 % of the time waited
so far, 0.2 to 10 ms, to bound both idle time and polling: the lock stays unused for at most about
5 % of a wait, and a long wait asks at most 100 times a second.

Rejected.

- A blocking wait (F_OFD_SETLKW): it can't time out, and could not name the holder.
- `flock`: it does not exclude Apache's record lock.
- A POSIX record lock: two writers within one process would share it, and closing any other
  descriptor of the file would drop it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.errors import StorageError, StoreLockedError
from broker_core.store.io.files import storage_error, write_at

if TYPE_CHECKING:
    from broker_core.store.io.files import Files

LOCK_NAME = "lock"
LOCK_CONTENT = b"lock"
DEFAULT_WAIT_S = 30.0
FOR_LIFE_WAIT_S = 2.0
"""Wait for a holder that keeps the lock for life: it may be about to stop."""

_SHORTEST_PAUSE_S = 0.0002
_LONGEST_PAUSE_S = 0.01
_PAUSE_SHARE = 0.05
"""Back off by 5 % of the time waited so far, 0.2 to 10 ms, to bound idle time and polling."""
# l_type, l_whence, l_start, l_len, l_pid, as 64-bit Linux lays out struct flock.
_FLOCK = struct.Struct("hhqqi4x")
_UNLOCKED = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 2, 0)
_LOCKED = {length: _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, length, 0) for length in (1, 2)}
_HAS_OFD = hasattr(fcntl, "F_OFD_SETLK") and struct.calcsize("P") == 8
_BUSY = frozenset({errno.EAGAIN, errno.EACCES})


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The holder of a lock; `pid` is None for our own kind of lock, of which Linux tells none."""

    pid: int | None
    is_for_life: bool = False

    def __str__(self) -> str:
        if self.pid is not None:
            return f"process {self.pid}{_command_of(self.pid)}"
        kind = "rocketmq-broker serve" if self.is_for_life else "an embedded writer"
        return f"another writer of this library ({kind})"


class StoreLock:
    """One writer's hold on a store's lock. Not re-entrant; not thread-safe.

    The file is created, with its word in it, if the store has none.
    """

    def __init__(
        self,
        root: Path,
        files: Files,
        *,
        pause: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = root / LOCK_NAME
        self._name = os.fspath(self._path)
        self._files = files
        self._pause = pause
        self._monotonic = monotonic
        self._descriptor: int | None = None
        self._file = (-1, -1)
        self.is_held = False
        self.modified_ns = 0
        """When the lock file was last written, as of `acquire`: a foreign broker, if it changed."""

    def acquire(self, wait_s: float = DEFAULT_WAIT_S, *, for_life: bool = False) -> None:
        """Take the lock, waiting up to `wait_s` for others; StoreLockedError names the holder.

        A holder that keeps the lock for life is not waited for longer than FOR_LIFE_WAIT_S.
        `for_life` makes this writer such a holder.
        """
        assert not self.is_held, "the lock is not re-entrant"
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._opened()
        if not _try_lock(descriptor, 2 if for_life else 1):
            self._wait(descriptor, wait_s, for_life=for_life)
        self.is_held = True
        if not self._is_in_place():
            self.release()
            message = (
                f"Store {self._path.parent} was deleted or replaced after this writer opened it; "
                "open it again."
            )
            raise StorageError(message)

    def _wait(self, descriptor: int, wait_s: float, *, for_life: bool) -> None:
        """Try again until the lock is taken; StoreLockedError names who has it too long."""
        start = self._monotonic()
        while not _try_lock(descriptor, 2 if for_life else 1):
            waited_s = self._monotonic() - start
            # None if the holder released in between: the next attempt will tell.
            holder = _holder(descriptor) or LockHolder(None)
            limit_s = min(wait_s, FOR_LIFE_WAIT_S) if holder.is_for_life else wait_s
            if waited_s >= limit_s:
                raise StoreLockedError(self._refusal(holder, limit_s))
            self._pause(min(max(_PAUSE_SHARE * waited_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))

    def release(self) -> None:
        """Release the lock; harmless if it is not held."""
        if self.is_held and self._descriptor is not None:
            _unlock(self._descriptor)
        self.is_held = False

    def close(self) -> None:
        """Release the lock and close the file."""
        self.release()
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._descriptor = None

    def _is_in_place(self) -> bool:
        """Tell whether the locked file is the one that other writers would lock."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - for every message; a Path costs as much
        except FileNotFoundError:
            return False
        self.modified_ns = found.st_mtime_ns
        return (found.st_dev, found.st_ino) == self._file

    def _opened(self) -> int:
        if self._descriptor is None:
            try:
                self._descriptor = self._files.open(self._path, create=True)
                found = os.fstat(self._descriptor)
                self._file = (found.st_dev, found.st_ino)
                if found.st_size == 0:
                    write_at(self._files, self._descriptor, LOCK_CONTENT, 0)
            except OSError as error:
                raise storage_error(error, "take the store's lock", self._path) from error
        return self._descriptor

    def _refusal(self, holder: LockHolder, wait_s: float) -> str:
        return (
            f"Store {self._path.parent} is locked by {holder}; waited {wait_s:g} s. "
            "Stop it, or write through it; reading (mode='r') needs no lock."
        )


def lock_holder(root: Path) -> LockHolder | None:
    """Return the holder of a store's lock, None if it is free; takes and creates nothing."""
    try:
        descriptor = os.open(root / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(error, "look at the store's lock", root / LOCK_NAME) from error
    try:
        return _holder(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, length: int) -> bool:
    try:
        if _HAS_OFD:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCKED[length])
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, 0, os.SEEK_SET)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        reason = error.strerror or str(error)
        raise StorageError(
            f"This file system can't lock files ({reason}, errno {error.errno}). "
            "Move the store to a local disk, or open it with mode='r'."
        ) from error
    return True


def _unlock(descriptor: int) -> None:
    if _HAS_OFD:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _UNLOCKED)
    else:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 2, 0, os.SEEK_SET)


def _holder(descriptor: int) -> LockHolder | None:
    """Ask the kernel for the lock that conflicts with ours."""
    if not _HAS_OFD:
        return None
    pid = _blocking_pid(descriptor, 0)
    if pid is None:
        return None
    if pid > 0:
        # Only POSIX locks name a process, and only Apache's broker takes one: for life.
        return LockHolder(pid, is_for_life=True)
    return LockHolder(None, is_for_life=_blocking_pid(descriptor, 1) is not None)


def _blocking_pid(descriptor: int, position: int) -> int | None:
    """Return the process that has a byte locked, None if none; -1 for a lock of our kind."""
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _bytes(fcntl.F_WRLCK, position, 1))
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else pid


def _bytes(kind: int, start: int, length: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def _command_of(pid: int) -> str:
    """Return what a process runs, in parentheses; empty if it is gone or not ours to see."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    name = arguments[0].decode("utf-8", "replace").rpartition("/")[2]
    broker = any(b"BrokerStartup" in argument for argument in arguments)
    return f" ({name}, an Apache RocketMQ broker)" if broker else f" ({name})" if name else ""
