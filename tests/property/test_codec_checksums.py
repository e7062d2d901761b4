"""CRC-32 of many texts at once equals zlib's, one by one."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.hashing.crc import body_crc, body_crcs
from broker_core.codec.spans import Spans, spans_of

pytestmark = [pytest.mark.property, pytest.mark.usefixtures("either_way")]


@given(st.lists(st.binary(max_size=70), max_size=40))
def test_many_texts_have_the_checksums_that_each_has_alone(texts: list[bytes]) -> None:
    found = body_crcs(spans_of(pa.array(texts, type=pa.binary())))
    assert found.tolist() == [body_crc(text) for text in texts]


@given(st.binary(min_size=1, max_size=60), st.data())
def test_texts_may_lie_anywhere_and_overlap(data: bytes, draw: st.DataObject) -> None:
    bounds = st.tuples(st.integers(0, len(data)), st.integers(0, len(data))).map(sorted)
    places = draw.draw(st.lists(bounds, min_size=1, max_size=20))
    starts = np.array([start for start, _ in places], dtype=np.int64)
    lengths = np.array([stop - start for start, stop in places], dtype=np.int64)
    found = body_crcs(Spans(np.frombuffer(data, dtype=np.uint8), starts, lengths))
    assert found.tolist() == [body_crc(data[start:stop]) for start, stop in places]


@pytest.mark.parametrize("count", [1, 255, 256, 4095, 4096, 4097, 10_000])
@pytest.mark.parametrize("shortest", [0, 90, 100])
def test_bodies_have_the_same_checksum_by_either_way(count: int, shortest: int) -> None:
    random = np.random.default_rng(count + shortest)
    lengths = random.integers(shortest, 101, count)
    bodies = [random.bytes(int(length)) for length in lengths]
    found = body_crcs(spans_of(pa.array(bodies, type=pa.binary())))
    assert found.tolist() == [body_crc(body) for body in bodies]


LENGTHS = [0, 1, 7, 8, 15, 16, 17, 31, 32, 100, 127, 128, 129, 143, 144, 191, 192, 193, 1000, 4097]


@pytest.mark.parametrize("is_folded", [True, False], ids=["folded", "tables"])
def test_kernels_count_texts_of_every_length_at_every_place(is_folded: bool) -> None:
    pytest.importorskip("numba", reason="Numba has no release for this Python yet")
    from broker_core.codec.hashing import crc_folding_kernels, crc_kernels

    if is_folded and not crc_folding_kernels.can_fold():
        pytest.skip("this processor does not multiply without carries")
    data = np.random.default_rng(7).integers(0, 256, 10_000, dtype=np.uint8)
    step = _folding() if is_folded else crc_kernels.step_by_tables

    for number, length in enumerate(LENGTHS):
        start, blocks = 3 * number, length // crc_folding_kernels.BLOCK_BYTES
        if blocks:
            state = step(data, start, blocks, np.uint32(0xFFFFFFFF)) ^ 0xFFFFFFFF
            end = start + blocks * crc_folding_kernels.BLOCK_BYTES
            assert state == zlib.crc32(data[start:end].tobytes())
        found = np.empty(1, dtype=np.uint32)
        crc_kernels.crc32_spans(data, np.array([start]), np.array([length]), found)
        assert found[0] == zlib.crc32(data[start : start + length].tobytes())


def _folding() -> Callable[..., int]:
    """`fold` as something that Python can call."""
    from numba import njit

    from broker_core.codec.hashing.crc_folding_kernels import fold

    def call(data: Any, start: int, blocks: int, state: Any) -> Any:
        return fold(data, start, blocks, state)

    compiled: Callable[..., int] = njit(call)
    return compiled
