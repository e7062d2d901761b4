"""Damaged records: a clear CorruptRecordError or a result, nothing else, and no hang."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.compression import compress, compression_flags
from broker_core.codec.decode import decode, property_columns
from broker_core.codec.dispatch_request import dispatch_requests
from broker_core.codec.frames import FrameBatch
from broker_core.codec.layout import MAGIC_V2, SYS_FLAG
from broker_core.codec.property_names import TAGS
from broker_core.codec.record import Record, decode_record
from broker_core.codec.scan import walk
from broker_core.codec.schema import ALL_COLUMNS
from broker_core.errors import CorruptRecordError
from tests.kit.records import laid_out, mixtures, of_one_queue

pytestmark = pytest.mark.usefixtures("either_way")

READERS: dict[str, Callable[[FrameBatch], Any]] = {
    "decode": lambda frames: decode(frames, ALL_COLUMNS),
    "body": lambda frames: decode(frames, ["body", "queueOffset"]),
    "property_columns": lambda frames: property_columns(frames, [TAGS, "a"]),
    "dispatch": dispatch_requests,
}
WHAT_CHECKS_COVER = ["topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "body"]
BODY = b"Hello RocketMQ " * 3
PROPERTIES = b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02"

SMALL_RECORDS = {
    "plain": Record("TopicTest", 0, 0, 0, BODY, PROPERTIES),
    "wide": Record(
        "TopicTest", 0, 0, 0, BODY, PROPERTIES, 0, 0, 1, bytes(20), 2, bytes(20), version=MAGIC_V2
    ),
    "zlib": Record(
        "T", 0, 0, 0, compress(BODY, "zlib"), PROPERTIES, sys_flag=compression_flags("zlib")
    ),
    "lz4": Record("T", 0, 0, 0, compress(BODY, "lz4"), sys_flag=compression_flags("lz4")),
    "zstd": Record("T", 0, 0, 0, compress(BODY, "zstd"), sys_flag=compression_flags("zstd")),
}


def attempt(read: Callable[[FrameBatch], Any], frames: FrameBatch) -> Any:
    """What a reader gives, or None if it refuses in the one way that is allowed."""
    try:
        return read(frames)
    except CorruptRecordError as error:
        refusal = error
    assert refusal.path == frames.name
    assert refusal.physical_offset in frames.starts + (frames.origin or 0)
    assert str(refusal.physical_offset) in str(refusal)
    return None


def with_bytes(frames: FrameBatch, changes: dict[int, int]) -> FrameBatch:
    """The same batch with some bytes of its buffer changed by exclusive or."""
    buffer = frames.buffer.copy()
    for place, mask in changes.items():
        buffer[place % len(buffer)] ^= mask
    return replace(frames, buffer=buffer)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("record", SMALL_RECORDS.values(), ids=SMALL_RECORDS)
def test_every_flipped_byte_is_refused_or_read(
    record: Record, reader: Callable[[FrameBatch], Any]
) -> None:
    frames = replace(of_one_queue([record] * 2), verify=True)

    outcomes = [
        attempt(reader, with_bytes(frames, {place: mask}))
        for place in range(int(frames.sizes[0]))
        for mask in (0x01, 0x80, 0xFF)
    ]

    assert None in outcomes
    assert any(outcome is not None for outcome in outcomes)


@pytest.mark.parametrize("record", SMALL_RECORDS.values(), ids=SMALL_RECORDS)
def test_what_checks_cover_is_never_served_changed(record: Record) -> None:
    frames = replace(of_one_queue([record] * 2), verify=True)
    right = decode(frames, WHAT_CHECKS_COVER)
    places = [
        place
        for place in range(int(frames.sizes[0]))
        if not SYS_FLAG <= place < SYS_FLAG + 4  # nothing covers how the body is compressed
    ]

    for place in places:
        for mask in (0x01, 0x10, 0x80, 0xFF):
            damaged = with_bytes(frames, {place: mask})
            found = attempt(lambda frames: decode(frames, WHAT_CHECKS_COVER), damaged)
            assert found is None or found.equals(right), (place, mask)


@pytest.mark.parametrize("record", SMALL_RECORDS.values(), ids=SMALL_RECORDS)
def test_one_record_alone_is_refused_or_read(record: Record) -> None:
    encoded = laid_out([record]).buffer

    for place in range(len(encoded)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = encoded.copy()
            damaged[place] ^= mask
            with suppress(CorruptRecordError):
                decode_record(damaged.tobytes())


@given(
    mixtures(max_rows=6),
    st.booleans(),
    st.dictionaries(st.integers(0, 2**16), st.integers(1, 255), min_size=1, max_size=4),
    st.sampled_from(sorted(READERS)),
)
def test_damaged_batches_are_refused_or_read(
    made: Sequence[Record], is_queue: bool, changes: dict[int, int], reader: str
) -> None:
    frames = of_one_queue(made) if is_queue else laid_out(made)

    attempt(READERS[reader], replace(with_bytes(frames, changes), verify=True))


@given(
    mixtures(max_rows=6),
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))),
    st.sampled_from(sorted(READERS)),
)
def test_places_and_sizes_that_lie_are_refused(
    made: Sequence[Record], lies: list[tuple[int, int]], reader: str
) -> None:
    honest = laid_out(made)
    starts = np.array([*honest.starts.tolist(), *(start for start, _ in lies)], dtype=np.int64)
    sizes = np.array([*honest.sizes.tolist(), *(size for _, size in lies)], dtype=np.int32)
    frames = replace(honest, starts=starts, sizes=sizes, offsets=np.zeros_like(starts), origin=None)

    found = attempt(READERS[reader], frames)

    assert (found is None) == bool(lies)


@given(mixtures(max_rows=6), st.dictionaries(st.integers(0, 2**16), st.integers(1, 255)))
def test_a_walk_over_a_damaged_log_stops_at_a_record_that_is_not_valid(
    made: Sequence[Record], changes: dict[int, int]
) -> None:
    log = with_bytes(laid_out(made), changes)

    found = walk(log.buffer, 0, len(log.buffer), origin=0, verify=True)

    for start in found.starts.tolist():
        assert decode_record(log.buffer.tobytes(), start).physical_offset == start
    assert found.end == int(found.sizes.sum())
    if found.stop_reason == "invalid":
        assert found.detail


@given(st.binary(max_size=300))
def test_a_walk_over_any_bytes_ends(log: bytes) -> None:
    found = walk(np.frombuffer(log, dtype=np.uint8), 0, len(log), origin=0, verify=True)

    assert 0 <= found.end <= len(log)
