from __future__ import annotations

import errno
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker_core.errors import (
    ConfigError,
    DiskFullError,
    IllegalMessageError,
    StorageError,
    StoreLockedError,
    StoreNotFoundError,
)
from broker_core.store.io.files import Bytes, Files, OsFiles
from broker_core.store.lock import StoreLock
from broker_core.store.recovery.checkpoint import read_checkpoint
from broker_core.store.recovery.plan import RecoveryKind, plan
from broker_core.store.recovery.shutdown_state import read_shutdown_state
from broker_core.store.recovery.tail_marker import TailMarker, TailState
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from tests.kit.batches import (
    SMALL,
    QuickFiles,
    View,
    batch,
    index_bytes,
    named,
    rebuilt_index,
    ticking,
    view,
)

pytestmark = pytest.mark.usefixtures("either_way")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def writer(
    root: Path, *, create: bool = True, files: Files | None = None, **changes: Any
) -> StoreWriter:
    chosen = replace(SessionOptions(clock_ms=ticking(), lock_wait_s=10), **changes)
    used = QuickFiles() if files is None else files
    return StoreWriter.open(root, SMALL, create=create, files=used, options=chosen)


def tail_of(root: Path) -> TailMarker:
    tail = read_shutdown_state(root).tail
    assert tail is not None
    return tail


def expected(*batches: list[str], queues: int = 2) -> View:
    flat = [body.encode() for bodies in batches for body in bodies]
    found = {("T", queue): flat[queue::queues] for queue in range(queues)}
    return {queue: bodies for queue, bodies in found.items() if bodies}


class TestAppend:
    def test_messages_get_consecutive_offsets_of_their_queues(self, root: Path) -> None:
        with writer(root) as store:
            first = store.append(batch(named(5)))
            second = store.append(batch(named(4, 5), first=5))

        assert first.queue_offsets.tolist() == [0, 0, 1, 1, 2]
        assert second.queue_offsets.tolist() == [2, 3, 3, 4]
        assert view(root) == expected(named(9))

    def test_all_three_kinds_of_files_roll_over(self, root: Path) -> None:
        with writer(root) as store:
            for start in range(0, 60, 20):
                store.append(batch(named(20, start), first=start))

        assert len(list((root / "commitlog").iterdir())) > 2
        assert len(list((root / "consumequeue/T/0").iterdir())) == 3
        assert len(list((root / "index").iterdir())) > 2
        assert view(root) == expected(named(60))

    def test_one_batch_may_span_many_segments(self, root: Path) -> None:
        with writer(root) as store:
            placed = store.append(batch(named(200)))

        segments = sorted(path.name for path in (root / "commitlog").iterdir())
        assert len(segments) == int(placed.physical_offsets[-1]) // 4096 + 1
        assert view(root) == expected(named(200))

    def test_index_equals_a_rebuild(self, root: Path, tmp_path: Path) -> None:
        with writer(root) as store:
            for start in range(0, 60, 4):
                store.append(batch(named(4, start), first=start))

        assert index_bytes(root) == rebuilt_index(root, tmp_path / "again", SMALL)

    def test_store_time_never_goes_back(self, root: Path) -> None:
        now = [5_000]
        with writer(root, clock_ms=lambda: now[0]) as store:
            first = store.append(batch(["a"]))
            now[0] = 4_000
            second = store.append(batch(["a"]))

        assert (first.store_timestamp_ms, second.store_timestamp_ms) == (5_000, 5_000)

    def test_empty_batch_changes_nothing(self, root: Path) -> None:
        with writer(root) as store:
            store.append(batch(named(1)))
            placed = store.append(batch([]))

        assert len(placed.queue_offsets) == 0
        assert view(root) == expected(named(1))

    def test_prepared_records_take_no_place_in_a_queue(self, root: Path) -> None:
        with writer(root) as store:
            store.append(batch(["half"], sys_flag=0x4, queues=1))
            placed = store.append(batch(["whole"], queues=1))

        assert placed.queue_offsets.tolist() == [0]
        assert view(root) == {("T", 0): [b"whole"]}

    def test_record_larger_than_a_segment_is_refused_and_nothing_kept(self, root: Path) -> None:
        with writer(root) as store:
            with pytest.raises(IllegalMessageError, match="commit-log file of 4096 bytes"):
                store.append(batch(["small", "x" * 4096]))
            store.append(batch(named(1)))

        assert view(root) == expected(named(1))

    def test_unknown_flush_mode_is_refused(self, root: Path) -> None:
        with writer(root) as store, pytest.raises(ConfigError, match="'later' is not a flush mode"):
            store.append(batch(["a"]), flush="later")

    def test_log_of_apaches_layout_fits_to_the_byte(self, root: Path) -> None:
        """A record that leaves exactly 8 bytes still fits; one byte more rolls over."""
        with writer(root) as store:
            size = int(store.append(batch(["x"], queues=1)).sizes[0])
            rest = 4096 - 2 * size - 8 - (size - 1)
            fits = store.append(batch(["x", "x" * rest], queues=1))
            rolled = store.append(batch(["x"], queues=1))

        assert int(fits.physical_offsets[-1] + fits.sizes[-1]) == 4096 - 8
        assert rolled.physical_offsets.tolist() == [4096]
        tail = (root / "commitlog/00000000000000000000").read_bytes()[-8:]
        assert tail.hex() == "00000008cbd43194"


class TestOpen:
    def test_missing_store_is_an_error_and_nothing_is_made(self, root: Path) -> None:
        with pytest.raises(StoreNotFoundError):
            writer(root, create=False)

        assert not root.exists()

    def test_closed_store_opens_without_looking_at_its_data(self, root: Path) -> None:
        with writer(root) as store:
            store.append(batch(named(50)))

        assert plan(root, SMALL).kind is RecoveryKind.NONE
        assert plan(root, SMALL, boot=bytes(range(16))).kind is RecoveryKind.NONE
        assert not (root / "abort").exists()

    def test_abort_is_there_while_writes_may_not_be_flushed(self, root: Path) -> None:
        store = writer(root)
        store.append(batch(["a"]))

        assert (root / "abort").read_text() == str(os.getpid())
        store.close()
        assert not (root / "abort").exists()

    def test_sizes_of_an_existing_store_win_over_defaults(self, root: Path) -> None:
        with writer(root) as store:
            store.append(batch(named(3)))

        with StoreWriter.open(root, StoreSettings(), files=QuickFiles()) as store:
            store.append(batch(named(30, 3), first=3))

        assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {4096}
        assert view(root) == expected(named(33))

    def test_checkpoint_is_true_after_close(self, root: Path) -> None:
        with writer(root) as store:
            placed = store.append(batch(named(60)))

        found = read_checkpoint(root / "checkpoint")
        assert found.physic_msg_timestamp == placed.store_timestamp_ms
        assert found.logics_msg_timestamp == placed.store_timestamp_ms
        assert found.index_msg_timestamp == placed.store_timestamp_ms
        assert found.logics_physical_offset == int(placed.physical_offsets[-1] + placed.sizes[-1])
        assert (root / "checkpoint").stat().st_size == 4096

    def test_closing_twice_is_fine_and_using_a_closed_writer_is_not(self, root: Path) -> None:
        store = writer(root)
        store.close()
        store.close()

        with pytest.raises(StorageError, match="is closed; open the store again"):
            store.append(batch(["a"]))


class TestTurns:
    def test_two_writers_take_turns(self, root: Path) -> None:
        with writer(root) as one, writer(root) as other:
            for number in range(0, 40, 2):
                one.append(batch(named(1, number), first=number))
                other.append(batch(named(1, number + 1), first=number + 1))

        assert view(root) == expected(named(40))
        assert tail_of(root).state is TailState.CLOSED

    def test_first_to_close_leaves_the_store_open_if_the_other_wrote_since(
        self, root: Path
    ) -> None:
        one, other = writer(root), writer(root)
        one.append(batch(named(1)))
        other.append(batch(named(1, 1), first=1))
        one.close()
        other.append(batch(named(1, 2), first=2))

        assert (root / "abort").exists()
        other.close()
        assert not (root / "abort").exists()
        assert view(root) == expected(named(3))

    def test_many_processes_append_at_once(self, root: Path) -> None:
        writer(root).close()
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=_append_many, args=(root, name)) for name in "abc"]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)

        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        found = view(root)
        for name in "abc":
            flat = sorted(
                body for (topic, _), bodies in found.items() if topic == name for body in bodies
            )
            assert flat == sorted(body.encode() for body in named(60))

    def test_foreign_lock_is_an_error_that_changes_nothing(self, root: Path) -> None:
        with writer(root) as store:
            store.append(batch(["a"]))
        before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        foreign = StoreLock(root, OsFiles())
        foreign.acquire(0)

        with pytest.raises(StoreLockedError, match="is locked by"):
            writer(root, lock_wait_s=0)

        foreign.close()
        assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def test_held_lock_keeps_others_out_until_close(self, root: Path) -> None:
        held = StoreWriter.open(root, SMALL, create=True, hold=True, files=QuickFiles())

        with pytest.raises(StoreLockedError):
            writer(root, lock_wait_s=0)
        held.append(batch(["a"]))
        held.close()

        with writer(root) as store:
            store.append(batch(["b"], first=1))
        assert view(root) == expected(["a", "b"])

    def test_forked_child_is_refused(self, root: Path) -> None:
        """It shares the lock with its parent, and both would write at once."""
        store = writer(root)
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=_use_inherited, args=(store, there))
        child.start()

        assert here.recv() == "StorageError"
        child.join()
        store.append(batch(["a"]))
        store.close()
        assert view(root) == expected(["a"])

    def test_turns_nest(self, root: Path) -> None:
        with writer(root) as store, store.turn("save a thing"):
            store.append(batch(["a"]))
            with store.turn("save another"):
                store.append(batch(["b"], first=1))

        assert view(root) == expected(["a", "b"])

    def test_apaches_start_makes_a_writer_look_again(self, root: Path) -> None:
        """A foreign broker ran between two appends and left no trace but its writes."""
        with writer(root) as store:
            store.append(batch(named(3)))
            tail = tail_of(root)
            # What Apache would leave: one more record, its entry, and a new time on the lock.
            other = writer(root, boot=bytes(16))
            other.append(batch(named(1, 3), first=3))
            page = bytearray((root / "checkpoint").read_bytes())
            page[2048:] = bytes(2048)
            page[tail.slot_offset : tail.slot_offset + len(tail.encode())] = tail.encode()
            (root / "checkpoint").write_bytes(page)
            (root / "lock").write_bytes(b"lock")

            store.append(batch(named(1, 4), first=4))

        assert view(root) == expected(named(5))


def _use_inherited(store: StoreWriter, answer: Any) -> None:
    try:
        store.append(batch(["b"]))
        answer.send("written")
    except StorageError as error:
        answer.send(type(error).__name__)


def _number(body: bytes) -> int:
    return int(body.strip(b"m."))


def _append_many(root: Path, topic: str) -> None:
    with StoreWriter.open(root, SMALL, files=QuickFiles()) as store:
        for start in range(0, 60, 3):
            store.append(batch(named(3, start), topic=topic, first=start))


class FullDisk(QuickFiles):
    """Refuses, once told to, what needs new space in some files: data where zeros were."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.is_full = False

    def reserve(self, descriptor: int, offset: int, size: int) -> bool:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        is_new = not super().pread(descriptor, size, offset).strip(b"\0")
        if self.is_full and self.place in path and is_new:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().reserve(descriptor, offset, size)

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        is_new = not super().pread(descriptor, len(data), offset).strip(b"\0")
        if self.is_full and self.place in path and is_new and bytes(data).strip(b"\0"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(descriptor, data, offset)


@pytest.mark.parametrize("place", ["commitlog", "consumequeue", "index"])
def test_full_disk_keeps_nothing_of_the_batch_and_the_store_goes_on(
    place: str, root: Path, tmp_path: Path
) -> None:
    files = FullDisk(place)
    with writer(root, files=files) as store:
        store.append(batch(named(30)))
        before = (view(root), index_bytes(root))

        files.is_full = True
        with pytest.raises(DiskFullError, match="nothing of it was kept"):
            store.append(batch(named(30, 30), first=30))
        assert (view(root), index_bytes(root)) == before

        files.is_full = False
        store.append(batch(named(30, 30), first=30))

    assert view(root) == expected(named(60))
    assert index_bytes(root) == rebuilt_index(root, tmp_path / "again", SMALL)


class TestRetention:
    def test_whole_segments_before_an_offset_go_and_queues_follow(self, root: Path) -> None:
        with writer(root) as store:
            store.append(batch(named(100)))
            start = store.delete_before(4096 * 3 + 17)

            assert start == 4096 * 3
            assert min(path.name for path in (root / "commitlog").iterdir()).endswith("12288")
            store.append(batch(named(2, 100), first=100))

        left = sorted((body for bodies in view(root).values() for body in bodies), key=_number)
        assert left == [body.encode() for body in named(102)][-len(left) :]
        assert len(left) > 2
        assert min(path.name for path in (root / "consumequeue/T/0").iterdir()) > "0" * 20

    def test_last_segment_always_stays(self, root: Path) -> None:
        with writer(root) as store:
            placed = store.append(batch(named(100)))
            end = int(placed.physical_offsets[-1])

            assert store.delete_before(1 << 40) == end // 4096 * 4096
            store.append(batch(named(1, 100), first=100))

        assert view(root)["T", 0][-1] == named(1, 100)[0].encode()

    def test_expired_segments_go_on_demand(self, root: Path) -> None:
        now = [10**12]
        with writer(root, clock_ms=lambda: now[0]) as store:
            store.append(batch(named(100)))
            old = sorted((root / "commitlog").iterdir())[:2]
            for path in old:
                os.utime(path, (0, 0))
            for path in sorted((root / "commitlog").iterdir())[2:]:
                os.utime(path, (10**9, 10**9))

            assert store.delete_expired(is_on_demand=True, disk_percent=10) == 8192
            assert not any(path.exists() for path in old)


def test_settings_of_segments_may_spread_over_directories(root: Path, tmp_path: Path) -> None:
    settings = replace(SMALL, store_path_commit_log=f"{tmp_path}/a,{tmp_path}/b")
    with StoreWriter.open(root, settings, create=True, files=QuickFiles()) as store:
        store.append(batch(named(100)))

    assert list((tmp_path / "a").iterdir())
    assert list((tmp_path / "b").iterdir())
    assert view(root, settings) == expected(named(100))


def test_result_says_where_messages_lie(root: Path) -> None:
    with writer(root) as store:
        placed = store.append(batch(named(3)))

    assert placed.queue_ids.tolist() == [0, 1, 0]
    assert np.array_equal(placed.physical_offsets, np.cumsum([0, *placed.sizes[:-1]]))
