from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from broker_core.broker.transactions.half import (
    as_halves,
    changed_properties,
    give_up,
    put_back,
    read_halves,
)
from broker_core.codec.encode import EncodedRecords, encode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.layout import SysFlag
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
)
from broker_core.codec.record import Record, decode_record, encode_record
from broker_core.errors import CorruptRecordError
from broker_core.store.reader import StoreReader
from tests.kit.fixtures import extract

pytestmark = pytest.mark.usefixtures("either_way")


class Apache:
    """The transactions of a store that Apache's broker wrote."""

    def __init__(self, tmp_path: Path, name: str) -> None:
        self.reader = StoreReader(extract(name, tmp_path))
        self.halves = self.records(HALF_TOPIC, 0)

    def records(self, topic: str, queue_id: int) -> list[Record]:
        start, end = self.reader.queue_range(topic, queue_id)
        entries = self.reader.entries(topic, queue_id, start, end)
        return [self.reader.record_at(int(place)) for place in entries["physical_offset"]]

    def frames(self, rows: NDArray[np.intp] | list[int]) -> list[FrameBatch]:
        """The half messages with these numbers, in batches of one segment."""
        wanted = np.asarray(rows)
        start, end = self.reader.queue_range(HALF_TOPIC, 0)
        batches = self.reader.frames(HALF_TOPIC, 0, start, end)
        return [batch.select(np.isin(batch.offsets, wanted)) for batch in batches]

    def visible(self) -> list[Record]:
        """The committed copies."""
        found = [self.records(topic, queue) for topic, queue in self.reader.queues()]
        commit = [each for records in found for each in records if is_committed(each)]
        return sorted(commit, key=lambda record: record.physical_offset)


def is_committed(record: Record) -> bool:
    return record.sys_flag & 0xC == SysFlag.COMMIT


@pytest.fixture
def apache(tmp_path: Path) -> Apache:
    return Apache(tmp_path, "transactions-5.5")


def placed_as(encoded: EncodedRecords, originals: list[Record]) -> list[bytes]:
    """Our records with the offsets and the time that Apache's broker gave its own."""
    offsets = np.array([record.queue_offset for record in originals])
    places = np.array([record.physical_offset for record in originals])
    found = []
    for row, original in enumerate(originals):
        encoded.patch(offsets, places, original.store_timestamp)
        start = int(encoded.starts[row])
        found.append(encoded.buffer[start : start + int(encoded.sizes[row])].tobytes())
    return found


def test_commit_makes_the_bytes_that_apache_stored(apache: Apache) -> None:
    visible = {record.prepared_offset: record for record in apache.visible()}
    numbers = [half.queue_offset for half in apache.halves if half.physical_offset in visible]

    for batch in apache.frames(numbers):
        halves = read_halves(batch)
        originals = [visible[place] for place in halves.physical_offsets.tolist()]
        assert placed_as(halves.commit(), originals) == [encode_record(one) for one in originals]

    assert len(visible) == 18


def test_putting_back_makes_the_bytes_that_apache_stored(apache: Apache) -> None:
    copies: dict[int, Record] = {}
    last: dict[str, int] = {}
    for half in apache.halves:
        key = half.property_map[UNIQ_KEY]
        if key in last:
            copies[last[key]] = half
        last[key] = half.queue_offset
    assert len(copies) == 40

    for batch in apache.frames(list(copies)):
        originals = [copies[offset] for offset in batch.offsets.tolist()]
        counts = [record.property_map[TRANSACTION_CHECK_TIMES] for record in originals]
        encoded = put_back(batch, [{TRANSACTION_CHECK_TIMES: count} for count in counts])
        assert placed_as(encoded, originals) == [encode_record(one) for one in originals]


def test_giving_up_makes_the_bytes_that_apache_stored(apache: Apache) -> None:
    discarded = {
        record.property_map[UNIQ_KEY]: record for record in apache.records(DISCARD_TOPIC, 0)
    }
    numbers = [
        half.queue_offset
        for half in apache.halves
        if half.property_map[UNIQ_KEY] in discarded
        and half.property_map.get(TRANSACTION_CHECK_TIMES) == "3"
    ]
    assert len(numbers) == len(discarded) == 6

    for batch in apache.frames(numbers):
        keys = [decode_record(record).property_map[UNIQ_KEY] for record in batch.records()]
        originals = [discarded[key] for key in keys]
        assert placed_as(give_up(batch), originals) == [encode_record(one) for one in originals]


def test_halves_of_4_9_with_their_properties_in_any_order_are_understood(tmp_path: Path) -> None:
    apache = Apache(tmp_path, "basic-4.9")
    visible = {record.prepared_offset: record for record in apache.visible()}
    numbers = [half.queue_offset for half in apache.halves if half.physical_offset in visible]
    assert numbers

    for batch in apache.frames(numbers):
        halves = read_halves(batch)
        ours = halves.commit()
        for row, record in enumerate(_decoded(ours)):
            theirs = visible[int(halves.physical_offsets[row])]
            # 4.9 leaves the two properties in the copy, as 5.5 does not.
            without = dict(theirs.property_map)
            del without["REAL_TOPIC"], without["REAL_QID"]
            assert record.property_map == without
            assert (record.topic, record.queue_id) == (theirs.topic, theirs.queue_id)
            assert (record.body, record.flag) == (theirs.body, theirs.flag)


def _decoded(encoded: EncodedRecords) -> list[Record]:
    return [decode_record(encoded.buffer.data, int(start)) for start in encoded.starts]


def _messages(properties: list[bytes], topics: list[str], queues: list[int]) -> MessageBatch:
    distinct = sorted(set(topics))
    return MessageBatch(
        topics=distinct,
        topic_codes=np.array([distinct.index(topic) for topic in topics], dtype=np.int32),
        queue_ids=np.array(queues, dtype=np.int32),
        bodies=pa.array([b"body %d" % row for row in range(len(topics))], type=pa.binary()),
        properties=pa.array(properties, type=pa.binary()),
        sys_flags=int(SysFlag.PREPARED | SysFlag.COMPRESSED | SysFlag.LZ4),
        born_timestamps=77,
    )


def _stored(messages: MessageBatch, physical_offset: int = 0) -> FrameBatch:
    encoded = encode(messages)
    offsets = np.arange(5, 5 + len(messages))
    encoded.patch(offsets, encoded.starts + physical_offset, 99)
    return FrameBatch(
        encoded.buffer, encoded.starts, encoded.sizes, offsets, origin=physical_offset
    )


def test_a_half_message_is_invisible_and_its_commit_is_the_message() -> None:
    texts = [b"TAGS\x01a\x02", b"", b"KEYS\x01k1 k2\x02TRAN_MSG\x01true\x02"]
    messages = _messages(texts, ["orders", "bills", "orders"], [3, 0, 11])

    frames = _stored(as_halves(messages), 4096)
    halves = [decode_record(record) for record in frames.records()]
    committed = _decoded(read_halves(frames).commit())

    assert {(half.topic, half.queue_id, half.sys_flag & 0xC) for half in halves} == {
        (HALF_TOPIC, 0, 0)
    }
    assert [half.properties for half in halves] == [
        text + b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % place
        for text, place in zip(texts, [(b"orders", 3), (b"bills", 0), (b"orders", 11)], strict=True)
    ]
    assert [(each.topic, each.queue_id) for each in committed] == [
        ("orders", 3),
        ("bills", 0),
        ("orders", 11),
    ]
    assert [each.properties for each in committed] == texts
    assert [each.body for each in committed] == [b"body 0", b"body 1", b"body 2"]
    assert {each.sys_flag for each in committed} == {0x101 | 0x8}
    assert [each.prepared_offset for each in committed] == (frames.starts + 4096).tolist()


def test_the_commit_of_a_delayed_half_message_goes_to_its_level_and_knows_its_topic() -> None:
    text = format_properties({"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "1"})

    frames = _stored(as_halves(_messages([text], ["SCHEDULE_TOPIC_XXXX"], [2])))
    [committed] = _decoded(read_halves(frames).commit())

    assert (committed.topic, committed.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert committed.properties == text


def test_halves_from_hosts_of_both_families_are_copied_as_they_are() -> None:
    v6, v4 = bytes(15) + b"\x01" + bytes(4), bytes([127, 0, 0, 1, 0, 0, 0, 9])
    text = b"REAL_TOPIC\x01t\x02REAL_QID\x010\x02"
    records = [
        Record(HALF_TOPIC, 0, row, 0, b"x" * (row + 1), text, 0, 0, 1, born, 2, stored)
        for row, (born, stored) in enumerate([(v4, v4), (v6, v4), (v4, v6), (v6, v6), (v4, v4)])
    ]
    data = [encode_record(record) for record in records]
    sizes = np.array([len(one) for one in data], dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    frames = FrameBatch(
        np.frombuffer(b"".join(data), dtype=np.uint8), starts, sizes, np.arange(5, dtype=np.int64)
    )

    encoded = read_halves(frames).commit()
    encoded.patch(np.arange(5), np.arange(5), 123)
    committed = _decoded(encoded)

    assert [(each.born_host, each.store_host) for each in committed] == [
        (record.born_host, record.store_host) for record in records
    ]
    assert [each.body for each in committed] == [record.body for record in records]
    assert {each.store_timestamp for each in committed} == {123}
    assert {each.born_timestamp for each in committed} == {1}


def test_a_copy_into_a_topic_with_a_long_name_is_a_v2_record() -> None:
    topic = "%RETRY%" + "g" * 150

    frames = _stored(as_halves(_messages([b"", b""], [topic, "t"], [0, 0])))
    committed = _decoded(read_halves(frames).commit())

    assert [each.topic for each in committed] == [topic, "t"]


def test_a_record_in_the_half_queue_that_is_no_half_message_is_reported() -> None:
    frames = _stored(_messages([b"TAGS\x01a\x02"], [HALF_TOPIC], [0]), 640)

    with pytest.raises(CorruptRecordError, match=r"without REAL_TOPIC or REAL_QID.* 640"):
        read_halves(frames)


def test_a_queue_id_that_is_no_number_is_reported() -> None:
    text = b"REAL_TOPIC\x01t\x02REAL_QID\x01x1\x02"

    with pytest.raises(CorruptRecordError, match="REAL_QID is b'x1'"):
        read_halves(_stored(_messages([text], [HALF_TOPIC], [0])))


def test_properties_are_written_in_the_order_of_java() -> None:
    names = "ORIGIN_MESSAGE_ID RETRY_TOPIC UNIQ_KEY CLUSTER PGROUP __transactionId__ DELAY TAGS"
    names += " TRAN_MSG KEYS WAIT REAL_TOPIC REAL_QID"
    expected = format_properties(dict.fromkeys(names.split(), "v"))

    # UNIQ_KEY and CLUSTER share a bucket, where the first to come is the first to go.
    words = ["UNIQ_KEY", *sorted(set(names.split()) - {"UNIQ_KEY"})]
    shuffled = format_properties(dict.fromkeys(words, "v"))

    assert changed_properties(shuffled, {}) == expected
