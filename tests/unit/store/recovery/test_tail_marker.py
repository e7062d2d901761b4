from __future__ import annotations

from dataclasses import replace

import pytest

from broker_core.store.recovery.tail_marker import (
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
)


def checkpoint(*tails: TailMarker) -> bytes:
    page = bytearray(4096)
    for tail in tails:
        page[tail.slot_offset : tail.slot_offset + SLOT_BYTES] = tail.encode()
    return bytes(page)


def test_marker_comes_back_as_it_was_written() -> None:
    assert decode_tail(checkpoint(TAIL)) == TAIL


def test_newer_generation_counts() -> None:
    newer = replace(TAIL, state=TailState.APPENDING, generation=8)

    assert decode_tail(checkpoint(TAIL, newer)) == newer


def test_generations_take_turns_in_two_slots() -> None:
    assert TAIL.slot_offset != replace(TAIL, generation=8).slot_offset
    assert SLOT_OFFSETS[0] + SLOT_BYTES <= SLOT_OFFSETS[1]


def test_checkpoint_of_apache_has_no_marker() -> None:
    assert decode_tail(bytes(4096)) is None
    assert decode_tail(bytes(48)) is None
    assert decode_tail(b"") is None


@pytest.mark.parametrize("position", range(0, SLOT_BYTES, 5))
def test_damaged_slot_makes_the_other_one_worthless_too(position: int) -> None:
    older = replace(TAIL, generation=6, log_end=1)
    page = bytearray(checkpoint(older, TAIL))
    page[TAIL.slot_offset + position] ^= 0x40

    assert decode_tail(bytes(page)) is None


def test_unknown_version_is_not_believed() -> None:
    slot = bytearray(TAIL.encode())
    slot[11] = 9

    assert decode_tail(bytes(TAIL.slot_offset) + bytes(slot)) is None


def test_boot_id_has_sixteen_bytes() -> None:
    assert len(boot_id()) == 16
