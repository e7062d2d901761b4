"""SEND_BATCH_MESSAGE and its answer, as real brokers took and gave them."""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pytest

from broker_core.wire.remoting.send_message import encode_entries, physical_offsets
from tests.kit.remoting import GOLDEN, decode_frame

CAPTURED = GOLDEN / "rocketmq-5.5.0-json.json"


def test_entries_have_the_layout_that_brokers_read() -> None:
    data, bounds = encode_entries(pa.array([b"ab", b"c"]), pa.array([b"k\x01v\x02", b""]), 7)

    first = struct.pack(">iiiii", 28, 0, 0, 7, 2) + b"ab" + struct.pack(">h", 4) + b"k\x01v\x02"
    second = struct.pack(">iiiii", 23, 0, 0, 7, 1) + b"c" + struct.pack(">h", 0)
    assert bytes(data) == first + second
    assert bounds.tolist() == [0, 28, 51]


def test_physical_offsets_are_read_from_the_ids() -> None:
    captured = json.loads(CAPTURED.read_text(encoding="utf-8"))["send batch"]
    ids = decode_frame(bytes.fromhex(captured["answer"])).ext["msgId"]

    assert physical_offsets(ids, 3).tolist() == [int(one[-16:], 16) for one in ids.split(",")]


@pytest.mark.parametrize("ids", ["", "zz", "00" * 16 + ",", "00" * 8 + "," + "00" * 8, "g" * 32])
def test_odd_ids_are_no_offsets(ids: str) -> None:
    with pytest.raises(ValueError):
        physical_offsets(ids, 1)
