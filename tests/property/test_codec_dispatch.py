"""Dispatch reads out of many records what the rules say about each of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.dispatch_request import dispatch_requests
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hashing.index_keys import hashes_of
from broker_core.codec.hashing.java import hash_spans, index_hash, java_hash, java_hashes
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import property_parts
from broker_core.codec.property_names import DELAY, KEYS, SCHEDULE_TOPIC, TAGS, UNIQ_KEY
from broker_core.codec.record import Record, decode_record
from broker_core.codec.spans import spans_of
from broker_core.store.batch import Batch
from tests.kit.records import laid_out, mixtures

pytestmark = pytest.mark.usefixtures("either_way")

LEVELS = (1, 5, 10)
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


def tags_code(record: Record) -> int:
    level = record.property_map.get(DELAY, "")
    if record.topic == SCHEDULE_TOPIC and re.fullmatch(r"\+?0*[1-9][0-9]{0,8}", level, re.ASCII):
        return record.store_timestamp + 1000 * LEVELS[min(int(level), len(LEVELS)) - 1]
    return java_hash(record.property_map.get(TAGS, ""))


def index_keys(record: Record, *, with_tags: bool) -> list[str]:
    properties = record.property_map
    if record.sys_flag & ROLLBACK == ROLLBACK:
        return []
    keys = [properties[UNIQ_KEY]] if UNIQ_KEY in properties else []
    keys += [key for key in properties.get(KEYS, "").split(" ") if key]
    keys += [f"T#{properties[TAGS]}"] if with_tags and TAGS in properties else []
    return [f"{record.topic}#{key}" for key in keys]


@given(mixtures(), st.booleans())
def test_each_record_is_dispatched_by_its_own_fields(
    made: Sequence[Record], with_tags: bool
) -> None:
    frames = laid_out(made, origin=1 << 30)
    records = [decode_record(encoded) for encoded in frames.records()]

    found = dispatch_requests(frames, index_tags=with_tags, delay_levels=LEVELS)

    assert [found.topics[code] for code in found.topic_codes] == [row.topic for row in records]
    assert found.queue_ids.tolist() == [row.queue_id for row in records]
    assert found.queue_offsets.tolist() == [row.queue_offset for row in records]
    assert found.physical_offsets.tolist() == [row.physical_offset for row in records]
    assert found.sizes.tolist() == frames.sizes.tolist()
    assert found.store_timestamps.tolist() == [row.store_timestamp for row in records]
    assert found.tags_codes.tolist() == [tags_code(row) for row in records]
    assert found.in_queue.tolist() == [
        row.sys_flag & ROLLBACK not in (PREPARED, ROLLBACK) for row in records
    ]
    keys = [
        (at, key) for at, row in enumerate(records) for key in index_keys(row, with_tags=with_tags)
    ]
    assert found.index_rows.tolist() == [at for at, _ in keys]
    assert found.index_hashes.tolist() == [index_hash(java_hash(key)) for _, key in keys]
    if with_tags:
        kept = [row for row in records if row.sys_flag & ROLLBACK != ROLLBACK]
        singly = [each for row in kept for each in hashes_of(row.topic, row.property_map)]
        assert found.index_hashes.tolist() == singly


@given(st.lists(st.one_of(st.none(), st.text(max_size=12)), max_size=100), st.text(max_size=4))
def test_the_hash_of_many_texts_is_the_hash_of_each(texts: list[str | None], before: str) -> None:
    column = pa.array(texts, pa.string())
    seeds = np.full(len(texts), java_hash(before), dtype=np.int32)

    alone = java_hashes(column).tolist()
    behind = hash_spans(spans_of(column)).behind(seeds).tolist()

    assert alone == [java_hash(text or "") for text in texts]
    assert behind == [java_hash(before + (text or "")) for text in texts]


def rows_of(characters: str) -> st.SearchStrategy[list[tuple[str | None, ...]]]:
    value = st.none() | st.text(st.sampled_from(characters), max_size=11)
    return st.lists(st.tuples(value, value, value, value), min_size=1, max_size=12)


@given(
    rows_of("ab 7") | rows_of("a 7\x02\x03") | rows_of("a é\x82"),
    st.sampled_from([None, "", "T", "a\x02b"]),
    st.data(),
)
def test_what_is_known_of_messages_is_what_their_records_say(
    rows: list[tuple[str | None, ...]], tag_of_all: str | None, data: st.DataObject
) -> None:
    """A value with the character that ends values in it is shorter in the record."""
    other, keys, unique, tags = (
        pa.array(column, pa.string()) for column in zip(*rows, strict=True)
    )
    pairs = [("other", other), (UNIQ_KEY, unique), (TAGS, tag_of_all or tags), (KEYS, keys)]
    numbers = np.arange(len(rows), dtype=np.int32)
    messages = MessageBatch(
        ["first", "second"],
        numbers % 2,
        numbers % 3,
        bodies=pa.array([b"x" * (number + 1) for number in range(len(rows))]),
        properties=property_parts(pairs, len(rows)),
        sys_flags=np.where(numbers % 5 == 4, np.int32(ROLLBACK), np.int32(0)),
    )
    start = data.draw(st.integers(0, len(rows) - 1))
    messages = messages.slice(start, data.draw(st.integers(start + 1, len(rows))))

    (part,) = Batch.of_messages(messages).parts
    records = part.records

    frames = FrameBatch(
        records.buffer, records.starts, records.sizes, np.zeros(len(part), dtype=np.int64)
    )
    read = dispatch_requests(frames)
    assert [read.topics[code] for code in read.topic_codes] == [
        part.requests.topics[code] for code in part.requests.topic_codes
    ]
    assert part.requests.tags_codes.tolist() == read.tags_codes.tolist()
    assert part.requests.index_rows.tolist() == read.index_rows.tolist()
    assert part.requests.index_hashes.tolist() == read.index_hashes.tolist()
    texts = [decode_record(encoded).properties for encoded in frames.records()]
    assert messages.property_texts.to_pylist() == texts
