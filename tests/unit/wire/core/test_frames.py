"""Chunks of records: golden bytes, round trips, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.frames import FrameBatch
from broker_core.errors import RequestError
from broker_core.types import QueueRef
from broker_core.wire.core.frames import Flag, pack_frames, pack_records, unpack

QUEUE = QueueRef("t", "broker-a", 0)

GOLDEN_DENSE = bytes.fromhex(
    "524d5146 01 01 0000 00000000 02000000 0500000000000000"
    "0700000000000000 0900000000000000"
    "02000000 03000000 6161 626262"
)
GOLDEN_SPARSE = bytes.fromhex(
    "524d5146 01 02 0000 00000000 01000000 0300000000000000"
    "0800000000000000 0c00000000000000"
    "03000000 00000000 0800000000000000 626262"
)
GOLDEN_APPEND = bytes.fromhex(
    "524d5146 01 09 0000 03000000 01000000 0200000000000000"
    "0000000000000000 0000000000000000"
    "0a0101 0000000000 02000000 00000000 6161"
)


def batch(
    data: bytes, sizes: list[int], offsets: list[int], next_offset: int, *, verify: bool = False
) -> FrameBatch:
    ends = np.cumsum(sizes, dtype=np.int64)
    return FrameBatch(
        buffer=np.frombuffer(data, dtype=np.uint8),
        starts=ends - sizes,
        sizes=np.array(sizes, dtype=np.int32),
        offsets=np.array(offsets, dtype=np.int64),
        queue=QUEUE,
        next_offset=next_offset,
        verify=verify,
    )


def test_records_without_gaps_in_their_offsets_travel_without_them() -> None:
    packed = pack_frames(batch(b"aabbb", [2, 3], [7, 8], 9))

    assert packed == GOLDEN_DENSE


def test_records_left_by_a_filter_carry_their_offsets() -> None:
    frames = batch(b"aabbb", [2, 3], [7, 9], 12, verify=True)

    packed = pack_frames(frames.select(np.array([False, True])).slice(0, 1))

    assert packed[24:32] == (9).to_bytes(8, "little")
    assert unpack(packed).offsets.tolist() == [9]


def test_an_offset_array_is_read_where_the_flag_is_not_set() -> None:
    chunk = unpack(GOLDEN_SPARSE)

    assert chunk.offsets.tolist() == [8]
    assert chunk.next_offset == 12
    assert chunk.records.tobytes() == b"bbb"


def test_an_append_has_a_head_of_its_own() -> None:
    packed = pack_records(b"\x0a\x01\x01", np.array([2], dtype=np.int32), b"aa", has_more=True)

    assert packed == GOLDEN_APPEND
    assert bytes(unpack(packed).head) == b"\x0a\x01\x01"
    assert Flag.MORE in unpack(packed).flags


def test_a_chunk_becomes_a_batch_of_its_queue() -> None:
    frames = unpack(GOLDEN_DENSE).frames(QUEUE, "somewhere")

    assert frames.queue == QUEUE
    assert frames.records() == [b"aa", b"bbb"]
    assert (frames.next_offset, frames.name, frames.verify) == (9, "somewhere", False)


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.integers(0, 5)), max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
    st.booleans(),
)
def test_what_is_packed_is_unpacked_alike(
    pieces: list[tuple[bytes, int]], kept: list[bool], verify: bool
) -> None:
    sizes = [len(data) for data, _ in pieces]
    offsets = np.cumsum([1 + gap for _, gap in pieces], dtype=np.int64).tolist()
    whole = batch(b"".join(data for data, _ in pieces), sizes, offsets, 1000, verify=verify)
    frames = whole.select(np.array(kept[: len(pieces)], dtype=np.bool_))

    back = unpack(pack_frames(frames)).frames(QUEUE, "")

    assert back.records() == frames.records()
    assert back.offsets.tolist() == frames.offsets.tolist()
    assert (back.next_offset, back.verify) == (1000, verify)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.integers(1, 80), st.integers(1, 9))
def test_pieces_of_a_batch_are_small_and_leave_nothing_out(
    sizes: list[int], chunk_bytes: int, chunk_rows: int
) -> None:
    offsets = list(range(10, 10 + 2 * len(sizes), 2))
    frames = batch(bytes(sum(sizes)), sizes, offsets, 500)

    pieces = list(frames.cut(chunk_bytes, chunk_rows))

    assert [size for piece in pieces for size in piece.sizes.tolist()] == sizes
    assert [at for piece in pieces for at in piece.offsets.tolist()] == offsets
    assert all(len(piece) == 1 or piece.size_bytes <= chunk_bytes for piece in pieces)
    assert all(len(piece) <= chunk_rows for piece in pieces)
    ends = [piece.next_offset for piece in pieces]
    assert ends == [int(piece.offsets[0]) for piece in pieces[1:]] + [500]


def test_a_batch_without_records_still_says_how_far_it_came() -> None:
    [piece] = batch(b"", [], [], 77).cut(10, 10)

    assert unpack(pack_frames(piece)).next_offset == 77


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (b"", "a head alone takes"),
        (GOLDEN_DENSE[:39], "a head alone takes"),
        (b"HTTP" + GOLDEN_DENSE[4:], "it begins with 48545450"),
        (GOLDEN_DENSE[:4] + b"\x02" + GOLDEN_DENSE[5:], "version 2"),
        (GOLDEN_DENSE[:5] + b"\x81" + GOLDEN_DENSE[6:], "flags 0x81"),
        (GOLDEN_DENSE[:-1], "its parts take 53 bytes, it has 52"),
        (GOLDEN_DENSE + b"x", "its parts take 53 bytes, it has 54"),
        (GOLDEN_DENSE[:12] + b"\xff\xff\xff\xff" + GOLDEN_DENSE[16:], "its parts take"),
        (GOLDEN_DENSE[:40] + b"\x01" + GOLDEN_DENSE[41:], "do not add up to 5"),
        (GOLDEN_DENSE[:40] + b"\0\0\0\0\x05" + GOLDEN_DENSE[45:], "do not add up to 5"),
    ],
    ids=[
        "empty",
        "head cut",
        "other magic",
        "other version",
        "unknown flag",
        "cut",
        "too long",
        "count too high",
        "sizes too small",
        "size of zero",
    ],
)
def test_a_chunk_that_does_not_add_up_is_refused(damaged: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        unpack(damaged)


@given(st.binary(max_size=200), st.integers(0, 52), st.integers(0, 255))
def test_damage_never_raises_anything_else(noise: bytes, at: int, value: int) -> None:
    damaged = bytearray(GOLDEN_DENSE)
    damaged[at] = value

    for message in (noise, GOLDEN_DENSE[:40] + noise, bytes(damaged)):
        try:
            unpack(message).frames(QUEUE, "")
        except RequestError as error:
            assert "can't be read" in str(error)  # noqa: PT017 - any other kind is the failure
