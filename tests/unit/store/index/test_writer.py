from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from broker_core.codec.dispatch_request import dispatch_requests
from broker_core.codec.frames import FrameBatch
from broker_core.codec.scan import walk
from broker_core.errors import CorruptRecordError
from broker_core.store.index.chains import walk_back
from broker_core.store.index.file import (
    HEADER_BYTES,
    SLOT_BYTES,
    IndexFile,
    IndexHeader,
    list_index_files,
)
from broker_core.store.index.writer import IndexPosition, IndexWriter, next_name
from broker_core.store.io.file_handles import FileHandles
from broker_core.store.io.files import Bytes, OsFiles
from broker_core.store.io.segments import SegmentedLog
from tests.kit import fixtures

pytestmark = pytest.mark.usefixtures("either_way")

Keys = NDArray[np.int32]
Offsets = NDArray[np.int64]


def writer(directory: Path, slots: int = 500, entries: int = 400) -> IndexWriter:
    return IndexWriter(directory, FileHandles(OsFiles()), slots=slots, entries=entries)


def index_keys(root: Path, *, index_tags: bool) -> Iterator[tuple[Keys, Offsets, Offsets]]:
    """(hashes, physical offsets, store times) of every key in a store's log, segment by segment."""
    log = SegmentedLog(root / "commitlog")
    for segment in log.segments:
        data = log.map(segment)
        assert data is not None
        found = walk(data, 0, segment.size, origin=segment.base, verify=True)
        frames = FrameBatch(
            data,
            found.starts,
            found.sizes,
            np.zeros(len(found.starts), np.int64),
            origin=segment.base,
        )
        if len(frames):
            fields = dispatch_requests(frames, index_tags=index_tags)
            keyed = fields.index_rows
            offsets, times = fields.physical_offsets[keyed], fields.store_timestamps[keyed]
            yield fields.index_hashes, offsets, times


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in list_index_files(directory)]


class OneByOne:
    """The rules of a put, one key at a time, as RocketMQ applies them."""

    def __init__(self, slots: int, entries: int) -> None:
        self.slots, self.capacity = slots, entries
        self.files: list[dict[str, Any]] = []

    def put(self, hashed: int, physical_offset: int, time_ms: int) -> None:
        if not self.files or self.files[-1]["count"] >= self.capacity:
            last = self.files[-1] if self.files else {"end": (0, 0)}
            self.files.append(
                {"begin": last["end"], "end": last["end"], "count": 1, "used": 0}
                | {"slots": {}, "entries": {}}
            )
        file = self.files[-1]
        held = file["slots"].get(hashed % self.slots, 0)
        begin = file["begin"][0]
        seconds = max(0, (time_ms - begin) // 1000) if begin > 0 else 0
        file["entries"][file["count"]] = (hashed, physical_offset, seconds, held)
        file["slots"][hashed % self.slots] = file["count"]
        if file["count"] == 1:
            file["begin"] = (time_ms, physical_offset)
        file["used"] += held == 0
        file["count"] += 1
        file["end"] = (time_ms, physical_offset)


@pytest.mark.parametrize("name", ["basic-5.5", "crash-5.5", "bloom-5.5", "basic-4.9"])
def test_index_of_a_log_equals_apaches_byte_for_byte(name: str, tmp_path: Path) -> None:
    root = fixtures.extract(name, tmp_path)
    made = writer(tmp_path / "made")

    for hashes, physical_offsets, times in index_keys(root, index_tags="5.5" in name):
        made.put(hashes, physical_offsets, times)

    assert contents(tmp_path / "made") == contents(root / "index")


def test_batches_of_any_size_make_the_same_files(tmp_path: Path) -> None:
    root = fixtures.extract("basic-5.5", tmp_path)
    made = writer(tmp_path / "made")

    for hashes, physical_offsets, times in index_keys(root, index_tags=True):
        for start in range(0, len(hashes), 7):
            part = slice(start, start + 7)
            made.put(hashes[part], physical_offsets[part], times[part])

    assert contents(tmp_path / "made") == contents(root / "index")


def test_many_slots_are_written_in_one_piece_with_the_same_result(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    hashes = random.integers(0, 1 << 31, 9000, dtype=np.int64).astype(np.int32)
    offsets = np.arange(9000, dtype=np.int64) * 100
    times = np.full(9000, 1_700_000_000_000, dtype=np.int64)
    whole, parts = (writer(tmp_path / name, 7919, 20_000) for name in ("whole", "parts"))

    whole.put(hashes, offsets, times)
    for start in range(0, 9000, 100):
        part = slice(start, start + 100)
        parts.put(hashes[part], offsets[part], times[part])

    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


class TellingFiles(OsFiles):
    """Files of a system that can or can't reserve space; tells what is written, and how much."""

    def __init__(self, *, can_reserve: bool) -> None:
        self._can_reserve = can_reserve
        self.written: list[tuple[int, int]] = []

    def reserve(self, descriptor: int, offset: int, size: int) -> bool:
        return self._can_reserve and super().reserve(descriptor, offset, size)

    def pwrite(self, descriptor: int, data: Bytes, offset: int) -> int:
        self.written.append((offset, memoryview(data).nbytes))
        return super().pwrite(descriptor, data, offset)


@pytest.mark.parametrize("can_reserve", [True, False])
def test_a_table_is_mapped_when_all_of_it_has_its_place_on_the_disk(
    can_reserve: bool, tmp_path: Path
) -> None:
    slots, count = 50_000, 20_000
    files = TellingFiles(can_reserve=can_reserve)
    made = IndexWriter(tmp_path, FileHandles(files), slots=slots, entries=2 * count)
    hashes = np.arange(count, dtype=np.int32)

    made.put(hashes, np.arange(count, dtype=np.int64), np.full(count, 1, dtype=np.int64))

    (path,) = list_index_files(tmp_path)
    held = IndexFile(path, slots).slot_values()
    assert np.count_nonzero(held) == count
    table = (HEADER_BYTES, SLOT_BYTES * slots)
    assert (table in files.written) != can_reserve
    # Sparse before; now the table takes its space, however few of its slots are set.
    assert path.stat().st_blocks * 512 >= SLOT_BYTES * slots


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5000)), min_size=1, max_size=80),
    cuts=st.lists(st.integers(0, 80), max_size=5),
)
def test_bulk_puts_follow_the_rules_of_single_puts(
    keys: list[tuple[int, int]], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("index")
    model, made = OneByOne(7, 20), writer(directory, 7, 20)
    times = 1_000_000 + np.cumsum([gap for _, gap in keys])
    hashes = np.array([hashed for hashed, _ in keys], dtype=np.int32)
    offsets = np.arange(len(keys), dtype=np.int64) * 10

    for hashed, offset, time_ms in zip(hashes, offsets, times, strict=True):
        model.put(int(hashed), int(offset), int(time_ms))
    bounds = sorted({0, len(keys), *(cut for cut in cuts if cut < len(keys))})
    for start, stop in pairwise(bounds):
        made.put(hashes[start:stop], offsets[start:stop], times[start:stop])

    paths = list_index_files(directory)
    assert len(paths) == len(model.files)
    for path, file in zip(paths, model.files, strict=True):
        found = IndexFile(path, 7)
        assert found.header == IndexHeader(
            file["begin"][0], file["end"][0], file["begin"][1], file["end"][1],
            file["used"], file["count"],
        )  # fmt: skip
        assert [tuple(entry) for entry in found.entries()[1:].tolist()] == list(
            file["entries"].values()
        )
        assert {
            slot: number for slot, number in enumerate(found.slot_values().tolist()) if number
        } == file["slots"]


def test_rewind_takes_back_later_puts_and_files(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    made = writer(tmp_path / "index", 100, 300)

    def put(count: int, start: int) -> None:
        made.put(
            random.integers(0, 1 << 31, count, dtype=np.int64).astype(np.int32),
            np.arange(start, start + count, dtype=np.int64),
            np.full(count, 1_700_000_000_000 + start, dtype=np.int64),
        )

    put(250, 0)
    before, position = contents(tmp_path / "index"), made.position
    put(400, 250)
    assert len(contents(tmp_path / "index")) == 3

    made.rewind(position)
    made.rewind(position)

    assert contents(tmp_path / "index") == before
    assert made.position == position


def test_rewind_to_nothing_removes_everything(tmp_path: Path) -> None:
    made = writer(tmp_path / "index")
    made.put(
        np.array([5], dtype=np.int32), np.array([0], dtype=np.int64), np.array([9], dtype=np.int64)
    )

    made.rewind(IndexPosition())

    assert contents(tmp_path / "index") == []


def test_rewind_refuses_chains_that_do_not_lead_back(tmp_path: Path) -> None:
    made = writer(tmp_path / "index", 10, 50)

    def put(hashed: int) -> None:
        made.put(
            np.array([hashed], dtype=np.int32),
            np.array([0], dtype=np.int64),
            np.array([9], dtype=np.int64),
        )

    put(1)
    position = made.position
    put(11)
    path = list_index_files(tmp_path / "index")[0]
    data = bytearray(path.read_bytes())
    data[40 + 40 + 20 * 2 + 16 : 40 + 40 + 20 * 2 + 20] = (2).to_bytes(4, "big")
    path.write_bytes(data)

    with pytest.raises(CorruptRecordError, match="do not lead back below entry 2"):
        made.rewind(position)


def test_chains_are_followed_below_the_old_count() -> None:
    previous = np.array([3, 5, 0, 6], dtype=np.int64)

    followed = walk_back(np.array([5, 6, 8]), previous, 5)

    assert followed is not None
    assert followed.tolist() == [3, 3, 3]
    assert walk_back(np.array([99]), previous, 5) is None


def test_names_are_local_times_that_only_grow() -> None:
    first = next_name(1_700_000_000_123, 0)

    assert len(str(first)) == 17
    assert first % 1000 == 123
    assert next_name(1_700_000_000_123, first) == first + 1
    assert next_name(1_600_000_000_000, first) == first + 1
