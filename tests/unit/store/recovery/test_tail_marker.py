from __future__ import annotations

import zlib

import pytest

from broker_core.store.recovery.tail_marker import (
    OLD_SLOT_BYTES,
    SLOT_BYTES,
    SLOT_OFFSETS,
    TailMarker,
    TailState,
    boot_id,
    decode_tail,
)

TAIL = TailMarker(
    TailState.CLEAN,
    generation=7,
    log_end=395_529,
    last_start=395_000,
    last_store_ms=1_700_000_000_123,
    pending_end=395_529,
    durable_end=65_536,
    log_durable_end=131_072,
    index_name=20_261_116_055_922_765,
    index_header=bytes(range(40)),
    boot=bytes(range(16)),
    lock_modified_ns=1_700_000_000_000_000_123,
    pid=4242,
    dispatched_end=395_529,
)
PENDING = TAIL._replace(
    state=TailState.PENDING,
    generation=8,
    pending_end=395_777,
    dispatched_end=390_001,
    pending_crc=0xCAFEBABE,
)
GOLDEN = (
    "524d512e5441494c 00000001 00000003 0000000000000007 0000000000060909 00000000000606f8"
    "0000018bcfe5687b 0000000000060909 0000000000010000 0000000000020000 0047fb60b144284d"
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627"
    "000102030405060708090a0b0c0d0e0f 17979cfe362a007b 0000000000001092"
)
GOLDEN_PENDING = (
    "524d512e5441494c 00000002 00000006 0000000000000008 0000000000060909 00000000000606f8"
    "0000018bcfe5687b 0000000000060a01 0000000000010000 0000000000020000 0047fb60b144284d"
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627"
    "000102030405060708090a0b0c0d0e0f 17979cfe362a007b 0000000000001092"
    "000000000005f371 cafebabe"
)


def with_crc(golden: str) -> bytes:
    body = bytes.fromhex(golden)
    return body + zlib.crc32(body).to_bytes(4, "big")


def checkpoint(*tails: TailMarker) -> bytes:
    page = bytearray(4096)
    for tail in tails:
        page[tail.slot_offset : tail.slot_offset + SLOT_BYTES] = tail.encode()
    return bytes(page)


def test_marker_comes_back_as_it_was_written() -> None:
    assert decode_tail(checkpoint(TAIL)) == TAIL
    assert decode_tail(checkpoint(PENDING)) == PENDING
    assert decode_tail(checkpoint(TAIL, PENDING)) == PENDING


def test_golden_bytes_of_both_versions() -> None:
    assert TAIL.encode() == with_crc(GOLDEN).ljust(SLOT_BYTES, b"\0")
    assert PENDING.encode() == with_crc(GOLDEN_PENDING)
    assert len(with_crc(GOLDEN)) == OLD_SLOT_BYTES


def test_an_append_that_is_taken_back_before_a_pending_tail_needs_the_new_version() -> None:
    failed = PENDING._replace(state=TailState.APPENDING, pending_crc=0)

    assert failed.has_pending
    assert failed.end == failed.log_end
    assert decode_tail(checkpoint(failed)) == failed


def test_a_marker_at_rest_has_nothing_pending() -> None:
    assert not TAIL.has_pending
    assert PENDING.has_pending
    assert (TAIL.end, PENDING.end) == (395_529, 395_777)


def test_newer_generation_counts() -> None:
    newer = TAIL._replace(state=TailState.APPENDING, generation=8)

    assert decode_tail(checkpoint(TAIL, newer)) == newer


def test_generations_take_turns_in_two_slots() -> None:
    assert TAIL.slot_offset != TAIL._replace(generation=8).slot_offset
    assert SLOT_OFFSETS[0] + SLOT_BYTES <= SLOT_OFFSETS[1]


def test_checkpoint_of_apache_has_no_marker() -> None:
    assert decode_tail(bytes(4096)) is None
    assert decode_tail(bytes(48)) is None
    assert decode_tail(b"") is None


@pytest.mark.parametrize(
    ("tail", "position"),
    [
        *((TAIL, position) for position in range(0, OLD_SLOT_BYTES, 5)),
        *((PENDING, position) for position in range(0, SLOT_BYTES, 5)),
    ],
)
def test_damaged_slot_makes_the_other_one_worthless_too(tail: TailMarker, position: int) -> None:
    older = tail._replace(generation=tail.generation - 1, log_end=1)
    page = bytearray(checkpoint(older, tail))
    page[tail.slot_offset + position] ^= 0x40

    assert decode_tail(bytes(page)) is None


def test_unknown_version_is_not_believed() -> None:
    slot = bytearray(TAIL.encode())
    slot[11] = 9

    assert decode_tail(bytes(TAIL.slot_offset) + bytes(slot)) is None


def test_boot_id_has_sixteen_bytes() -> None:
    assert len(boot_id()) == 16
