from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from broker_core.errors import CorruptRecordError
from broker_core.store.index.file import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    ENTRY,
    HEADER_BYTES,
    IndexFile,
    IndexHeader,
    entry_position,
    file_size,
    key_hash,
    list_index_files,
)
from tests.kit import fixtures


def make(path: Path, slots: int, capacity: int, hashes: list[int], begin_ms: int = 5000) -> Path:
    """An index of hashes at physical offsets 0, 100, 200, ... and seconds 0, 1, 2, ..."""
    values = np.zeros(slots, dtype=">i4")
    entries = np.zeros(capacity, dtype=ENTRY)
    for number, hashed in enumerate(hashes, start=1):
        entries[number] = (hashed, 100 * (number - 1), number - 1, values[hashed % slots])
        values[hashed % slots] = number
    last = len(hashes) - 1
    header = IndexHeader(
        begin_ms,
        begin_ms + 1000 * last,
        0,
        100 * last,
        int(np.count_nonzero(values)),
        len(hashes) + 1,
    )
    path.write_bytes(header.encode() + values.tobytes() + entries.tobytes())
    return path


def test_hash_slot_and_position_are_those_of_the_specification() -> None:
    hashed = key_hash("TopicTest", "7F000001000A18B4AAC200000001ABCD")

    assert hashed == 616046194
    assert hashed % DEFAULT_SLOTS == 1046194
    assert HEADER_BYTES + 4 * (hashed % DEFAULT_SLOTS) == 4184816
    assert entry_position(DEFAULT_SLOTS, 1) == 20000060
    assert file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES) == 420000040


def test_a_first_entry_is_the_bytes_of_the_specification() -> None:
    entry = np.array([(616046194, 0, 0, 0)], dtype=ENTRY)

    assert entry.tobytes().hex() == "24b81e72" + "0" * 32


def test_a_header_reads_back_and_a_count_of_zero_means_one() -> None:
    header = IndexHeader(1, 2, 3, 4, 5, 6)

    assert IndexHeader.decode(header.encode()) == header
    assert IndexHeader.decode(bytes(40)) == IndexHeader(entry_count=1)


def test_a_lookup_follows_the_chain_from_new_to_old(tmp_path: Path) -> None:
    file = IndexFile(make(tmp_path / "i", 7, 20, [3, 10, 3, 4, 3]), slots=7)

    assert list(file.lookup(3)) == [400, 200, 0]
    assert list(file.lookup(10)) == [100]
    assert list(file.lookup(5)) == []


def test_a_lookup_is_bounded_by_times_of_whole_seconds(tmp_path: Path) -> None:
    file = IndexFile(make(tmp_path / "i", 7, 20, [3] * 10, begin_ms=5000), slots=7)

    assert list(file.lookup(3, begin_ms=7000, end_ms=9000)) == [400, 300, 200]


@pytest.mark.parametrize("name", fixtures.NAMES)
def test_the_slot_count_of_a_file_of_apache_is_found(tmp_path: Path, name: str) -> None:
    paths = list_index_files(fixtures.extract(name, tmp_path) / "index")

    found = [IndexFile(path) for path in paths]

    assert [(file.slots, file.capacity) for file in found] == [(500, 400)] * len(paths)


@pytest.mark.parametrize(("slots", "capacity"), [(1, 2), (5, 40), (11, 10), (500, 400), (997, 50)])
@pytest.mark.parametrize("keys", [1, 2, 9])
def test_the_slot_count_is_found_from_size_and_content(
    tmp_path: Path, slots: int, capacity: int, keys: int
) -> None:
    hashes = [(n * 7919 + 12345) % (1 << 31) for n in range(min(keys, capacity - 1))]

    assert IndexFile(make(tmp_path / "i", slots, capacity, hashes)).slots == slots


def test_the_slot_count_is_found_when_a_crash_left_one_slot_uncounted(tmp_path: Path) -> None:
    path = make(tmp_path / "i", 500, 400, [12345, 99999, 777])
    data = bytearray(path.read_bytes())
    data[32:36] = (2).to_bytes(4, "big")
    data[36:40] = (3).to_bytes(4, "big")
    path.write_bytes(data)

    assert IndexFile(path).slots == 500


def test_the_slot_count_is_found_while_slots_are_still_to_be_written(tmp_path: Path) -> None:
    path = make(tmp_path / "i", 500, 400, [12345, 99999, 777, 500_123])
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES : HEADER_BYTES + 4 * 500] = bytes(4 * 500)
    path.write_bytes(data)

    assert IndexFile(path).slots == 500


@pytest.mark.parametrize("hashes", [[0], [1, 2], [3, 0, 5_000_000], [7, 7, 7, 1 << 30]])
def test_the_slot_count_is_found_in_spite_of_tiny_hashes(tmp_path: Path, hashes: list[int]) -> None:
    assert IndexFile(make(tmp_path / "i", 50, 40, [*hashes, 1 << 29])).slots == 50


def test_an_empty_file_has_a_slot_for_four_entries(tmp_path: Path) -> None:
    path = tmp_path / "i"
    path.write_bytes(bytes(file_size(500, 2000)))

    assert IndexFile(path).slots == 500


def damaged(path: Path, position: int, data: bytes) -> IndexFile:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)
    return IndexFile(path, slots=7)


@pytest.mark.parametrize(
    ("position", "data", "message"),
    [
        (HEADER_BYTES + 4 * 3, b"\x00\x00\x00\xff", "255 in slot 3"),
        (HEADER_BYTES + 4 * 3, b"\xff\xff\xff\xff", "-1 in slot 3"),
        (HEADER_BYTES + 4 * 3, b"\x00\x00\x00\x02", "hash 11 in slot 3"),
        (entry_position(7, 5) + 16, b"\x00\x00\x00\x06", "previous entry 6"),
        (entry_position(7, 5) + 4, b"\x80", "physical offset -"),
        (entry_position(7, 5) + 12, b"\x80", "time -"),
    ],
    ids=["slot-beyond", "slot-negative", "slot-of-another", "chain-forward", "offset", "time"],
)
def test_a_damaged_entry_on_the_way_is_reported(
    tmp_path: Path, position: int, data: bytes, message: str
) -> None:
    file = damaged(make(tmp_path / "i", 7, 20, [3, 11, 3, 4, 3]), position, data)

    with pytest.raises(CorruptRecordError, match=message) as caught:
        list(file.lookup(3))
    assert caught.value.path == str(tmp_path / "i")


@pytest.mark.parametrize("size", [0, 39, 41, 40 + 16])
def test_a_file_too_short_to_be_an_index_is_corrupt(tmp_path: Path, size: int) -> None:
    path = tmp_path / "i"
    path.write_bytes(bytes(size))

    with pytest.raises(CorruptRecordError, match=str(path)):
        _ = IndexFile(path).slots


def test_a_header_that_lost_its_count_is_not_taken_for_an_empty_file(tmp_path: Path) -> None:
    path = make(tmp_path / "i", 7, 20, [3, 11])
    content = bytearray(path.read_bytes())
    content[36:40] = (1).to_bytes(4, "big")
    path.write_bytes(content)

    with pytest.raises(CorruptRecordError, match="counts 2 slots in use but no entries"):
        _ = IndexFile(path).is_empty
