from __future__ import annotations

from pathlib import Path

import numpy as np

from broker_core.codec.hashing.java import java_hash
from broker_core.store.io.segments import segment_name
from broker_core.store.queue.consume_queue import ConsumeQueue
from broker_core.store.queue.ext import (
    UNIT_HEAD,
    ConsumeQueueExt,
    address_of,
    is_address,
)
from tests.kit import fixtures


def unit(tags_code: int, store_timestamp: int, bitmap: bytes) -> bytes:
    head = np.array([(20 + len(bitmap), tags_code, store_timestamp, len(bitmap))], dtype=UNIT_HEAD)
    return head.tobytes() + bitmap


def make(directory: Path, *files: bytes, size: int = 100) -> ConsumeQueueExt:
    directory.mkdir()
    for index, data in enumerate(files):
        (directory / segment_name(index * size)).write_bytes(data.ljust(size, b"\0"))
    return ConsumeQueueExt(directory)


def test_addresses_are_those_of_the_specification() -> None:
    assert address_of(0) == -9223372036854775808
    assert address_of(20) & (1 << 64) - 1 == 0x8000000000000014


def test_hashes_of_tags_are_never_addresses() -> None:
    codes = np.array([-(1 << 31), (1 << 31) - 1, 0, -(1 << 31) - 1, address_of(0)])

    assert is_address(codes).tolist() == [False, False, False, True, True]


def test_units_are_followed_across_files(tmp_path: Path) -> None:
    ext = make(
        tmp_path / "0",
        unit(11, 1, b"") + unit(-22, 2, b"\x81\x02") + b"\xff\xff",
        unit(33, 3, b"z"),
    )
    codes = np.array([7, address_of(0), address_of(20), address_of(100), -8])

    units = ext.read(codes)

    assert units.is_known.tolist() == [True] * 5
    assert units.tags_codes.tolist() == [7, 11, -22, 33, -8]
    assert units.store_timestamps.tolist() == [0, 1, 2, 3, 0]
    assert units.bitmap_lengths.tolist() == [0, 0, 2, 1, 0]
    assert units.bitmaps[2:4].tolist() == [[0x81, 2], [ord("z"), 0]]


def test_an_address_that_leads_to_another_messages_unit_is_unknown(tmp_path: Path) -> None:
    ext = make(tmp_path / "0", b"".join(unit(number, 1, b"") for number in range(5)))
    codes = np.array([address_of(20 * number) for number in (0, 1, 4, 3, 4)])

    units = ext.read(codes)

    assert units.is_known.tolist() == [True, True, False, False, True]
    assert units.tags_codes[[0, 1, 4]].tolist() == [0, 1, 4]


def test_an_address_that_leads_nowhere_is_unknown(tmp_path: Path) -> None:
    ext = make(tmp_path / "0", unit(11, 1, b"") + b"\xff\xff")
    codes = np.array([address_of(20), address_of(50), address_of(90), address_of(1 << 40)])

    assert ext.read(codes).is_known.tolist() == [False] * 4


def test_a_unit_that_claims_to_reach_beyond_its_file_is_unknown(tmp_path: Path) -> None:
    ext = make(tmp_path / "0", unit(11, 1, bytes(200))[:100])

    assert ext.read(np.array([address_of(0)])).is_known.tolist() == [False]


def test_a_queue_without_extension_knows_plain_hashes(tmp_path: Path) -> None:
    units = ConsumeQueueExt(tmp_path / "none").read(np.array([5, address_of(0)]))

    assert units.is_known.tolist() == [True, False]


def test_units_of_apache_hold_the_hashes_of_the_messages_tags(tmp_path: Path) -> None:
    root = fixtures.extract("bloom-5.5", tmp_path)
    messages = fixtures.expected("bloom-5.5")["topics"]["Filtered"]["queues"]["2"]["messages"]
    entries = ConsumeQueue(root / "consumequeue" / "Filtered" / "2").read(0, len(messages))

    units = ConsumeQueueExt(root / "consumequeue_ext" / "Filtered" / "2").read(entries["tags_code"])

    assert is_address(entries["tags_code"]).any()
    assert units.is_known.all()
    assert units.tags_codes.tolist() == [java_hash(message["tags"] or "") for message in messages]
