from __future__ import annotations

import threading
from pathlib import Path

import pytest

from broker_core.errors import StorageError
from broker_core.store.flush import dirty_since
from broker_core.store.recovery.checkpoint import read_checkpoint
from broker_core.store.recovery.shutdown_state import read_shutdown_state
from broker_core.store.recovery.tail_marker import TailMarker, TailState
from broker_core.store.session import SessionOptions
from broker_core.store.writer import StoreWriter
from tests.kit.batches import SMALL, QuickFiles, batch, named, ticking


class Syncs(QuickFiles):
    """Notes what is synced, by its path in the store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: list[str] = []
        self.directories: list[str] = []
        self.is_broken = False

    def fsync(self, descriptor: int) -> None:
        if self.is_broken:
            raise OSError(5, "Input/output error")
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.files.append(str(path.relative_to(self.root)))

    def fsync_dir(self, path: Path) -> None:
        if path.is_relative_to(self.root):
            self.directories.append(str(path.relative_to(self.root)))

    def forget(self) -> None:
        self.files.clear()
        self.directories.clear()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def open_store(root: Path, files: QuickFiles) -> StoreWriter:
    options = SessionOptions(clock_ms=ticking(), lock_wait_s=10)
    return StoreWriter.open(root, SMALL, create=True, files=files, options=options)


def tail_of(root: Path) -> TailMarker:
    tail = read_shutdown_state(root).tail
    assert tail is not None
    return tail


def test_async_append_syncs_nothing_but_the_first_abort(root: Path) -> None:
    files = Syncs(root)
    with open_store(root, files) as store:
        store.append(batch(named(3)), flush="async")
        files.forget()
        store.append(batch(named(3)), flush="async")

        assert files.files == files.directories == []


def test_sync_append_syncs_all_of_the_log_before_it(root: Path) -> None:
    files = Syncs(root)
    with open_store(root, files) as store:
        store.append(batch(named(60)), flush="async")
        files.forget()

        store.append(batch(["a"]), flush="sync")

        segments = sorted(path.name for path in (root / "commitlog").iterdir())
        assert files.files == [f"commitlog/{name}" for name in segments]
        assert set(files.directories) == {"commitlog"}
        files.forget()
        store.append(batch(["b"]), flush="sync")
        assert files.files == [f"commitlog/{segments[-1]}"]


def test_sync_append_syncs_what_other_writers_left(root: Path) -> None:
    files = Syncs(root)
    with open_store(root, QuickFiles()) as other, open_store(root, files) as store:
        other.append(batch(named(60)), flush="async")
        files.forget()

        store.append(batch(["a"]), flush="sync")

        assert len(files.files) == len(list((root / "commitlog").iterdir()))


def test_flush_syncs_everything_once_and_then_says_so(root: Path) -> None:
    files = Syncs(root)
    with open_store(root, files) as store:
        placed = store.append(batch(named(30)))
        end = int(placed.physical_offsets[-1] + placed.sizes[-1])
        files.forget()

        store.flush()

        data = {
            str(path.relative_to(root))
            for kind in ("commitlog", "consumequeue", "index")
            for path in (root / kind).rglob("*")
            if path.is_file()
        }
        assert data <= set(files.files)
        assert files.files[-1] == "checkpoint"
        assert {"commitlog", "index", "consumequeue/T/0", "consumequeue/T", "consumequeue"} <= set(
            files.directories
        )
        assert read_checkpoint(root / "checkpoint").logics_physical_offset == end
        assert (tail_of(root).durable_end, tail_of(root).state) == (end, TailState.CLEAN)
        files.forget()
        store.flush()
        assert set(files.files) == {"checkpoint"}


def test_flush_finds_what_others_wrote(root: Path) -> None:
    files = Syncs(root)
    with open_store(root, QuickFiles()) as other, open_store(root, files) as store:
        store.append(batch(named(2)))
        store.flush()
        other.append(batch(named(30), topic="Other"))
        files.forget()

        store.flush()

        touched = {path for path in files.files if "Other" in path}
        assert touched == {
            str(path.relative_to(root))
            for path in (root / "consumequeue/Other").rglob("*")
            if path.is_file()
        }


def test_dirty_files_follow_from_the_log(root: Path) -> None:
    with open_store(root, QuickFiles()) as store:
        store.append(batch(named(30)))
        with store.turn("look") as parts:
            everything = dirty_since(parts, 0)
            end = tail_of(root).log_end
            nothing = dirty_since(parts, end)

    assert {path.name for path in everything.written if "consumequeue" in str(path)} == {
        "00000000000000000000",
        "00000000000000000200",
    }
    assert not any("consumequeue" in str(path) or "index" in str(path) for path in nothing.written)


def test_flush_that_failed_is_made_up_for(root: Path) -> None:
    files = Syncs(root)
    with open_store(root, files) as store:
        store.append(batch(named(3)))
        files.is_broken = True
        with pytest.raises(StorageError, match="Could not flush the store"):
            store.flush()
        assert read_checkpoint(root / "checkpoint").logics_physical_offset == 0

        files.is_broken = False
        files.forget()
        store.flush()

        assert any("commitlog" in path for path in files.files)
        assert any("consumequeue" in path for path in files.files)


def test_appends_go_on_while_files_are_synced(root: Path) -> None:
    class Slow(QuickFiles):
        store: StoreWriter | None = None

        def fsync(self, descriptor: int) -> None:
            store, self.store = self.store, None
            if store is not None:
                thread = threading.Thread(target=store.append, args=(batch(["b"], first=1),))
                thread.start()
                thread.join(30)
                assert not thread.is_alive()

    files = Slow()
    with open_store(root, files) as store:
        placed = store.append(batch(["a"]))
        files.store = store
        store.flush()

        assert tail_of(root).log_end > tail_of(root).durable_end
        assert tail_of(root).durable_end == int(placed.physical_offsets[-1] + placed.sizes[-1])
