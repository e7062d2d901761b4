"""Columns that travel in place of records: the same rows, and nothing that is not checked."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.compression import compress, compression_flags
from broker_core.codec.decode import LargeBodiesError, decode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.record import Record, encode_record
from broker_core.codec.schema import ALL_COLUMNS, DEFAULT_COLUMNS
from broker_core.errors import RequestError
from broker_core.types import QueueRef
from broker_core.wire.core.frames import (
    INFLATED_CHUNKS,
    Flag,
    pack_columns,
    unpack,
    unpack_columns,
)

QUEUE = QueueRef("t", "broker-x", 3)
LARGE = 1 << 20


def frames(count: int, body: bytes = b"some body", sys_flag: int = 0) -> FrameBatch:
    made = [
        encode_record(Record("t", 3, 10 + 2 * number, 0, body, b"TAGS\x01a\x02", sys_flag=sys_flag))
        for number in range(count)
    ]
    sizes = np.array([len(each) for each in made], dtype=np.int32)
    return FrameBatch(
        buffer=np.frombuffer(b"".join(made), dtype=np.uint8),
        starts=np.cumsum(sizes, dtype=np.int64) - sizes,
        sizes=sizes,
        offsets=10 + 2 * np.arange(count),
        queue=QUEUE,
        next_offset=1000,
    )


@pytest.mark.parametrize("columns", [DEFAULT_COLUMNS, ALL_COLUMNS, ("property:TAGS", "body")])
def test_columns_arrive_as_they_would_have_been_decoded(columns: tuple[str, ...]) -> None:
    whole = frames(5)

    [message] = pack_columns(whole, columns, LARGE)

    chunk = unpack(message)
    assert chunk.flags & Flag.COLUMNS
    assert chunk.next_offset == 1000
    assert unpack_columns(chunk, columns).equals(decode(whole, columns, "broker-x"))


def test_no_records_are_no_rows_and_still_say_how_far_the_queue_was_examined() -> None:
    [message] = pack_columns(frames(3).slice(0, 0), ["body"], LARGE)

    chunk = unpack(message)
    assert unpack_columns(chunk, ["body"]).num_rows == 0
    assert chunk.next_offset == 1000


def test_what_is_too_large_for_a_chunk_is_cut_between_records() -> None:
    whole = frames(100, body=b"x" * 100)

    chunks = [unpack(message) for message in pack_columns(whole, ["queueOffset", "body"], 4000)]

    assert len(chunks) > 2
    found = pa.Table.from_batches(
        [unpack_columns(chunk, ["queueOffset", "body"]) for chunk in chunks]
    )
    assert found.column("queueOffset").to_pylist() == whole.offsets.tolist()
    examined = [chunk.next_offset for chunk in chunks]
    rows = np.cumsum([unpack_columns(chunk, ["queueOffset", "body"]).num_rows for chunk in chunks])
    assert examined == [*whole.offsets[rows[:-1]].tolist(), 1000]


def test_a_record_that_inflates_beyond_a_chunk_travels_as_it_is_stored() -> None:
    body = compress(b"x" * 100_000, "zlib")
    whole = frames(2, body, sys_flag=compression_flags("zlib"))

    chunks = [unpack(message) for message in pack_columns(whole, ["body"], 4000)]

    assert [bool(chunk.flags & Flag.COLUMNS) for chunk in chunks] == [False, False]
    assert [chunk.next_offset for chunk in chunks] == [12, 1000]
    assert decode(chunks[1].frames(QUEUE, ""), ["body"]).column(0)[0].as_py() == b"x" * 100_000


def test_bodies_are_inflated_a_few_chunks_worth_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk_bytes, body_bytes, flags = 4000, 3000, compression_flags("zlib")
    whole = frames(200, compress(b"x" * body_bytes, "zlib"), sys_flag=flags)
    held: list[int] = []
    refused: list[LargeBodiesError] = []

    def kept(*asked: Any) -> pa.RecordBatch:
        try:
            held.append(decode(*asked).nbytes)
        except LargeBodiesError as error:
            refused.append(error)
            raise
        return decode(*asked)

    monkeypatch.setattr("broker_core.wire.core.frames.decode", kept)
    chunks = [unpack(message) for message in pack_columns(whole, ["body"], chunk_bytes)]

    assert sum(unpack_columns(chunk, ["body"]).num_rows for chunk in chunks) == 200
    assert [chunk.next_offset for chunk in chunks] == [*whole.offsets[1:].tolist(), 1000]
    assert max(held) <= (INFLATED_CHUNKS + 1) * chunk_bytes
    assert len(refused) == 1  # bodies that are alike are inflated in vain once


def test_one_large_body_among_small_ones_travels_alone_as_it_is_stored() -> None:
    flags = compression_flags("zlib")
    large = frames(1, compress(b"x" * 100_000, "zlib"), sys_flag=flags)
    small = frames(20, compress(b"x" * 100, "zlib"), sys_flag=flags)
    sizes = np.concatenate([small.sizes, large.sizes, small.sizes])
    whole = FrameBatch(
        buffer=np.concatenate([small.buffer, large.buffer, small.buffer]),
        starts=np.cumsum(sizes, dtype=np.int64) - sizes,
        sizes=sizes,
        offsets=np.arange(41),
        next_offset=41,
    )

    chunks = [unpack(message) for message in pack_columns(whole, ["body"], 4000)]

    is_columns = [bool(chunk.flags & Flag.COLUMNS) for chunk in chunks]
    assert is_columns.count(False) == 1
    assert chunks[is_columns.index(False)].sizes.tolist() == large.sizes.tolist()
    assert chunks[is_columns.index(False)].next_offset == 21
    rows = [unpack_columns(chunk, ["body"]).num_rows for chunk in chunks if not len(chunk.sizes)]
    assert sum(rows) == 40


@given(st.data())
def test_damaged_columns_are_refused_or_harmless(data: st.DataObject) -> None:
    [message] = pack_columns(frames(5), DEFAULT_COLUMNS, LARGE)
    damaged = bytearray(message)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(40, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([None, len(damaged) - 8, len(damaged) // 2]))

    with suppress(RequestError):
        unpack_columns(unpack(bytes(damaged[:cut])), DEFAULT_COLUMNS).to_pylist()


def test_columns_that_were_not_asked_for_are_refused() -> None:
    [message] = pack_columns(frames(5), ["queueOffset"], LARGE)

    with pytest.raises(RequestError, match="A chunk of columns can't be read"):
        unpack_columns(unpack(message), ["body", "topic"])


@pytest.mark.parametrize("growth", [1, 3, 40])
def test_columns_are_decoded_about_a_chunks_worth_at_a_time(
    monkeypatch: pytest.MonkeyPatch, growth: int
) -> None:
    """A client that does not read has the server hold what was decoded for it."""
    chunk_bytes = 4000
    few, many = frames(100, b"x" * 20), frames(100, b"x" * 20 * growth)
    sizes = np.concatenate([few.sizes, many.sizes])
    whole = FrameBatch(
        buffer=np.concatenate([few.buffer, many.buffer]),
        starts=np.cumsum(sizes, dtype=np.int64) - sizes,
        sizes=sizes,
        offsets=np.arange(200),
        next_offset=200,
    )
    decoded: list[int] = []
    held: list[int] = []

    def kept(*asked: Any) -> pa.RecordBatch:
        rows = decode(*asked)
        decoded.append(rows.nbytes)
        return rows

    monkeypatch.setattr("broker_core.wire.core.frames.decode", kept)
    chunks = []
    for message in pack_columns(whole, ["body"], chunk_bytes):
        held.append(decoded[-1])
        chunks.append(unpack(message))

    assert sum(unpack_columns(chunk, ["body"]).num_rows for chunk in chunks) == 200
    assert max(held) <= INFLATED_CHUNKS * chunk_bytes
    assert len(chunks) <= 2 + 1.5 * len(whole.buffer) / chunk_bytes
    assert len(decoded) <= len(chunks) + 1  # decoded in vain once, where bodies grow
