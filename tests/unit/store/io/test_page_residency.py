from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from broker_core.store.io.page_residency import PageResidency, held_bytes
from broker_core.store.io.segments import map_file

MIB = 1 << 20
SMALL, LARGE = 300, 8192


@pytest.fixture
def mapped(tmp_path: Path) -> NDArray[np.uint8]:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (64 * MIB))
    return map_file(path)


def touch(mapped: NDArray[np.uint8], start: int, end: int) -> None:
    assert int(mapped[start : end : mmap.PAGESIZE].max()) == ord("x")


def growth_mib(before: int | None) -> float:
    now = held_bytes()
    assert now is not None
    assert before is not None
    return (now - before) / MIB


def test_pages_of_small_records_are_kept_up_to_a_limit(mapped: NDArray[np.uint8]) -> None:
    before = held_bytes()
    memory = PageResidency(kept_bytes=16 * MIB)

    for start in range(0, 64 * MIB, 4 * MIB):
        touch(mapped, start, start + 4 * MIB)
        memory.has_read(mapped, start, start + 4 * MIB, SMALL)

    assert 12 <= growth_mib(before) <= 24


def test_a_batch_that_spans_the_whole_file_keeps_what_may_be_kept(
    mapped: NDArray[np.uint8],
) -> None:
    before = held_bytes()
    memory = PageResidency(kept_bytes=16 * MIB)

    touch(mapped, 0, 64 * MIB)
    memory.has_read(mapped, 0, 64 * MIB, SMALL)

    assert 12 <= growth_mib(before) <= 24


def test_pages_of_large_records_are_let_go_of_at_once(mapped: NDArray[np.uint8]) -> None:
    before = held_bytes()
    memory = PageResidency(kept_bytes=64 * MIB)

    touch(mapped, 0, 64 * MIB)
    memory.has_read(mapped, 0, 64 * MIB, LARGE)

    assert growth_mib(before) <= 4


def test_what_was_let_go_of_can_still_be_read(mapped: NDArray[np.uint8]) -> None:
    memory = PageResidency(kept_bytes=0)

    memory.has_read(mapped, 0, 64 * MIB, LARGE)

    touch(mapped, 0, 64 * MIB)
