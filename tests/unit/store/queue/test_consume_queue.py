from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from broker_core import open_broker
from broker_core.errors import CorruptRecordError
from broker_core.store.io.segments import segment_name
from broker_core.store.queue import consume_queue
from broker_core.store.queue.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    ConsumeQueue,
    fillers,
    is_filler,
    is_written,
)
from broker_core.types import Mode
from tests.kit import stores

GOLDEN_ENTRY = bytes.fromhex("0000000000000000000000a6000000000027a807")
GOLDEN_FILLER = bytes.fromhex("00000000000000007fffffff0000000000000000")


def queue_of(directory: Path, entries: int, per_file: int, files: int, first: int = 0) -> Path:
    """Files with room for `per_file` entries each; entry n points to 1000 + 100 * n."""
    directory.mkdir(parents=True)
    written = np.zeros(per_file * files, dtype=ENTRY)
    numbers = np.arange(entries)
    written["physical_offset"][:entries] = 1000 + 100 * (first + numbers)
    written["size"][:entries] = 100
    for index in range(files):
        base = (first + index * per_file) * ENTRY_BYTES
        part = written[index * per_file : (index + 1) * per_file]
        (directory / segment_name(base)).write_bytes(part.tobytes())
    return directory


def test_an_entry_is_the_twenty_bytes_of_the_specification() -> None:
    entry = np.array([(0, 166, 2598919)], dtype=ENTRY)

    assert entry.tobytes() == GOLDEN_ENTRY
    assert np.frombuffer(GOLDEN_ENTRY, dtype=ENTRY)[0].item() == (0, 166, 2598919)


def test_a_filler_is_the_twenty_bytes_of_the_specification() -> None:
    assert fillers(2).tobytes() == GOLDEN_FILLER * 2
    assert is_filler(np.frombuffer(GOLDEN_FILLER + GOLDEN_ENTRY, dtype=ENTRY)).tolist() == [
        True,
        False,
    ]


def test_only_an_entry_of_zeros_counts_as_not_written() -> None:
    entries = np.frombuffer(GOLDEN_ENTRY + bytes(20) + bytes(19) + b"\x01", dtype=ENTRY)

    assert is_written(entries).tolist() == [True, False, True]


@pytest.mark.parametrize("mapped", [1, 1000], ids=["mapped", "read"])
def test_entries_are_the_same_read_and_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: int
) -> None:
    monkeypatch.setattr(consume_queue, "_MAPPED_ENTRIES", mapped)
    queue = ConsumeQueue(queue_of(tmp_path / "queue", 25, per_file=10, files=3, first=100))

    found = queue.read(103, 122)

    assert found["physical_offset"].tolist() == [1000 + 100 * n for n in range(103, 122)]
    assert len(queue.read(125, 140)) == 5
    (tmp_path / "queue" / segment_name(110 * ENTRY_BYTES)).unlink()
    assert found["physical_offset"].tolist() == [1000 + 100 * n for n in range(103, 122)]
    assert len(queue.read(103, 122)) == 7


@pytest.mark.parametrize(
    "entries", [0, 1, 4, 5, 6, 9, 10, 14, 15], ids=lambda count: f"{count}-entries"
)
def test_the_end_is_the_first_entry_of_zeros(tmp_path: Path, entries: int) -> None:
    queue = ConsumeQueue(queue_of(tmp_path / "0", entries, per_file=5, files=3))

    assert queue.written_end() == entries


@pytest.mark.parametrize("known", [0, 3, 7, 12, 15])
def test_the_end_is_found_forward_from_any_earlier_end(tmp_path: Path, known: int) -> None:
    queue = ConsumeQueue(queue_of(tmp_path / "0", max(known, 12), per_file=5, files=3))

    assert queue.written_end(known) == max(known, 12)


def test_a_known_end_before_the_first_file_is_not_trusted(tmp_path: Path) -> None:
    queue = ConsumeQueue(queue_of(tmp_path / "0", 3, per_file=5, files=1, first=10))

    assert queue.written_end(known=2) == 13


def test_entries_are_read_across_files(tmp_path: Path) -> None:
    queue = ConsumeQueue(queue_of(tmp_path / "0", 12, per_file=5, files=3))

    entries = queue.read(3, 11)

    assert entries["physical_offset"].tolist() == [1000 + 100 * n for n in range(3, 11)]


def test_a_read_stops_where_files_end(tmp_path: Path) -> None:
    queue = ConsumeQueue(queue_of(tmp_path / "0", 5, per_file=5, files=1))

    assert len(queue.read(3, 9)) == 2
    assert len(queue.read(6, 9)) == 0


def test_a_read_stops_at_a_file_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    queue = ConsumeQueue(queue_of(tmp_path / "0", 12, per_file=5, files=3))

    (tmp_path / "0" / segment_name(100)).unlink()

    assert len(queue.read(3, 11)) == 2


def test_numbering_starts_with_the_first_file(tmp_path: Path) -> None:
    queue = ConsumeQueue(queue_of(tmp_path / "0", 7, per_file=5, files=2, first=10))

    assert (queue.first, queue.capacity) == (10, 20)
    assert queue.written_end() == 17


def test_a_queue_without_files_is_empty(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "missing")

    assert (queue.first, queue.capacity) == (0, 0)
    assert queue.written_end() == 0
    assert len(queue.read(0, 10)) == 0


def test_a_file_that_holds_no_whole_number_of_entries_is_corrupt(tmp_path: Path) -> None:
    directory = tmp_path / "0"
    directory.mkdir()
    (directory / segment_name(0)).write_bytes(bytes(30))

    with pytest.raises(CorruptRecordError, match="30 bytes long, not a multiple of 20"):
        ConsumeQueue(directory)


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_queue_whose_first_entry_lost_its_only_byte_is_damaged(
    tmp_path: Path, mode: Mode
) -> None:
    with stores.create(tmp_path / "store") as broker:
        broker.create_topic("orders", queues=1)
        for _ in range(3):
            broker.send("orders", b"x")
    path = tmp_path / "store" / "consumequeue" / "orders" / "0" / segment_name(0)
    entry = path.read_bytes()[:20]
    assert entry.count(0) == 19
    path.write_bytes(bytes(20) + path.read_bytes()[20:])

    with (
        open_broker(tmp_path / "store", mode=mode) as broker,
        pytest.raises(CorruptRecordError, match=r"has nothing in entry 0.*let a writer rebuild"),
    ):
        broker.read("orders") if mode == "r" else broker.send("orders", b"y")
