from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.store.io.file_handles import FileHandles
from broker_core.store.io.files import OsFiles


class CountingFiles(OsFiles):
    """Counts what is open and what was synced."""

    def __init__(self) -> None:
        self.open_now = 0
        self.opened = 0
        self.synced: list[str] = []

    def open(self, path: Path, *, create: bool = False) -> int:
        self.open_now += 1
        self.opened += 1
        return super().open(path, create=create)

    def close(self, descriptor: int) -> None:
        self.open_now -= 1
        super().close(descriptor)

    def fsync(self, descriptor: int) -> None:
        self.synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        super().fsync(descriptor)

    def fsync_dir(self, path: Path) -> None:
        self.synced.append(path.name)


def test_created_file_is_whole_sparse_and_zero(tmp_path: Path) -> None:
    handles = FileHandles(OsFiles())
    path = tmp_path / "deep" / "er" / "file"

    handles.create(path, 1 << 30)

    assert path.stat().st_size == 1 << 30
    assert path.stat().st_blocks * 512 < 1 << 20
    handles.close_all()


def test_creating_over_a_left_over_file_leaves_no_stale_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"stale" * 100)
    handles = FileHandles(OsFiles())

    handles.create(path, 200)

    assert path.read_bytes() == bytes(200)
    handles.close_all()


def test_least_recently_used_descriptor_is_closed(tmp_path: Path) -> None:
    files = CountingFiles()
    handles = FileHandles(files, limit=2)
    a, b, c = (tmp_path / name for name in "abc")
    handles.create(a, 1)
    handles.create(b, 1)
    handles.read(a, 1, 0)
    handles.create(c, 1)
    opened = files.opened

    handles.write(a, b"1", 0)
    assert (files.opened, files.open_now) == (opened, 2)
    handles.write(b, b"2", 0)
    assert (files.opened, files.open_now) == (opened + 1, 2)

    handles.close_all()
    assert files.open_now == 0


def test_writing_to_a_missing_file_is_an_error_and_creates_nothing(tmp_path: Path) -> None:
    handles = FileHandles(OsFiles())

    with pytest.raises(FileNotFoundError):
        handles.write(tmp_path / "a", b"1", 0)

    assert list(tmp_path.iterdir()) == []


def test_deleting_twice_is_fine(tmp_path: Path) -> None:
    handles = FileHandles(OsFiles())
    handles.create(tmp_path / "a", 1)

    handles.delete(tmp_path / "a")
    handles.delete(tmp_path / "a")

    assert list(tmp_path.iterdir()) == []
    assert handles.take_dirty().written == set()


def test_every_write_is_noted_once_until_taken(tmp_path: Path) -> None:
    handles = FileHandles(OsFiles())
    a, b = tmp_path / "a", tmp_path / "b"
    handles.create(a, 10)
    handles.create(b, 10)
    taken = handles.take_dirty()
    assert (taken.written, taken.created) == ({a, b}, {a, b})

    handles.write(a, b"x", 0)
    handles.zero(b, 0, 5)

    taken = handles.take_dirty()
    assert (taken.written, taken.created) == ({a, b}, set())
    assert handles.take_dirty().written == set()
    handles.close_all()


def test_fsync_takes_a_file_off_the_note_but_not_its_name(tmp_path: Path) -> None:
    files = CountingFiles()
    handles = FileHandles(files)
    path = tmp_path / "a"
    handles.create(path, 10)

    handles.fsync(path)

    assert files.synced == ["a"]
    taken = handles.take_dirty()
    assert (taken.written, taken.created) == (set(), {path})
    handles.close_all()


@pytest.mark.parametrize("is_held_twice", [False, True])
def test_a_file_that_is_held_is_noted_again_after_it_left_the_note(
    is_held_twice: bool, tmp_path: Path
) -> None:
    handles = FileHandles(OsFiles())
    path = tmp_path / "a"
    handles.create(path, 10)
    held = handles.file(path)
    held.write(b"x", 0)
    if is_held_twice:
        handles.close_all()
        handles.write(path, b"x", 0)

    handles.fsync(path)
    held.write(b"y", 1)
    assert handles.take_dirty().written == {path}
    held.write(b"z", 2)
    assert handles.take_dirty().written == {path}
    handles.close_all()


def test_renamed_file_is_noted_under_its_final_name(tmp_path: Path) -> None:
    handles = FileHandles(OsFiles())
    handles.create(tmp_path / "tmp", 10)

    handles.rename(tmp_path / "tmp", tmp_path / "final")

    taken = handles.take_dirty()
    assert taken.written == taken.created == {tmp_path / "final"}
    assert list(tmp_path.iterdir()) == [tmp_path / "final"]
