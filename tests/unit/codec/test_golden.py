"""Bytes that never change: records as RocketMQ stores them, and the numbers it derives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from broker_core.codec.decode import decode
from broker_core.codec.dispatch_request import dispatch_requests
from broker_core.codec.encode import encode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hashing.crc import body_crc, body_crcs
from broker_core.codec.hashing.java import index_hash, java_hash, java_hashes
from broker_core.codec.hosts import pack_host
from broker_core.codec.ids import offset_id, parse_offset_id
from broker_core.codec.layout import MAGIC_V1, MAGIC_V2
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.codec.record import (
    Record,
    decode_record,
    encode_record,
    property_crc_matches,
    with_property_crc,
)
from broker_core.codec.scan import walk
from broker_core.codec.spans import spans_of

pytestmark = pytest.mark.usefixtures("either_way")

FOLDER = Path(__file__).parents[2] / "golden" / "codec"
UNIQUE = "7F000001000A18B4AAC200000001ABCD"

V1 = Record(
    topic="TopicTest",
    queue_id=3,
    queue_offset=7,
    physical_offset=0,
    body=b"Hello RocketMQ",
    properties=format_properties({"TAGS": "TagA", "UNIQ_KEY": UNIQUE}),
    born_timestamp=1_700_000_000_000,
    born_host=pack_host("127.0.0.1", 54321),
    store_timestamp=1_700_000_000_123,
    store_host=pack_host("10.0.0.5", 10911),
    crc=0x69C865ED,
    version=MAGIC_V1,
)
BORN_V6 = pack_host("2001:db8::1", 54321)
STORE_V6 = pack_host("fe80::200:ff:fe00:5", 10911)
RECORDS = {
    "record-v1": V1,
    "record-v1-born-host-v6": replace(V1, born_host=BORN_V6, sys_flag=0x10),
    "record-v1-hosts-v6": replace(V1, born_host=BORN_V6, store_host=STORE_V6, sys_flag=0x30),
    "record-v2": replace(V1, topic="%RETRY%" + "g" * 133, version=MAGIC_V2),
}


def golden(name: str) -> bytes:
    lines = (FOLDER / f"{name}.hex").read_text("utf-8").splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def alone(encoded: bytes) -> FrameBatch:
    return FrameBatch(
        buffer=np.frombuffer(encoded, dtype=np.uint8),
        starts=np.zeros(1, dtype=np.int64),
        sizes=np.array([len(encoded)], dtype=np.int32),
        offsets=np.zeros(1, dtype=np.int64),
    )


@pytest.mark.parametrize("name", RECORDS)
class TestRecord:
    def test_scalar_encoding_gives_the_bytes(self, name: str) -> None:
        assert encode_record(RECORDS[name]) == golden(name)

    def test_scalar_decoding_gives_the_record(self, name: str) -> None:
        assert decode_record(golden(name)) == RECORDS[name]

    def test_columnar_encoding_gives_the_bytes(self, name: str) -> None:
        record = RECORDS[name]
        messages = MessageBatch(
            topics=[record.topic],
            topic_codes=np.zeros(1, dtype=np.int32),
            queue_ids=np.array([record.queue_id], dtype=np.int32),
            bodies=pa.array([record.body]),
            properties=pa.array([record.properties]),
            born_timestamps=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
        )

        encoded = encode(messages)
        encoded.patch(np.array([record.queue_offset]), np.array([0]), record.store_timestamp)

        assert encoded.buffer.tobytes() == golden(name)

    def test_columnar_decoding_gives_the_fields(self, name: str) -> None:
        columns = ["topic", "queueId", "queueOffset", "msgId", "tags", "body", "storeHost"]

        (row,) = decode(alone(golden(name)), columns).to_pylist()

        assert row == {
            "topic": RECORDS[name].topic,
            "queueId": 3,
            "queueOffset": 7,
            "msgId": UNIQUE,
            "tags": "TagA",
            "body": b"Hello RocketMQ",
            "storeHost": RECORDS[name].store_host_text,
        }


def test_a_compressed_body_is_read_as_it_was_sent() -> None:
    record = decode_record(golden("record-v1-zlib"))
    (row,) = decode(alone(golden("record-v1-zlib")), ["body", "sysFlag"]).to_pylist()

    assert record.plain_body == row["body"] == b"Hello RocketMQ " * 20
    assert record.sys_flag == row["sysFlag"] == 0x301


def test_property_checksum_is_appended_least_digit_first() -> None:
    checked = with_property_crc(golden("record-v1"))

    assert checked == golden("record-v1-property-crc")
    assert property_crc_matches(checked)
    assert decode_record(checked).property_map["__CRC32#"] == "2736354840"
    assert not property_crc_matches(golden("record-v1"))


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        (b"hello", 0x3610A686),
        (b"a", 0x68B7BE43),
        (b"test", 0x587F7E0C),
        (b"Hello RocketMQ", 0x69C865ED),
        (b"", 0),
    ],
)
def test_body_checksum(body: bytes, stored: int) -> None:
    assert body_crc(body) == stored
    assert body_crcs(spans_of(pa.array([b"x", body, b""]))).tolist()[1] == stored


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TagA", 2598919),
        ("d", 100),
        ("", 0),
        ("polygenelubricants", -2147483648),
        ("订单", 1129459),
        ("🚀", 1773027),
        (f"TopicTest#{UNIQUE}", -616046194),
    ],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert java_hashes(pa.array([text, "x", text])).tolist() == [value, java_hash("x"), value]


def test_index_hash_is_never_negative() -> None:
    assert index_hash(java_hash(f"TopicTest#{UNIQUE}")) == 616046194
    assert index_hash(-2147483648) == 0


def test_offset_id() -> None:
    assert offset_id(V1.store_host, 0) == "0A00000500002A9F0000000000000000"
    assert parse_offset_id("0A00000500002A9F0000000000000000") == (V1.store_host, 0)
    (row,) = decode(alone(golden("record-v1")), ["offsetMsgId"]).to_pylist()
    assert row == {"offsetMsgId": "0A00000500002A9F0000000000000000"}


def test_dispatch_of_the_record() -> None:
    fields = dispatch_requests(alone(golden("record-v1")))

    assert fields.topics == ["TopicTest"]
    assert fields.sizes.tolist() == [0xA6]
    assert fields.tags_codes.tolist() == [0x27A807]
    assert fields.index_hashes.tolist() == [616046194, index_hash(java_hash("TopicTest#T#TagA"))]


@pytest.mark.parametrize(
    ("delay", "tags_code"),
    [
        ("3", 1_700_000_010_123),
        ("18", 1_700_007_200_123),
        ("19", 1_700_007_200_123),
        ("0", 2598919),
        ("-1", 2598919),
        ("soon", 2598919),
        ("1_0", 2598919),
        ("4294967297", 2598919),
        ("9" * 5000, 2598919),
    ],
)
def test_delayed_record_is_dispatched_with_its_deliver_time(delay: str, tags_code: int) -> None:
    properties = format_properties({"DELAY": delay, "TAGS": "TagA"})
    delayed = replace(V1, topic=SCHEDULE_TOPIC, queue_id=2, properties=properties)

    fields = dispatch_requests(alone(encode_record(delayed)))

    assert fields.tags_codes.tolist() == [tags_code]


def test_blank_ends_a_segment() -> None:
    segment = golden("record-v1") + bytes.fromhex("0000007ccbd43194") + bytes(116)
    buffer = np.frombuffer(segment, dtype=np.uint8)

    found = walk(buffer, 0, len(buffer), origin=0, verify=True)

    assert (found.sizes.tolist(), found.end, found.stop_reason) == ([166], 166, "blank")
