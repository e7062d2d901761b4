"""Queries: messages found without reading queues, by key, by unique id or by offset id.

The index gives candidates by hash; here their texts are compared, as RocketMQ's clients do. Both
kinds of message id look alike, so an id is tried as an offset id first, then as a unique key.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from broker_core.api import DEFAULT_QUERY_LIMIT
from broker_core.codec import layout
from broker_core.codec.decode import decode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.ids import parse_offset_id
from broker_core.codec.property_names import (
    DEAD_LETTER_PREFIX,
    KEY_SEPARATOR,
    KEYS,
    RETRY_PREFIX,
    TAGS,
    UNIQ_KEY,
    is_system_topic,
)
from broker_core.codec.record import FEW, table_of
from broker_core.codec.schema import ALL_COLUMNS, schema_of
from broker_core.errors import (
    CorruptRecordError,
    MessageNotFoundError,
    OffsetRangeError,
    RequestError,
)
from broker_core.store.index.file import key_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker_core.codec.record import Record
    from broker_core.store.reader import StoreReader

_APACHE_UNIQUE_LIMIT = 32
_TAG_PREFIX = "T#"
_SHOWN_CHARS = 128


def find_by_key(reader: StoreReader, topic: str, key: str, limit: int) -> Iterator[Record]:
    """Return messages of a topic with a key or unique key, by physical offset, read one by one.

    Up to 64 it answers as an Apache broker does: the limit counts candidates of equal hash, the
    newest first, and only what the index files hold is found. A higher limit asks for all there
    is, indexed or not.
    """
    if limit < 1:
        message = f"A query's limit is {limit}; give 1 or more."
        raise RequestError(message)
    if len(key) > layout.MAX_PROPERTIES_BYTES:
        return iter(())  # no record can hold it, and hashing takes time
    is_complete = limit > DEFAULT_QUERY_LIMIT
    unique_limit = limit if is_complete else min(limit, _APACHE_UNIQUE_LIMIT)
    candidates = reader.lookup(topic, key, limit, is_complete=is_complete)
    by_offset = sorted(enumerate(candidates), key=itemgetter(1))
    return _matching(reader, topic, key, by_offset, unique_limit)


def _matching(
    reader: StoreReader,
    topic: str,
    key: str,
    candidates: Sequence[tuple[int, int]],
    unique_limit: int,
) -> Iterator[Record]:
    """Yield the records with a key among candidates: (number, physical offset)."""
    for number, physical_offset in candidates:
        record = _indexed_record(reader, topic, key, physical_offset)
        if record.topic != topic:
            continue
        is_unique = record.property_map.get(UNIQ_KEY) == key
        if key in _keys(record) or (is_unique and number < unique_limit):
            yield record


def find_by_id(reader: StoreReader, topics: Sequence[str], message_id: str) -> Record:
    """Return the message with an offset id or a unique id; MessageNotFoundError if there is none.

    Copies of a message (half, delayed, retried) share its unique id: then the one in an ordinary
    topic is meant, and of several the first that was stored.
    """
    record = _at_offset_id(reader, message_id)
    if record is not None:
        return record
    for topic in sorted(topics, key=_plainness):
        found = find_by_key(reader, topic, message_id, DEFAULT_QUERY_LIMIT)
        for each in found:
            if each.property_map.get(UNIQ_KEY) == message_id:
                return each
    raise not_found(message_id)


def not_found(message_id: str) -> MessageNotFoundError:
    """Return the error for an id that names no message, or none that the caller may read."""
    shown = message_id if len(message_id) <= _SHOWN_CHARS else f"{message_id[:_SHOWN_CHARS]}…"
    message = (
        f"No message with id {shown} is there: it is neither a unique id nor the offset id of "
        f"a record that the store still has."
    )
    return MessageNotFoundError(message)


def as_table(records: Sequence[Record], reader: StoreReader) -> pa.Table:
    """Return records as a table with all columns, in the order given."""
    if len(records) < FEW:
        return table_of(records, reader.settings.broker_name)
    batch = decode(as_frames(records, reader), ALL_COLUMNS, reader.settings.broker_name)
    return pa.Table.from_batches([batch], schema=schema_of(ALL_COLUMNS))


def as_frames(records: Sequence[Record], reader: StoreReader) -> FrameBatch:
    """Return records as they are stored, in the order given."""
    raw = [reader.log.record_bytes(record.physical_offset) for record in records]
    sizes = np.array([len(item) for item in raw], dtype=np.int32)
    starts = np.zeros(len(raw), dtype=np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    return FrameBatch(
        buffer=np.frombuffer(b"".join(raw), dtype=np.uint8),
        starts=starts,
        sizes=sizes,
        offsets=np.array([record.queue_offset for record in records], dtype=np.int64),
        name=str(reader.root),
        verify=True,
    )


def _indexed_record(reader: StoreReader, topic: str, key: str, physical_offset: int) -> Record:
    """Return the record an index entry points to; CorruptRecordError if it has no such key."""
    try:
        record = reader.record_at(physical_offset)
    except OffsetRangeError as error:
        raise _misled(reader, topic, key, physical_offset) from error
    hashed = key_hash(topic, key)
    indexed = [record.property_map.get(UNIQ_KEY), *_keys(record)]
    indexed.append(_TAG_PREFIX + record.property_map.get(TAGS, ""))
    if not any(key_hash(record.topic, each) == hashed for each in indexed if each):
        raise _misled(reader, topic, key, physical_offset)
    return record


def _misled(reader: StoreReader, topic: str, key: str, physical_offset: int) -> CorruptRecordError:
    message = (
        f"The index in {reader.root / 'index'} leads from key {key!r} of topic {topic} to physical "
        f"offset {physical_offset}, where no record with such a key lies. Run `rocketmq-broker "
        f"check` on the store."
    )
    return CorruptRecordError(message, reader.root / "index", physical_offset)


def _keys(record: Record) -> list[str]:
    text = record.property_map.get(KEYS, "")
    return [key for key in text.split(KEY_SEPARATOR) if key]


def _at_offset_id(reader: StoreReader, message_id: str) -> Record | None:
    """Return the record that an offset id names, None if the text names none that is there."""
    named = parse_offset_id(message_id)
    if named is None:
        return None
    try:
        record = reader.record_at(named[1])
    except (CorruptRecordError, OffsetRangeError):
        return None
    # Any 32 hex digits parse: only a record that begins there and has this id is meant.
    is_named = record.offset_id == message_id.upper()
    return record if is_named and reader.begins_record(record) else None


def _plainness(topic: str) -> tuple[int, str]:
    """Return a sort key: ordinary topics first, then retries and dead letters, system topics."""
    is_copy = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return (1 if is_copy else 2 if is_system_topic(topic) else 0, topic)
