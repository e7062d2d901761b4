"""The columnar encoder gives the scalar one's bytes, and decoding gives back what was encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.encode import encode
from broker_core.codec.layout import MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.codec.record import (
    Record,
    decode_record,
    encode_record,
    property_crc_matches,
    with_property_crc,
)
from broker_core.codec.scan import walk
from broker_core.store.batch import Batch, Part
from tests.kit.records import HOSTS, INT64, records

pytestmark = pytest.mark.usefixtures("either_way")


def outgoing(messages: Sequence[Record], born_host: bytes, store_host: bytes) -> MessageBatch:
    topics = sorted({message.topic for message in messages})
    return MessageBatch(
        topics=topics,
        topic_codes=np.array([topics.index(message.topic) for message in messages], np.int32),
        queue_ids=np.array([message.queue_id for message in messages], np.int32),
        bodies=pa.array([message.body for message in messages], pa.binary()),
        properties=pa.array([message.properties for message in messages], pa.binary()),
        born_timestamps=np.array([message.born_timestamp for message in messages], np.int64),
        sys_flags=np.array([message.sys_flag for message in messages], np.int32),
        flags=np.array([message.flag for message in messages], np.int32),
        reconsume_times=np.array([message.reconsume_times for message in messages], np.int32),
        prepared_offsets=np.array([message.prepared_offset for message in messages], np.int64),
        born_host=born_host,
        store_host=store_host,
    )


@given(st.lists(records(), max_size=12), HOSTS, HOSTS, INT64)
def test_a_patched_batch_is_the_encoded_records_one_after_another(
    made: list[Record], born_host: bytes, store_host: bytes, store_timestamp: int
) -> None:
    messages = [
        replace(
            message,
            version=MAGIC_V2 if len(message.topic.encode()) > MAX_TOPIC_V1 else MAGIC_V1,
            born_host=born_host,
            store_host=store_host,
            store_timestamp=store_timestamp,
        )
        for message in made
    ]

    encoded = encode(outgoing(messages, born_host, store_host))
    encoded.patch(
        np.array([message.queue_offset for message in messages], np.int64),
        np.array([message.physical_offset for message in messages], np.int64),
        store_timestamp,
    )

    expected = [encode_record(message) for message in messages]
    assert encoded.buffer.tobytes() == b"".join(expected)
    assert encoded.sizes.tolist() == [len(record) for record in expected]
    assert encoded.starts.tolist() == [sum(map(len, expected[:row])) for row in range(len(made))]


@given(st.lists(records(), max_size=12), st.integers(0, 14), st.integers(0, 14))
def test_a_slice_encodes_like_its_rows(made: list[Record], start: int, count: int) -> None:
    host = bytes(8)

    part = outgoing(made, host, host).slice(start, start + count)

    alone = outgoing(made[start : start + count], host, host)
    assert encode(part).buffer.tobytes() == encode(alone).buffer.tobytes()


@given(st.lists(records(), min_size=1, max_size=12), st.integers(1, 4000))
def test_parts_of_a_batch_encode_to_the_bytes_of_the_whole(
    made: list[Record], part_bytes: int
) -> None:
    messages = outgoing(made, bytes(8), bytes(20))

    parts = [encode(part).buffer.tobytes() for part in messages.parts(part_bytes)]

    assert b"".join(parts) == encode(messages).buffer.tobytes()


@given(records())
def test_a_decoded_record_is_the_one_encoded(record: Record) -> None:
    decoded = decode_record(encode_record(record))

    # The host bits and the checksum are the encoder's to set.
    assert replace(decoded, crc=None, sys_flag=decoded.sys_flag & ~0x30) == record
    assert encode_record(decoded) == encode_record(record)


@given(records())
def test_a_property_checksum_holds_until_any_byte_changes(record: Record) -> None:
    checked = with_property_crc(encode_record(record))

    assert property_crc_matches(checked)
    assert decode_record(checked).property_map.keys() - record.property_map.keys() <= {"__CRC32#"}
    for place in (0, 8, len(checked) // 2, len(checked) - 3):
        damaged = bytearray(checked)
        damaged[place] ^= 1
        assert not property_crc_matches(bytes(damaged))


@given(
    st.lists(records(), max_size=8),
    st.sampled_from([b"", bytes(20), b"\x00\x00\x00\x09\xcb\xd4\x31\x94\x00"]),
)
def test_a_walk_finds_the_records_that_were_laid_down(made: list[Record], rest: bytes) -> None:
    placed, at = [], 0
    for record in made:
        placed.append(encode_record(replace(record, physical_offset=at)))
        at += len(placed[-1])
    log = np.frombuffer(b"".join(placed) + rest, dtype=np.uint8)

    found = walk(log, 0, len(log), origin=0, verify=True)

    assert found.sizes.tolist() == [len(record) for record in placed]
    assert found.end == at
    assert found.stop_reason == {0: "stop", 20: "zero", 9: "blank"}[len(rest)]


@given(st.lists(records(), min_size=1, max_size=12))
def test_what_dispatch_knows_of_new_records_is_what_it_reads_out_of_them(
    made: list[Record],
) -> None:
    messages = outgoing(made, bytes(8), bytes(8))

    [part] = Batch.of_messages(messages).parts

    known, read = part.requests, Part(part.records).requests
    topics = [known.topics[code] for code in known.topic_codes]
    assert topics == [read.topics[code] for code in read.topic_codes]
    assert known.in_queue.tolist() == read.in_queue.tolist()
    for name in ("queue_ids", "sizes", "index_rows", "index_hashes"):
        assert getattr(known, name).tolist() == getattr(read, name).tolist(), name
    is_scheduled = np.array([topic == SCHEDULE_TOPIC for topic in topics])  # depends on the time
    assert known.tags_codes[~is_scheduled].tolist() == read.tags_codes[~is_scheduled].tolist()
