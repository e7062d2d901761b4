from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from broker_core.broker.transactions.op import (
    MAX_BODY_CHARS,
    SettledHalves,
    listed_halves,
    op_bodies,
    op_messages,
)
from broker_core.codec.encode import encode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hosts import pack_host
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.property_names import OP_TOPIC
from broker_core.codec.record import encode_record
from broker_core.store.reader import StoreReader
from tests.kit.fixtures import extract

pytestmark = pytest.mark.usefixtures("either_way")


def _frames(messages: MessageBatch) -> FrameBatch:
    encoded = encode(messages)
    offsets = np.arange(len(messages), dtype=np.int64) + 40
    encoded.patch(offsets, encoded.starts, 1)
    return FrameBatch(encoded.buffer, encoded.starts, encoded.sizes, offsets, origin=0)


def _bodies(*bodies: bytes) -> FrameBatch:
    nothing = np.zeros(len(bodies), dtype=np.int32)
    empty = pa.array([b""] * len(bodies), type=pa.binary())
    return _frames(
        MessageBatch((OP_TOPIC,), nothing, nothing, pa.array(bodies, type=pa.binary()), empty)
    )


def _lists(frames: FrameBatch) -> list[tuple[int, int]]:
    halves, ops = listed_halves(frames)
    return list(zip(ops.tolist(), halves.tolist(), strict=True))


def test_an_op_message_has_the_bytes_that_apache_stored(tmp_path: Path) -> None:
    reader = StoreReader(extract("transactions-5.5", tmp_path))
    entries = reader.entries(OP_TOPIC, 0, *reader.queue_range(OP_TOPIC, 0))
    originals = [reader.record_at(int(place)) for place in entries["physical_offset"]]

    for original in originals:
        offsets = np.array([int(text) for text in original.body.split(b",")[:-1]])
        host = pack_host("127.0.0.1", 31911)
        encoded = encode(op_messages(offsets, original.born_timestamp, host))
        encoded.patch(
            np.array([original.queue_offset]),
            np.array([original.physical_offset]),
            original.store_timestamp,
        )
        assert encoded.buffer.tobytes() == encode_record(original)

    assert len(originals) == 5


@pytest.mark.parametrize(("fixture", "count"), [("transactions-5.5", 30), ("basic-4.9", 15)])
def test_op_messages_of_apache_are_read(tmp_path: Path, fixture: str, count: int) -> None:
    reader = StoreReader(extract(fixture, tmp_path))

    is_settled = SettledHalves(reader, 0).are_settled(np.arange(1000))

    assert is_settled.sum() == count
    assert is_settled[:3].all()


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ((b"105,106,",), [(40, 105), (40, 106)]),
        ((b"105",), [(40, 105)]),
        ((b"1,2", b"3,", b"4"), [(40, 1), (40, 2), (41, 3), (42, 4)]),
        ((b",,7,,", b"8,,9"), [(40, 7), (41, 8), (41, 9)]),
        ((b"12", b"34"), [(40, 12), (41, 34)]),
        ((b",", b"5"), [(41, 5)]),
        ((b"900000000000000000,0,",), [(40, 900000000000000000), (40, 0)]),
    ],
    ids=["batch", "single", "several", "empty-pieces", "unseparated-bodies", "only-comma", "large"],
)
def test_numbers_are_split_at_commas_and_at_the_ends_of_bodies(
    bodies: tuple[bytes, ...], expected: list[tuple[int, int]]
) -> None:
    assert _lists(_bodies(*bodies)) == expected


@pytest.mark.parametrize(
    "body", [b"3,-4,", b"3, 4,", b"0x1f,", b"\xff,", b"9223372036854775808,", b"4\n"]
)
def test_a_body_that_is_no_list_of_numbers_is_passed_over_and_logged(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    frames = _bodies(b"1,2,", body, b"5,")

    assert _lists(frames) == [(40, 1), (40, 2), (42, 5)]
    assert "event=op_messages_ignored count=1 first_offset=41" in caplog.text


@pytest.mark.parametrize("count", [0, 1, 5, 700, 20_000])
def test_what_is_listed_is_read_back_in_order(count: int) -> None:
    offsets: NDArray[np.int64] = np.arange(count, dtype=np.int64) * 7 + 95

    halves = [number for _, number in _lists(_frames(op_messages(offsets, 0)))]

    assert halves == offsets.tolist()


def test_bodies_end_with_the_number_that_makes_them_full() -> None:
    bodies = op_bodies(np.arange(1_000_000, 1_002_000)).to_pylist()

    assert b"".join(bodies).count(b",") == 2000
    assert all(body.endswith(b",") for body in bodies)
    assert all(MAX_BODY_CHARS - 8 <= len(body) <= MAX_BODY_CHARS + 8 for body in bodies[:-1])
