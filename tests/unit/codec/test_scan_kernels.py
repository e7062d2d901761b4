"""Compiled walks over logs find what Python's do, whatever the log ends with."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from broker_core.codec import layout, scan
from broker_core.codec.message_batch import LOOPBACK
from broker_core.codec.record import Record, encode_record
from broker_core.codec.scan import Walk, follow_sizes, follow_sizes_compiled, walk
from broker_core.jit import availability

if TYPE_CHECKING:
    from broker_core.codec.scan import Followed

pytestmark = pytest.mark.skipif(not availability.is_available(), reason="needs Numba")

HEAD = struct.Struct(">iI")
MANY = 1 << 16
SMALLEST = layout.MIN_RECORD_BYTES

ENDINGS = {
    "nothing": b"",
    "half a head": bytes(layout.BLANK_BYTES - 1),
    "zeros": bytes(200),
    "just zeros for a head": bytes(layout.BLANK_BYTES),
    "blank": HEAD.pack(300, layout.MAGIC_BLANK) + bytes(292),
    "shortest blank": HEAD.pack(layout.BLANK_BYTES, layout.MAGIC_BLANK),
    "blank of size zero": HEAD.pack(0, layout.MAGIC_BLANK),
    "size without magic": HEAD.pack(150, 0) + bytes(142),
    "magic without size": HEAD.pack(0, layout.MAGIC_V1) + bytes(142),
    "size too small": HEAD.pack(SMALLEST - 1, layout.MAGIC_V2) + bytes(142),
    "negative size": HEAD.pack(-150, layout.MAGIC_V1) + bytes(142),
    "size too large by one": HEAD.pack(151, layout.MAGIC_V1) + bytes(142),
    "largest size": HEAD.pack((1 << 31) - 1, layout.MAGIC_V2) + bytes(142),
    "wrong magic": HEAD.pack(150, layout.MAGIC_V1 ^ 1) + bytes(142),
    "largest magic": HEAD.pack(150, 0xFFFFFFFF) + bytes(142),
}


def chain_of(sizes: list[int], seed: int) -> bytes:
    """Heads with noise behind them: all that a chain is made of."""
    random = np.random.default_rng(seed)
    magics = (layout.MAGIC_V1, layout.MAGIC_V2)
    return b"".join(
        HEAD.pack(size, magics[row % 2]) + random.bytes(size - HEAD.size)
        for row, size in enumerate(sizes)
    )


def read_only(log: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(log, dtype=np.uint8)


def assert_same_way(log: bytes, start: int, stop: int, most: int = MANY) -> int:
    """Both ways answer the same; returns how many records they found."""
    expected = follow_sizes(read_only(log), start, stop, most)
    found = follow_sizes_compiled(read_only(log), start, stop, most)

    assert found[0].dtype == expected[0].dtype
    assert found[1].dtype == expected[1].dtype
    assert found[0].tolist() == expected[0].tolist()
    assert found[1].tolist() == expected[1].tolist()
    assert found[2:] == expected[2:]
    return len(found[0])


def random_sizes(count: int, seed: int) -> list[int]:
    random = np.random.default_rng(seed)
    return [int(size) for size in random.integers(SMALLEST, 4 * SMALLEST, count)]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("count", [0, 1, 50])
def test_chains_end_alike(count: int, ending: str) -> None:
    log = chain_of(random_sizes(count, count), count) + ENDINGS[ending]

    assert assert_same_way(log, 0, len(log)) == count


def test_chains_end_alike_wherever_they_are_cut() -> None:
    log = chain_of(random_sizes(3, 1), 1) + ENDINGS["blank"]

    for stop in range(len(log) + 1):
        assert_same_way(log, 0, stop)
        assert_same_way(log, min(stop, 7), stop)


def test_chains_end_alike_wherever_they_are_begun() -> None:
    log = chain_of(random_sizes(3, 2), 2) + ENDINGS["zeros"]

    for start in range(len(log) + 1):
        assert_same_way(log, start, len(log))


@pytest.mark.parametrize("most", [0, 1, 19, 20, 21])
def test_no_more_records_are_followed_than_asked_for(most: int) -> None:
    log = chain_of(random_sizes(20, 3), 3) + ENDINGS["zeros"]

    assert assert_same_way(log, 0, len(log), most) == min(most, 20)


def test_chains_of_changed_bytes_end_alike() -> None:
    random = np.random.default_rng(4)
    log = chain_of(random_sizes(40, 4), 4)

    for _ in range(300):
        changed = bytearray(log)
        for place in random.integers(0, len(log), 60).tolist():
            changed[place] ^= int(random.integers(1, 256))
        assert_same_way(bytes(changed), 0, len(changed))


def records(count: int) -> bytes:
    """A log of valid records."""
    made, at = [], 0
    for row in range(count):
        record = Record(
            topic="T",
            queue_id=row % 4,
            queue_offset=row,
            physical_offset=at,
            body=b"b" * (row % 37),
            properties=b"",
            born_host=LOOPBACK,
            store_host=LOOPBACK,
        )
        made.append(encode_record(record))
        at += len(made[-1])
    return b"".join(made)


def walked(log: bytes, stop: int | None = None) -> Walk:
    return walk(read_only(log), 0, len(log) if stop is None else stop, origin=0, verify=True)


def assert_same_walk(found: Walk, expected: Walk) -> None:
    assert found.starts.tolist() == expected.starts.tolist()
    assert found.sizes.tolist() == expected.sizes.tolist()
    assert (found.end, found.stop_reason, found.detail) == (
        expected.end,
        expected.stop_reason,
        expected.detail,
    )


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("worth", [1, 4, 30, 31])
def test_walks_tell_the_same_where_a_kernel_goes_on(
    worth: int, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = records(30) + ENDINGS[ending]
    expected = walked(log)
    assert len(expected.starts) == 30

    monkeypatch.setattr(availability, "WORTH_ROWS", worth)
    monkeypatch.setattr(scan, "_ROWS", 8)

    assert_same_walk(walked(log), expected)


def test_a_kernel_goes_on_only_after_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def compiled_way(buffer: NDArray[np.uint8], start: int, stop: int, most: int) -> Followed:
        asked.append(start)
        return follow_sizes_compiled(buffer, start, stop, most)

    monkeypatch.setattr(scan, "follow_sizes_compiled", compiled_way)
    monkeypatch.setattr(availability, "WORTH_ROWS", 20)
    empty_rest = bytes(1 << 20)
    log = records(20)

    walked(records(19) + empty_rest)
    assert asked == []
    walked(log + empty_rest)
    assert asked == [len(log)]


def test_walks_beyond_the_bytes_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "WORTH_ROWS", 1)
    log = records(30)

    with pytest.raises(struct.error):
        walked(log, len(log) + layout.BLANK_BYTES)
