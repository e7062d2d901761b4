"""Compiled puts into the index write what NumPy's do, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from broker_core.jit import availability
from broker_core.store.index import chains
from broker_core.store.index import slots as slot_table
from broker_core.store.index.chains import ChainedEntries, chain_by_kernel, chain_by_numpy
from broker_core.store.index.file import HEADER_BYTES, SLOT, list_index_files
from broker_core.store.index.slots import SlotTable
from broker_core.store.index.writer import IndexWriter
from broker_core.store.io.file_handles import FileHandles
from broker_core.store.io.files import OsFiles

if TYPE_CHECKING:
    from broker_core.store.index.chains import EntryFields

pytestmark = pytest.mark.skipif(not availability.is_available(), reason="needs Numba")

LARGEST = (1 << 31) - 1


def mapped_table(path: Path, values: NDArray[np.int32]) -> SlotTable:
    """A table of these values, mapped."""
    path.write_bytes(bytes(HEADER_BYTES) + values.astype(SLOT).tobytes())
    table = SlotTable(path, FileHandles(OsFiles()), len(values))
    table.held(np.arange(min(len(values), 3000), dtype=np.int64))
    assert table.mapped(len(values)) is not None
    return table


def slot_bytes(table: SlotTable) -> NDArray[np.uint8]:
    """All slots of a table that is mapped."""
    mapped = table.mapped(0)
    assert mapped is not None
    return mapped


def columns(hashes: NDArray[np.int32], seed: int) -> EntryFields:
    random = np.random.default_rng(seed)
    offsets = random.integers(0, 1 << 62, len(hashes), dtype=np.int64)
    return hashes, offsets, random.integers(0, LARGEST, len(hashes), dtype=np.int64)


def random_hashes(count: int, below: int, seed: int) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, below, count, dtype=np.int64).astype(np.int32)


def assert_same_chains(found: ChainedEntries, expected: ChainedEntries) -> None:
    order = np.argsort(found.slots)
    assert found.entries.tobytes() == expected.entries.tobytes()
    assert found.slots[order].tolist() == expected.slots.tolist()
    assert found.newest[order].tolist() == expected.newest.tolist()
    assert found.fresh_slots == expected.fresh_slots


@pytest.mark.parametrize("slots", [1, 2, 7, 1000, 8191, 8192, 8193, 100_003, 17_000_003])
@pytest.mark.parametrize("count", [1, 3000])
def test_keys_are_chained_alike(slots: int, count: int, tmp_path: Path) -> None:
    hashes = random_hashes(count, LARGEST + 1, slots)
    hashes[: count // 2] %= max(1, slots // 50)  # so that slots repeat, however many there are
    hashes[-1] = LARGEST
    held = np.zeros(slots, dtype=np.int32)
    held[::3] = 5
    table = mapped_table(tmp_path / "table", held)

    found = chain_by_kernel(columns(hashes, 1), slot_bytes(table), 6)

    assert_same_chains(found, chain_by_numpy(columns(hashes, 1), table, slots, 6))


@pytest.mark.parametrize("first", [1, 2, 1000, LARGEST - 500])
def test_what_a_slot_holds_counts_only_if_it_can_be_an_entry(first: int, tmp_path: Path) -> None:
    slots = 200
    odd = [0, 1, -1, first - 1, first, min(first + 1, LARGEST), LARGEST, -LARGEST - 1]
    held = np.resize(np.array(odd, dtype=np.int32), slots)
    table = mapped_table(tmp_path / "table", held)
    hashes = random_hashes(500, 2000, first % 97)

    found = chain_by_kernel(columns(hashes, 2), slot_bytes(table), first)

    assert_same_chains(found, chain_by_numpy(columns(hashes, 2), table, slots, first))
    assert 0 < found.fresh_slots < len(found.slots)


def test_all_keys_may_share_a_slot(tmp_path: Path) -> None:
    table = mapped_table(tmp_path / "table", np.zeros(50, dtype=np.int32))
    hashes = np.full(300, 7, dtype=np.int32)

    found = chain_by_kernel(columns(hashes, 3), slot_bytes(table), 10)

    assert_same_chains(found, chain_by_numpy(columns(hashes, 3), table, 50, 10))
    assert (found.slots.tolist(), found.newest.tolist(), found.fresh_slots) == ([7], [309], 1)


def test_a_put_reads_the_table_and_changes_nothing_in_it(tmp_path: Path) -> None:
    table = mapped_table(tmp_path / "table", np.full(60, 4, dtype=np.int32))
    before = (tmp_path / "table").read_bytes()

    chain_by_kernel(columns(random_hashes(100, 1000, 4), 4), slot_bytes(table), 5)

    assert (tmp_path / "table").read_bytes() == before


def test_columns_may_be_parts_of_others(tmp_path: Path) -> None:
    table = mapped_table(tmp_path / "table", np.zeros(60, dtype=np.int32))
    hashes, offsets, seconds = columns(random_hashes(100, 1000, 5), 5)
    apart = hashes[::2], offsets[::2], seconds[::2]

    assert_same_chains(
        chain_by_kernel(apart, slot_bytes(table), 5),
        chain_by_numpy((apart[0].copy(), apart[1].copy(), apart[2].copy()), table, 60, 5),
    )


def put_all(directory: Path, sizes: list[int], below: int, slots: int, entries: int) -> list[bytes]:
    """Put batches of keys; the bytes of all files."""
    made = IndexWriter(directory, FileHandles(OsFiles()), slots=slots, entries=entries)
    done = 0
    for size in sizes:
        hashes = random_hashes(size, below, done)
        rows = np.arange(done, done + size, dtype=np.int64)
        made.put(hashes, rows * 100, 1_700_000_000_000 + rows * 7)
        done += size
    return [path.read_bytes() for path in list_index_files(directory)]


@pytest.mark.parametrize(
    ("below", "slots", "entries"),
    [(LARGEST, 997, 100_000), (300, 997, 100_000), (LARGEST, 997, 450), (50, 10, 100)],
)
def test_files_are_the_same_by_either_way(
    below: int, slots: int, entries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [300, 1, 500, 0, 40, 700, 3]
    expected = put_all(tmp_path / "numpy", sizes, below, slots, entries)
    done: list[ChainedEntries] = []

    def counted(fields: EntryFields, table: NDArray[np.uint8], first: int) -> ChainedEntries:
        done.append(chain_by_kernel(fields, table, first))
        return done[-1]

    monkeypatch.setattr(availability, "WORTH_ROWS", 2)
    monkeypatch.setattr(chains, "chain_by_kernel", counted)
    monkeypatch.setattr(slot_table, "_FEW", 20)

    assert put_all(tmp_path / "compiled", sizes, below, slots, entries) == expected
    assert done
    assert (len(expected) > 1) == (entries < sum(sizes))
