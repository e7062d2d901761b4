from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.errors import StorageError, StoreLockedError
from broker_core.store.io.files import OsFiles
from broker_core.store.lock import LockHolder, StoreLock, lock_holder

# A stand-in for Apache's broker: a POSIX record lock on byte 0, held until its input ends.
FOREIGN = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
os.write(descriptor, b"lock")
print("locked", flush=True)
sys.stdin.read()
"""
# Another process of ours.
OURS = """
import sys
from pathlib import Path
from broker_core.store.io.files import OsFiles
from broker_core.store.lock import StoreLock
lock = StoreLock(Path(sys.argv[1]), OsFiles())
lock.acquire(0)
print("locked", flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that holds the lock while the with block runs."""

    def __init__(self, program: str, argument: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(argument)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> int:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "locked\n"
        return self.process.pid

    def __exit__(self, *_: object) -> None:
        self.process.communicate("")


def lock(root: Path) -> StoreLock:
    return StoreLock(root, OsFiles())


def test_lock_file_has_apaches_word(tmp_path: Path) -> None:
    held = lock(tmp_path)
    held.acquire(0)

    assert (tmp_path / "lock").read_bytes() == b"lock"
    held.close()


def test_apaches_lock_refuses_ours_and_is_named(tmp_path: Path) -> None:
    with Holder(FOREIGN, tmp_path / "lock") as pid:
        waiting = lock(tmp_path)

        with pytest.raises(
            StoreLockedError, match=rf"{tmp_path} is locked by process {pid} \("
        ) as e:
            waiting.acquire(0)
        assert lock_holder(tmp_path) == LockHolder(pid, is_for_life=True)
        assert "\n" not in str(e.value)
        waiting.close()

    assert lock_holder(tmp_path) is None


def test_our_lock_refuses_apaches(tmp_path: Path) -> None:
    with Holder(OURS, tmp_path):
        descriptor = os.open(tmp_path / "lock", os.O_RDWR)

        with pytest.raises(BlockingIOError):
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        os.close(descriptor)


def test_our_lock_refuses_ours_in_another_process(tmp_path: Path) -> None:
    with Holder(OURS, tmp_path):
        waiting = lock(tmp_path)

        with pytest.raises(StoreLockedError, match="another writer of this library"):
            waiting.acquire(0)
        assert lock_holder(tmp_path) == LockHolder(None)
        waiting.close()


def test_two_writers_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    first, second = lock(tmp_path), lock(tmp_path)
    first.acquire(0)

    with pytest.raises(StoreLockedError):
        second.acquire(0)
    first.release()
    second.acquire(0)
    first.close()

    # Closing another descriptor of the file would drop a POSIX lock.
    assert lock_holder(tmp_path) == LockHolder(None)
    second.close()
    assert lock_holder(tmp_path) is None


def test_waiting_ends_when_the_lock_is_free(tmp_path: Path) -> None:
    first = lock(tmp_path)
    first.acquire(0)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            first.release()

    second = StoreLock(tmp_path, OsFiles(), pause=pause)
    second.acquire(60)

    assert second.is_held
    assert pauses == sorted(pauses)
    first.close()
    second.close()


def test_who_waits_long_asks_rarely_and_who_waits_briefly_is_there_at_once(tmp_path: Path) -> None:
    first = lock(tmp_path)
    first.acquire(0)
    now = [0.0]
    pauses: list[tuple[float, float]] = []

    def pause(seconds: float) -> None:
        pauses.append((now[0], seconds))
        now[0] += seconds

    second = StoreLock(tmp_path, OsFiles(), pause=pause, monotonic=lambda: now[0])
    with pytest.raises(StoreLockedError):
        second.acquire(2)

    assert all(0 < seconds <= max(0.001, 0.05 * waited) for waited, seconds in pauses)
    assert len(pauses) < 500
    first.close()
    second.close()


def test_waiting_gives_up_at_the_deadline(tmp_path: Path) -> None:
    first = lock(tmp_path)
    first.acquire(0)
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    second = StoreLock(tmp_path, OsFiles(), pause=pause, monotonic=lambda: now[0])
    with pytest.raises(StoreLockedError, match=r"waited 0\.25 s"):
        second.acquire(0.25)

    assert 0.25 <= now[0] < 0.3
    first.close()
    second.close()


@pytest.mark.parametrize("kind", ["apache", "server"])
def test_holders_for_life_are_not_waited_for_long(kind: str, tmp_path: Path) -> None:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    waiting = StoreLock(tmp_path, OsFiles(), pause=pause, monotonic=lambda: now[0])
    program = (
        FOREIGN if kind == "apache" else OURS.replace("acquire(0)", "acquire(0, for_life=True)")
    )
    place = tmp_path / "lock" if kind == "apache" else tmp_path
    with Holder(program, place), pytest.raises(StoreLockedError, match=r"waited 2 s"):
        waiting.acquire(60)
    waiting.close()

    assert 2 <= now[0] < 2.1


def test_server_is_told_from_an_embedded_writer(tmp_path: Path) -> None:
    held = lock(tmp_path)
    held.acquire(0)
    assert "an embedded writer" in str(lock_holder(tmp_path))
    held.release()
    held.acquire(0, for_life=True)
    assert "rocketmq-broker serve" in str(lock_holder(tmp_path))
    held.release()

    assert lock_holder(tmp_path) is None
    held.close()


def test_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    holder = Holder(OURS, tmp_path)
    with holder:
        holder.process.kill()
        holder.process.wait()

        held = lock(tmp_path)
        held.acquire(0)
        held.close()


def test_foreign_start_changes_the_modification_time(tmp_path: Path) -> None:
    held = lock(tmp_path)
    held.acquire(0)
    os.utime(tmp_path / "lock", ns=(1, 1))
    held.release()
    held.acquire(0)
    assert held.modified_ns == 1
    held.release()

    with Holder(FOREIGN, tmp_path / "lock"):
        pass

    held.acquire(0)
    assert held.modified_ns != 1
    held.close()


def test_looking_creates_nothing(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_store_that_was_replaced_is_worth_nothing_and_says_so(tmp_path: Path) -> None:
    old = lock(tmp_path)
    old.acquire(0)
    old.release()
    (tmp_path / "lock").unlink()
    new = lock(tmp_path)
    new.acquire(0)

    for _ in range(2):
        with pytest.raises(StorageError, match="was deleted or replaced after this writer opened"):
            old.acquire(0)
        assert not old.is_held
    old.close()
    new.close()
