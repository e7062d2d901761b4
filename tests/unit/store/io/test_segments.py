from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.errors import CorruptRecordError, StorageError
from broker_core.store.io.segments import (
    SegmentedLog,
    list_segments,
    map_file,
    segment_base,
    segment_name,
)


def make(directory: Path, *bases: int, size: int = 10) -> Path:
    directory.mkdir(exist_ok=True)
    for base in bases:
        (directory / segment_name(base)).write_bytes(bytes([base % 251]) * size)
    return directory


def test_names_and_bases_are_inverse() -> None:
    assert segment_name(1073741824) == "00000000001073741824"
    assert segment_base("00000000001073741824") == 1073741824


@pytest.mark.parametrize(
    "name", ["", "1", "0" * 19, "0" * 21, "x" * 20, "-0000000000000000001", "9" * 20, "٠" * 20]
)
def test_other_names_are_not_segments(name: str) -> None:
    assert segment_base(name) is None


def test_segments_are_listed_by_base_without_foreign_names(tmp_path: Path) -> None:
    log = make(tmp_path / "log", 20, 0, 10)
    (log / "notes.txt").write_text("x")
    (log / segment_name(30)).mkdir()

    assert [segment.base for segment in list_segments(log)] == [0, 10, 20]


def test_several_directories_hold_one_log(tmp_path: Path) -> None:
    segments = list_segments(make(tmp_path / "a", 0, 20), make(tmp_path / "b", 10, 30))

    assert [segment.base for segment in segments] == [0, 10, 20, 30]


def test_an_empty_last_file_is_left_out(tmp_path: Path) -> None:
    log = make(tmp_path / "log", 0, 10)
    (log / segment_name(20)).write_bytes(b"")

    assert [segment.base for segment in list_segments(log)] == [0, 10]


@pytest.mark.parametrize("short", [0, 10, 20])
def test_files_of_unequal_length_are_corrupt(tmp_path: Path, short: int) -> None:
    log = make(tmp_path / "log", 0, 10, 20)
    (log / segment_name(short)).write_bytes(b"1234567")

    with pytest.raises(CorruptRecordError, match=r"7 bytes long|is 7: all files") as caught:
        list_segments(log)
    assert str(log) in caught.value.path


def test_overlapping_files_are_corrupt(tmp_path: Path) -> None:
    log = make(tmp_path / "log", 0, 5)

    with pytest.raises(CorruptRecordError, match="overlaps"):
        list_segments(log)


def test_an_offset_is_found_in_the_file_that_holds_it(tmp_path: Path) -> None:
    log = SegmentedLog(make(tmp_path / "log", 10, 20, 40))

    found = {offset: log.find(offset) for offset in (9, 10, 19, 20, 30, 40, 49, 50)}

    bases = {offset: segment and segment.base for offset, segment in found.items()}
    assert bases == {9: None, 10: 10, 19: 10, 20: 20, 30: None, 40: 40, 49: 40, 50: None}
    assert (log.start, log.capacity, log.file_size) == (10, 50, 10)


def test_a_map_outlives_its_file(tmp_path: Path) -> None:
    log = SegmentedLog(make(tmp_path / "log", 0, 10))
    mapped = log.map(log.segments[1])
    assert mapped is not None

    (tmp_path / "log" / segment_name(10)).unlink()
    log.refresh()

    assert mapped.tobytes() == bytes([10]) * 10
    assert [segment.base for segment in log.segments] == [0]


def test_a_file_deleted_before_it_is_mapped_has_no_bytes(tmp_path: Path) -> None:
    log = SegmentedLog(make(tmp_path / "log", 0, 10))
    (tmp_path / "log" / segment_name(0)).unlink()

    assert log.map(log.segments[0]) is None


def test_maps_are_read_only(tmp_path: Path) -> None:
    mapped = map_file(make(tmp_path / "log", 0) / segment_name(0))

    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1


def test_an_unreadable_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("broker_core.store.io.segments.os.scandir", refuse)

    with pytest.raises(StorageError, match=r"Can't read .*log: Permission denied; give this user"):
        list_segments(tmp_path / "log")
