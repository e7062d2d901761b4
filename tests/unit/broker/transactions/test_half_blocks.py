"""Half blocks: what they hold, what their commit makes of it, and what is no block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pytest

from broker_core.broker.transactions.half_blocks import (
    BLOCK_ROWS,
    as_blocks,
    block_bytes,
    blocks_of,
)
from broker_core.broker.transactions.unpack import VisibleCopies, visible_copies
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hosts import pack_host
from broker_core.codec.layout import MAX_PROPERTIES_BYTES, SysFlag
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.property_names import HALF_TOPIC
from broker_core.codec.record import Record, decode_record, encode_record
from broker_core.errors import CorruptRecordError, IllegalMessageError
from broker_core.store.batch import Batch
from broker_core.store.settings import StoreSettings

pytestmark = pytest.mark.usefixtures("either_way")

V4 = pack_host("127.0.0.1", 10911)
V6 = pack_host("::1", 10911)
PLACE = 5000
"""Where the first block of a test lies in the log."""


def message(number: int, *, topic: str = "t", queue_id: int = 1, body: bytes = b"") -> Record:
    text = f"TRAN_MSG\x01true\x02PGROUP\x01g\x02UNIQ_KEY\x01K{number}\x02".encode()
    return Record(
        topic,
        queue_id,
        queue_offset=0,
        physical_offset=0,
        body=body or f"body-{number}".encode(),
        properties=text,
        born_timestamp=1000 + number,
        born_host=V4,
        store_host=V4,
    )


def outgoing(records: Sequence[Record]) -> MessageBatch:
    """The same messages as a sink would hand them over."""
    topics = sorted({record.topic for record in records})
    return MessageBatch(
        topics=topics,
        topic_codes=np.array([topics.index(r.topic) for r in records], dtype=np.int32),
        queue_ids=np.array([record.queue_id for record in records], dtype=np.int32),
        bodies=pa.array([record.body for record in records], type=pa.binary()),
        properties=pa.array([record.properties for record in records], type=pa.binary()),
        born_timestamps=np.array([r.born_timestamp for r in records], dtype=np.int64),
        born_host=records[0].born_host,
        store_host=records[0].store_host,
    )


class Pack(Protocol):
    """Makes half messages of messages."""

    def __call__(
        self, messages: Sequence[Record], most_bytes: int, most_rows: int = BLOCK_ROWS
    ) -> Batch: ...


def pack_encoded(messages: Sequence[Record], most_bytes: int, most_rows: int = BLOCK_ROWS) -> Batch:
    return as_blocks(Batch.of_messages(outgoing(messages)), most_bytes, most_rows)


def pack_in_place(
    messages: Sequence[Record], most_bytes: int, most_rows: int = BLOCK_ROWS
) -> Batch:
    return blocks_of(outgoing(messages), most_bytes, most_rows)


@pytest.fixture(params=[pack_encoded, pack_in_place])
def pack(request: pytest.FixtureRequest) -> Pack:
    """Both ways to make blocks, of encoded messages and of others."""
    made: Pack = request.param
    return made


def stored(halves: Batch) -> list[bytes]:
    """The half messages' bytes, with the offsets that they would get in a log."""
    found: list[bytes] = []
    sizes = np.concatenate([part.records.sizes for part in halves.parts])
    places = PLACE + np.cumsum(sizes) - sizes
    first = 0
    for part in halves.parts:
        rows = slice(first, first + len(part))
        part.patch(np.arange(len(sizes))[rows], places[rows], 77)
        frames = FrameBatch(
            part.records.buffer, part.records.starts, part.records.sizes, np.arange(len(part))
        )
        found += frames.records()
        first += len(part)
    return found


def frames_of(records: Sequence[bytes]) -> FrameBatch:
    sizes = np.array([len(raw) for raw in records], dtype=np.int32)
    return FrameBatch(
        np.frombuffer(b"".join(records), dtype=np.uint8),
        np.cumsum(sizes, dtype=np.int64) - sizes,
        sizes,
        np.arange(len(records)),
        origin=PLACE,
        name="commitlog/0",
    )


def copies_of(each: VisibleCopies) -> Sequence[bytes]:
    found = each.records
    return FrameBatch(found.buffer, found.starts, found.sizes, np.arange(len(each))).records()


def committed(halves: Batch) -> list[bytes]:
    return [raw for each in visible_copies(frames_of(stored(halves))) for raw in copies_of(each)]


def test_a_block_is_a_half_message_whose_body_is_records(pack: Pack) -> None:
    messages = [message(0), message(1, queue_id=3)]

    [block] = stored(pack(messages, 1 << 20))

    body = encode_record(messages[0]) + encode_record(messages[1])
    text = b"TRAN_MSG\x01true\x02PGROUP\x01g\x02UNIQ_KEY\x01K0\x02HALF_BLOCK\x012\x02"
    text += b"REAL_TOPIC\x01t\x02REAL_QID\x011\x02"
    assert block == encode_record(
        replace(
            messages[0],
            topic=HALF_TOPIC,
            queue_id=0,
            physical_offset=PLACE,
            body=body,
            properties=text,
            store_timestamp=77,
        )
    )


@pytest.mark.parametrize("hosts", [(V4, V4), (V6, V4), (V4, V6), (V6, V6)])
def test_a_commit_is_the_records_and_where_each_of_them_was_prepared(
    hosts: tuple[bytes, bytes],
    pack: Pack,
) -> None:
    topics = ["t", "u", "wide-" * 40, "t", "u"]
    messages = [
        replace(message(number, topic=topic), born_host=hosts[0], store_host=hosts[1])
        for number, topic in enumerate(topics)
    ]
    halves = pack(messages, 1 << 20, most_rows=2)
    log = bytes(PLACE) + b"".join(stored(halves))

    copies = [decode_record(raw) for raw in committed(halves)]

    assert len({copy.prepared_offset for copy in copies}) == len(messages)
    for copy, original in zip(copies, messages, strict=True):
        inside = decode_record(log[copy.prepared_offset :][: len(encode_record(copy))])
        assert replace(copy, sys_flag=inside.sys_flag, prepared_offset=0) == inside
        assert (inside.topic, inside.body) == (original.topic, original.body)
        assert inside.properties == original.properties
        assert copy.sys_flag & 0xC == SysFlag.COMMIT


def test_blocks_keep_to_their_limits(pack: Pack) -> None:
    messages = [message(number) for number in range(10)]
    size = len(encode_record(messages[0]))

    by_rows = pack(messages, 1 << 20, most_rows=4)
    by_bytes = pack(messages, 3 * size + 5)

    def held(halves: Batch) -> list[str]:
        return [decode_record(raw).property_map["HALF_BLOCK"] for raw in stored(halves)]

    assert held(by_rows) == ["4", "4", "2"]
    assert held(by_bytes) == ["3", "3", "3", "1"]


def test_a_message_too_large_for_a_block_is_a_half_message_by_itself(pack: Pack) -> None:
    large = bytes(range(200)) * 5
    bodies = [b"a", b"b", large, large, b"c", large]
    messages = [message(number, body=body) for number, body in enumerate(bodies)]

    halves = pack(messages, 600)

    kinds = ["HALF_BLOCK" in decode_record(raw).property_map for raw in stored(halves)]
    assert kinds == [True, False, False, True, False]
    assert [decode_record(raw).body for raw in committed(halves)] == bodies
    assert [decode_record(raw).property_map["UNIQ_KEY"] for raw in committed(halves)] == [
        f"K{number}" for number in range(6)
    ]


def test_properties_of_a_large_message_may_lack_their_end(pack: Pack) -> None:
    large = replace(message(0, body=bytes(1000)), properties=b"UNIQ_KEY\x01K0\x02a\x01b")

    halves = pack([large], 600)

    [half] = [decode_record(raw) for raw in stored(halves)]
    assert (half.property_map["a"], half.property_map["REAL_TOPIC"]) == ("b", "t")
    [copy] = [decode_record(raw) for raw in committed(halves)]
    assert copy.property_map == large.property_map


def test_properties_that_leave_no_room_for_the_place_are_refused(pack: Pack) -> None:
    text = b"a\x01" + b"x" * (MAX_PROPERTIES_BYTES - 10) + b"\x02"
    large = replace(message(0), properties=text)

    with pytest.raises(IllegalMessageError, match=r"Message 0 .*'t'.*limit is 32712"):
        pack([large], 600)


def test_properties_of_a_block_have_room_for_the_first_message_s(pack: Pack) -> None:
    text = b"UNIQ_KEY\x01" + b"x" * (MAX_PROPERTIES_BYTES - 10) + b"\x02"

    with pytest.raises(IllegalMessageError, match=r"Message 1 .*'t'.*limit is 32712"):
        pack([message(0), replace(message(1), properties=text)], 1 << 20, most_rows=1)


@pytest.mark.parametrize(("most_bytes", "most_rows"), [(1 << 20, 1000), (4000, 1000), (9000, 7)])
def test_blocks_are_the_same_whether_messages_are_encoded_before_or_in_them(
    most_bytes: int, most_rows: int
) -> None:
    messages = [
        replace(
            message(number, topic="tu"[number % 2], queue_id=number % 5, body=b"b" * (number + 1)),
            born_timestamp=number,
        )
        for number in range(300)
    ]

    found = stored(pack_in_place(messages, most_bytes, most_rows))

    assert found == stored(pack_encoded(messages, most_bytes, most_rows))
    assert (len(found) == 1) is (most_bytes == 1 << 20)


def test_what_is_visible_already_is_left_out(pack: Pack) -> None:
    messages = [message(number) for number in range(5)]
    [each] = visible_copies(frames_of(stored(pack(messages, 1 << 20, most_rows=3))))
    there = each.prepared_offsets[[0, 1, 4]]

    left = each.without(there)

    assert [decode_record(raw).body for raw in copies_of(left)] == [b"body-2", b"body-3"]
    assert left.prepared_offsets.tolist() == each.prepared_offsets[[2, 3]].tolist()
    assert len(left.batch()) == 2
    assert len(each.without(each.prepared_offsets)) == 0
    assert each.without(np.array([1])) is each


def spoiled(**changes: object) -> FrameBatch:
    messages = [message(0), message(1)]
    [block] = stored(pack_encoded(messages, 1 << 20))
    record = decode_record(block)
    text = record.properties.replace(b"HALF_BLOCK\x012", changes.pop("said", b"HALF_BLOCK\x012"))  # type: ignore[arg-type]  # bytes
    return frames_of([encode_record(replace(record, properties=text, crc=None, **changes))])  # type: ignore[arg-type]  # a record's fields


INSIDE = encode_record(message(0)) + encode_record(message(1))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"said": b"HALF_BLOCK\x013"}, "as many records as they say"),
        ({"said": b"HALF_BLOCK\x01two"}, "no number"),
        ({"said": b"HALF_BLOCK\x0199999999"}, "no number"),
        ({"body": INSIDE + b"more"}, "4 bytes are left over"),
        ({"body": INSIDE[:-1]}, "record size is"),
        ({"body": b"no records"}, "magic is"),
    ],
)
def test_what_is_no_block_is_corrupt(changes: dict[str, object], what: str) -> None:
    with pytest.raises(CorruptRecordError, match=rf"5000 .*no blocks.*{what}.*check"):
        list(visible_copies(spoiled(**changes)))


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({}, 1 << 20),
        ({"maxMessageSize": 1000}, 1000),
        ({"mappedFileSizeCommitLog": 1 << 16}, 1 << 14),
    ],
)
def test_a_block_is_never_more_than_a_broker_takes(config: dict[str, int], limit: int) -> None:
    assert block_bytes(StoreSettings.load(config)) == limit
