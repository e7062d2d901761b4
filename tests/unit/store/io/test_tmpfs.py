"""Stores in a file system in memory: its holes are never touched where space is short."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.errors import DiskFullError
from broker_core.store.check.store import check
from broker_core.store.io import tmpfs
from broker_core.store.io.segments import let_go, map_file
from broker_core.store.io.tmpfs import FileCopy, copy_file, is_in_memory
from tests.kit import stores


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file system is one in memory, and short of space."""
    monkeypatch.setattr(tmpfs, "is_in_memory", lambda _device: True)
    monkeypatch.setattr(tmpfs, "_SPARE_BYTES", 1 << 60)


def sparse_file(path: Path) -> bytes:
    with path.open("wb") as file:
        file.truncate(1 << 20)
        for position in (0, 100_000, 700_001):
            file.seek(position)
            file.write(b"data at %d" % position)
    return path.read_bytes()


@pytest.mark.usefixtures("scarce")
def test_a_copy_has_the_bytes_of_the_file_and_keeps_them(tmp_path: Path) -> None:
    content = sparse_file(tmp_path / "file")

    copied = map_file(tmp_path / "file")
    let_go(copied, 0, len(copied))

    assert copied.tobytes() == content
    assert not copied.flags.writeable


def test_a_file_on_a_disk_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tmpfs, "is_in_memory", lambda _device: False)
    sparse_file(tmp_path / "file")

    mapped = map_file(tmp_path / "file")

    assert not isinstance(mapped.base.obj, FileCopy)  # type: ignore[union-attr]  # NumPy's view


def test_a_file_without_data_is_copied_as_zeros(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        file.truncate(8192)
        copied = copy_file(file.fileno(), 8192)

    assert np.frombuffer(copied, dtype=np.uint8).sum() == 0


def test_a_device_that_nobody_knows_is_not_in_memory() -> None:
    assert not is_in_memory(os.makedev(511, 0xFFFFF))


@pytest.mark.usefixtures("scarce")
def test_a_reader_of_copies_follows_a_writer(tmp_path: Path) -> None:
    with stores.create(tmp_path / "store") as writer, stores.open_r(tmp_path / "store") as reader:
        writer.create_topic("orders", queues=1)
        for number in range(60):
            writer.send("orders", b"%d" % number * 200, keys=[f"k{number}"])
            assert reader.read("orders")["body"].to_pylist()[-1] == b"%d" % number * 200
            assert reader.query("orders", f"k{number}").num_rows == 1
        assert reader.read("orders").num_rows == 60


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory of four mebibytes; only root can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip("this user may not mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)  # maps may be held a little longer


def fill(broker: EmbeddedBroker) -> int:
    """Send until the disk is full; how many messages were acknowledged."""
    for number in range(1000):
        try:
            broker.send("orders", b"x" * 20_000, keys=[f"k{number}"])
        except DiskFullError:
            return number
    pytest.fail("the disk is not full")


@pytest.mark.parametrize("config", [{}, {"mappedFileSizeCommitLog": 1 << 30}], ids=["small", "big"])
def test_what_fits_a_full_disk_is_read_whole(full_disk: Path, config: dict[str, int]) -> None:
    root = full_disk / "store"
    with stores.create(root, **config) as broker:
        broker.create_topic("orders", queues=1)
        acknowledged = fill(broker)

        assert acknowledged > 50
        assert broker.read("orders").num_rows == acknowledged
        with stores.open_r(root) as reader:
            assert reader.read("orders").num_rows == acknowledged
            assert reader.query("orders", "k7").num_rows == 1
            assert reader.query("orders", "none").num_rows == 0
    assert check(root) == []
