from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.errors import DiskFullError, StorageError
from broker_core.store.io.files import (
    Bytes,
    OsFiles,
    fallocate,
    make_directory,
    read_at,
    storage_error,
    write_at,
    write_new,
    zero,
)

PAGE = 4096


class ShortFiles(OsFiles):
    """Writes and reads at most three bytes a call, as a system may."""

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:
        return super().pwrite(descriptor, data[:3], offset)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        return super().pread(descriptor, min(size, 3), offset)


def test_short_writes_and_reads_are_continued(tmp_path: Path) -> None:
    files = ShortFiles()
    descriptor = files.open(tmp_path / "a", create=True)

    write_at(files, descriptor, b"0123456789", 5)

    assert read_at(files, descriptor, 10, 5) == b"0123456789"
    assert read_at(files, descriptor, 100, 12) == b"789"
    files.close(descriptor)


def test_zero_clears_exactly_the_range_and_keeps_holes(tmp_path: Path) -> None:
    files = OsFiles()
    path = tmp_path / "file"
    descriptor = files.open(path, create=True)
    files.truncate(descriptor, 64 << 20)
    write_at(files, descriptor, b"x" * 10_000, 0)
    write_at(files, descriptor, b"y" * 100, 50 << 20)
    before = path.stat().st_blocks

    zero(files, descriptor, 5_000, 64 << 20)

    assert read_at(files, descriptor, 10_000, 0) == b"x" * 5_000 + bytes(5_000)
    assert read_at(files, descriptor, 100, 50 << 20) == bytes(100)
    assert path.stat().st_blocks == before
    files.close(descriptor)


def test_directories_are_made_once(tmp_path: Path) -> None:
    make_directory(OsFiles(), tmp_path / "a" / "b")
    make_directory(OsFiles(), tmp_path / "a" / "b")

    assert (tmp_path / "a" / "b").is_dir()


def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")

    with pytest.raises(FileExistsError):
        make_directory(OsFiles(), tmp_path / "a")


def test_small_file_is_replaced_whole(tmp_path: Path) -> None:
    write_new(OsFiles(), tmp_path / "abort", b"123456")
    write_new(OsFiles(), tmp_path / "abort", b"7")

    assert (tmp_path / "abort").read_bytes() == b"7"


@pytest.mark.parametrize(
    ("number", "kind", "advice"),
    [
        (errno.ENOSPC, DiskFullError, "Free space"),
        (errno.EDQUOT, DiskFullError, "Free space"),
        (errno.EACCES, StorageError, "mode='r'"),
        (errno.EROFS, StorageError, "mode='r'"),
        (errno.EIO, StorageError, "Check the disk"),
    ],
)
def test_system_errors_become_ours_with_place_and_advice(
    number: int, kind: type[Exception], advice: str
) -> None:
    error = storage_error(OSError(number, os.strerror(number)), "append", Path("/s/log"))

    assert type(error) is kind
    assert "/s/log" in str(error)
    assert os.strerror(number) in str(error)
    assert advice in str(error)


@pytest.fixture
def sparse(tmp_path: Path) -> Iterator[int]:
    """A file of a hundred pages, none of which is on the disk."""
    descriptor = os.open(tmp_path / "sparse", os.O_CREAT | os.O_RDWR)
    os.ftruncate(descriptor, 100 * PAGE)
    yield descriptor
    os.close(descriptor)


def taken_bytes(descriptor: int) -> int:
    return os.fstat(descriptor).st_blocks * 512


def test_bytes_get_their_place_and_stay_what_they_are(sparse: int) -> None:
    os.pwrite(sparse, b"kept", 3 * PAGE)

    if not fallocate(sparse, PAGE, 50 * PAGE):
        pytest.skip("this file system can't reserve space")

    assert taken_bytes(sparse) >= 50 * PAGE
    assert os.fstat(sparse).st_size == 100 * PAGE
    wanted = bytearray(100 * PAGE)
    wanted[3 * PAGE : 3 * PAGE + 4] = b"kept"
    assert os.pread(sparse, 100 * PAGE, 0) == wanted


def test_a_file_does_not_grow(sparse: int) -> None:
    fallocate(sparse, 90 * PAGE, 20 * PAGE)

    assert os.fstat(sparse).st_size == 100 * PAGE


def test_what_no_disk_has_is_refused(sparse: int) -> None:
    if not fallocate(sparse, 0, PAGE):
        pytest.skip("this file system can't reserve space")

    with pytest.raises(OSError, match=r"large|space"):
        fallocate(sparse, 0, 1 << 61)


def test_what_is_no_file_has_no_place_on_a_disk() -> None:
    reader, writer = os.pipe()
    try:
        assert fallocate(writer, 0, PAGE) is False
    finally:
        os.close(reader)
        os.close(writer)
