"""Copying spans out of a buffer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from broker_core.codec.spans import (
    Spans,
    fixed_width,
    gather_spans,
    integers,
    is_ascii,
    spans_of,
)

pytestmark = pytest.mark.usefixtures("either_way")

BUFFER = np.frombuffer(bytes(range(256)) * 8, dtype=np.uint8)


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [
        ([], []),
        ([5], [0]),
        ([0, 10, 20], [4, 4, 4]),
        ([0, 10, 20], [4, 0, 7]),
        ([0, 10, 20], [0, 0, 0]),
        ([0, 4, 8], [4, 4, 2040]),
        ([20, 10, 0], [4, 5, 6]),
        ([20, 10, 0], [4, 4, 4]),
        ([3, 3, 3], [9, 9, 9]),
        ([3, 3, 3], [9, 8, 7]),
        ([0, 700], [600, 600]),
    ],
)
def test_spans_are_what_slicing_gives(starts: list[int], lengths: list[int]) -> None:
    found = gather_spans(
        Spans(BUFFER, np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64))
    )

    found.validate(full=True)
    assert found.type == pa.binary()
    assert found.to_pylist() == [
        BUFFER[start : start + length].tobytes()
        for start, length in zip(starts, lengths, strict=True)
    ]


def test_an_item_that_ends_beyond_the_buffer_is_out_of_bounds() -> None:
    with pytest.raises(IndexError):
        fixed_width(BUFFER, np.array([len(BUFFER) - 3]), 4)
    with pytest.raises(IndexError):
        integers(BUFFER, np.array([len(BUFFER) - 7]), ">i8")


@pytest.mark.parametrize("kind", [">i2", ">i4", ">i8"])
def test_integers_are_read_wherever_they_lie(kind: str) -> None:
    places = np.random.default_rng(3).integers(0, len(BUFFER) - 8, 5000)

    found = integers(BUFFER, places, kind)

    width = np.dtype(kind).itemsize
    raw = BUFFER.tobytes()
    assert found.dtype.isnative
    assert found.tolist() == [
        int.from_bytes(raw[at : at + width], "big", signed=True) for at in places.tolist()
    ]


@pytest.mark.parametrize("at", [0, 7, 8, 15, 16])
def test_one_byte_with_its_high_bit_is_not_ascii(at: int) -> None:
    data = np.zeros(17, dtype=np.uint8)
    assert is_ascii(data)

    data[at] = 0x80

    assert not is_ascii(data)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_an_array_s_spans_are_its_values(kind: pa.DataType) -> None:
    whole = pa.array(["left out", "ab", None, "", "cde"], kind)

    data, starts, lengths = spans_of(whole.slice(1))

    assert [
        data[start : start + length].tobytes()
        for start, length in zip(starts, lengths, strict=True)
    ] == [b"ab", b"", b"", b"cde"]


def test_chunks_are_joined() -> None:
    data, starts, lengths = spans_of(pa.chunked_array([["a"], ["bc"]], pa.string()))

    assert data[starts[1] : starts[1] + lengths[1]].tobytes() == b"bc"


@pytest.mark.parametrize("pitch", [1, 7, 30])
@pytest.mark.parametrize("count", [2, 15, 16, 50])
def test_starts_that_are_equally_far_apart_are_starts_like_others(pitch: int, count: int) -> None:
    starts = np.arange(5, 5 + pitch * count, pitch)

    found = fixed_width(BUFFER, starts, 9)

    assert [row.tobytes() for row in found] == [
        BUFFER[start : start + 9].tobytes() for start in starts.tolist()
    ]
