from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.store.io.fallocate import fallocate

PAGE = 4096


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
