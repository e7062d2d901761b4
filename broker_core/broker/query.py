"""Queries: messages found without reading queues, by key, by unique id or by offset id.

The index gives candidates by hash; here their texts are compared, as RocketMQ's clients do. Both
kinds of message id look alike, so an id is tried as an offset id first, then as a unique key.
"""

from __future__ import annotations

from itertools import chain, islice
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
    from collections.abc import Iterable, Iterator, Sequence

    from broker_core.codec.record import Record
    from broker_core.store.reader import StoreReader

MOST_OTHERS = 8192
"""Messages of a key's hash that do not have the key: so many are looked at for a query."""
_APACHE_UNIQUE_LIMIT = 32
_CHECKED = 64
"""So many of the candidates are checked for the hash."""
_TAG_PREFIX = "T#"
_SHOWN_CHARS = 128


def find_by_key(reader: StoreReader, topic: str, key: str, limit: int) -> Iterator[Record]:
    """Return messages of a topic with a key or unique key, by physical offset, read one by one.

    The limit counts messages that have the key, the newest first. Candidates of equal hash do not
    count, so nobody hides messages behind others of that hash; RequestError if there are so many
    that an answer would take long. Up to 64 only what the index files hold is found, and only the
    32 newest by unique key, as an Apache broker answers. A higher limit asks for all there is,
    indexed or not.
    """
    if limit < 1:
        message = f"A query's limit is {limit}; give 1 or more."
        raise RequestError(message)
    if len(key) > layout.MAX_PROPERTIES_BYTES:
        return iter(())  # no record can hold it, and hashing takes time
    is_complete = limit > DEFAULT_QUERY_LIMIT
    unique_limit = limit if is_complete else min(limit, _APACHE_UNIQUE_LIMIT)
    candidates = reader.candidates(topic, key, is_complete=is_complete)
    found = list(islice(candidates, unique_limit))
    if len(found) == unique_limit:
        # There may be more than count: so each is looked at before it counts.
        own = _own(reader, topic, key, chain(found, candidates), limit)
        found = list(islice(own, limit))
    by_offset = sorted(enumerate(found), key=itemgetter(1))
    return _matching(reader, topic, key, by_offset, unique_limit)


def _own(
    reader: StoreReader, topic: str, key: str, candidates: Iterable[int], limit: int
) -> Iterator[int]:
    """Yield the candidates that have the topic and the key; their bodies are not read.

    Of the others only the first few are checked for the hash: they may have thousands of keys.
    """
    most = limit + MOST_OTHERS
    for number, physical_offset in enumerate(candidates):
        if number == most:
            shown = key if len(key) <= _SHOWN_CHARS else f"{key[:_SHOWN_CHARS]}…"
            message = (
                f"More than {MOST_OTHERS} messages that do not have the key {shown} of topic "
                f"{topic} have its hash, so finding those that have it would take long; ask with "
                f"a limit above {most}, or read the topic."
            )
            raise RequestError(message)
        record = _indexed_record(
            reader, topic, key, physical_offset, with_body=False, is_checked=number < _CHECKED
        )
        if _has(record, topic, key):
            yield physical_offset


def _has(record: Record, topic: str, key: str) -> bool:
    """Tell whether a record is of a topic and has a key, unique or not."""
    return record.topic == topic and (
        record.property_map.get(UNIQ_KEY) == key or key in _keys(record)
    )


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
        if _has(record, topic, key) and (number < unique_limit or key in _keys(record)):
            yield record


def find_by_id(reader: StoreReader, topics: Sequence[str], message_id: str) -> Record:
    """Return the message with an offset id or a unique id; MessageNotFoundError if there is none.

    Copies of a message (half, delayed, retried) share its unique id: then the one in an ordinary
    topic is meant, and of several the first that was stored.
    """
    record = _at_offset_id(reader, message_id)
    if record is not None:
        return record
    is_short = len(message_id) <= layout.MAX_PROPERTIES_BYTES  # else no record can hold it
    for topic in reader.topics_with(sorted(topics, key=_plainness) if is_short else (), message_id):
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


def _indexed_record(
    reader: StoreReader,
    topic: str,
    key: str,
    physical_offset: int,
    *,
    with_body: bool = True,
    is_checked: bool = True,
) -> Record:
    """Return the record that an index entry points to.

    CorruptRecordError if none lies there or, with `is_checked`, if it has no key of that hash.
    """
    try:
        record = reader.log.record(physical_offset, with_body=with_body)
    except OffsetRangeError as error:
        raise _misled(reader, topic, key, physical_offset) from error
    if is_checked and not _has(record, topic, key):
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
