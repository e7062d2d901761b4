"""Half messages: prepared, durable, and invisible until their transaction is committed.

A half message is an ordinary record of RMQ_SYS_TRANS_HALF_TOPIC, queue 0, with transaction bits 0.
Its destination is said by two properties, which we put last:

    ... TRAN_MSG 01 true 02 PGROUP 01 group 02 ... REAL_TOPIC 01 orders 02 REAL_QID 01 3 02

Its commit is a copy of it: to that topic and queue, with transaction bits 0x8, the half's own
physical offset as PREPAREDTRANSACTIONOFFSET, and its properties without those two (as 5.5 does it;
4.9 leaves them in). A rollback leaves nothing but an op message (op.py). The last pair of the two
counts, so a delayed message can be half as well: its commit goes to the schedule topic and still
says, with the pair before, where it will go from there.

Half messages hold one message each here, and in stores written before half blocks. What a sink
prepares now goes by half_blocks.py; both are unpacked by unpack.py.

A half message may be copied as one: check-back puts it back with the count of its checks, or to
the discard topic, and copies get a checksum if the store wants one. The room for that is kept when
it is prepared (`require_room`), so that it never becomes too long to be settled.

A user who prepared a single message is named by the property PREPARED_BY, before those two; its
copy does not have it. Half messages of other brokers, whose properties lie in any order, are
understood too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec import layout
from broker_core.codec.encode import record_sizes
from broker_core.codec.fields import RecordFields, locate
from broker_core.codec.hashing.java import java_hash
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.message_batch import Destinations
from broker_core.codec.properties.checksum import ROOM_BYTES
from broker_core.codec.properties.search import find_values
from broker_core.codec.properties.text import format_properties, join_entries, parse_properties
from broker_core.codec.property_names import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    NAME_VALUE_SEPARATOR,
    PREPARED_BY,
    PRODUCER_GROUP,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
)
from broker_core.codec.record_copy import copy_records
from broker_core.codec.spans import Spans, gather_spans, spans_of
from broker_core.errors import CorruptRecordError, IllegalMessageError
from broker_core.store.log.writer import require_fitting
from broker_core.types import HalfMessage, LogicalOffset, PhysicalOffset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.encode import EncodedRecords
    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.codec.record import Record

HALF_QUEUE = 0
_GROWTH_BYTES = len(format_properties({TRANSACTION_CHECK_TIMES: "2147483647"})) + ROOM_BYTES
"""Bytes of properties that the broker may add: the count of checks and a checksum."""
MAX_HALF_PROPERTIES_BYTES = layout.MAX_PROPERTIES_BYTES - _GROWTH_BYTES

_JAVA_BUCKETS = 128


def as_halves(messages: MessageBatch, user: str = "") -> MessageBatch:
    """Return the half messages of a few messages whose properties say they are transactional.

    `user` prepared them. Batches go by half_blocks.py. IllegalMessageError for properties that
    leave no room for what the broker may add.
    """
    by = format_properties({PREPARED_BY: user}) if user else b""
    rows = zip(messages.topic_codes.tolist(), messages.queue_ids.tolist(), strict=True)
    texts = [by + destination_text(messages.topics[code], queue_id) for code, queue_id in rows]
    properties = pc.binary_join_element_wise(
        messages.property_texts,
        pa.array(texts, type=pa.binary()),
        pa.scalar(b"", type=pa.binary()),
    )
    for row, length in enumerate(pc.binary_length(properties).to_pylist()):
        require_room(length, messages.topics[int(messages.topic_codes[row])], row)
    to_half = Destinations.to_queue(HALF_TOPIC, HALF_QUEUE, len(messages))
    return replace(
        messages,
        topics=to_half.topics,
        topic_codes=to_half.topic_codes,
        queue_ids=to_half.queue_ids,
        properties=properties,
        sys_flags=messages.sys_flags & ~TRANSACTION_MASK,
    )


def require_room(length: int, topic: str, row: int) -> None:
    """Raise IllegalMessageError for a half message with too many bytes of properties."""
    if length > MAX_HALF_PROPERTIES_BYTES:
        message = (
            f"Message {row} of this batch for topic '{topic}' has {length} bytes of properties "
            f"as a half message, the limit is {MAX_HALF_PROPERTIES_BYTES}. Nothing was written."
        )
        raise IllegalMessageError(message)


def require_segment_room(halves: MessageBatch, file_bytes: int) -> None:
    """Raise IllegalMessageError for a half message that a log file can't hold once it has grown."""
    growth = _GROWTH_BYTES + max(0, len(DISCARD_TOPIC) - len(HALF_TOPIC))
    require_fitting(int(record_sizes(halves).max(initial=0)) + growth, file_bytes)


def destination_text(topic: str, queue_id: int) -> bytes:
    r"""Return the properties that say where a half message belongs.

    >>> destination_text("orders", 3)
    b'REAL_TOPIC\x01orders\x02REAL_QID\x013\x02'
    """
    return format_properties({REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)})


@dataclass(frozen=True)
class Halves:
    """Half messages read back: the destination of each, and its properties without that."""

    fields: RecordFields
    destinations: Destinations
    properties: Spans

    def __len__(self) -> int:
        return len(self.destinations)

    @property
    def physical_offsets(self) -> NDArray[np.int64]:
        """Their physical offsets."""
        return self.fields.integer("physicalOffset").astype(np.int64)

    def commit(self) -> EncodedRecords:
        """Return the records that make the messages visible."""
        return copy_records(
            self.fields,
            self.destinations,
            self.properties,
            transaction=SysFlag.COMMIT,
            prepared_offsets=self.physical_offsets,
        )


def read_halves(frames: FrameBatch) -> Halves:
    """Read records of the half queue; CorruptRecordError for one that is no half message."""
    fields = locate(frames)
    topic, queue = _destination_values(fields)
    destinations = _destinations(frames, topic, queue)
    properties = _without_user(fields, _without_destination(fields, topic, queue))
    return Halves(fields, destinations, properties)


def _destination_values(fields: RecordFields) -> tuple[Spans, Spans]:
    """Return the values of REAL_TOPIC and REAL_QID in each record's properties."""
    topic, queue = find_values(fields.properties, [REAL_TOPIC, REAL_QUEUE_ID])
    lacks = (topic.lengths == 0) | (queue.lengths == 0)
    if lacks.any():
        row, what = int(lacks.argmax()), f"without {REAL_TOPIC} or {REAL_QUEUE_ID}"
        raise _no_destination(fields.frames, row, what)
    return topic, queue


def _destinations(frames: FrameBatch, topic: Spans, queue: Spans) -> Destinations:
    """Return the destinations that such values say; CorruptRecordError for an odd queue id."""
    # Coded first: a batch has few topics and queues, so few texts are decoded.
    names = pc.dictionary_encode(gather_spans(topic))
    numbers = pc.dictionary_encode(gather_spans(queue))
    queue_ids = np.array([_queue_id(frames, text) for text in numbers.dictionary.to_pylist()])
    return Destinations(
        tuple(text.decode("utf-8", "replace") for text in names.dictionary.to_pylist()),
        names.indices.to_numpy().astype(np.int32),
        queue_ids.astype(np.int32)[numbers.indices.to_numpy()],
    )


def handle_of(record: Record) -> HalfMessage | None:
    """Return the handle of a half message that was read back from the log; None if it is none."""
    properties = record.property_map
    try:
        return HalfMessage(
            properties[REAL_TOPIC],
            int(properties[REAL_QUEUE_ID]),
            record.msg_id,
            properties[PRODUCER_GROUP],
            LogicalOffset(record.queue_offset),
            PhysicalOffset(record.physical_offset),
        )
    except (KeyError, ValueError):
        return None


def put_back(frames: FrameBatch, changes: Sequence[Mapping[str, str]]) -> EncodedRecords:
    """Return copies of half messages for the half queue, with some properties added or changed.

    RocketMQ does this with one that it asks about: the copy is the half message from then on.
    """
    fields = locate(frames)
    texts = gather_spans(fields.properties).to_pylist()
    changed = [changed_properties(text, new) for text, new in zip(texts, changes, strict=True)]
    return copy_records(
        fields,
        Destinations.to_queue(HALF_TOPIC, HALF_QUEUE, len(frames)),
        spans_of(pa.array(changed, type=pa.binary())),
        transaction=0,
        forgets_retries=True,
    )


def give_up(frames: FrameBatch) -> EncodedRecords:
    """Return copies of half messages for the discard topic, with all their properties."""
    fields = locate(frames)
    return copy_records(
        fields,
        Destinations.to_queue(DISCARD_TOPIC, 0, len(frames)),
        fields.properties,
        transaction=0,
    )


def _queue_id(frames: FrameBatch, text: bytes) -> int:
    if not text.isdigit() or len(text) > 9:
        raise _no_destination(frames, 0, f"whose {REAL_QUEUE_ID} is {text!r}")
    return int(text)


def _no_destination(frames: FrameBatch, row: int, what: str) -> CorruptRecordError:
    physical_offset = int(frames.starts[row]) + (frames.origin or 0)
    message = (
        f"A half or delayed message {what} lies at or after physical offset {physical_offset} in "
        f"{frames.name or 'a received batch'}: its topic and queue are unknown. Run "
        "`rocketmq-broker check` on the store."
    )
    return CorruptRecordError(message, frames.name, physical_offset)


def _without_destination(fields: RecordFields, topic: Spans, queue: Spans) -> Spans:
    """Return properties texts without the two entries, wherever they are."""
    buffer, starts, _ = fields.properties
    ends = fields.properties.ends
    topic_begin, topic_end = _entry(topic, REAL_TOPIC, ends)
    queue_begin, queue_end = _entry(queue, REAL_QUEUE_ID, ends)
    if bool((topic_end == queue_begin).all()) and bool((queue_end == ends).all()):
        # Ours come last, so cutting the texts short is enough.
        return Spans(buffer, starts, topic_begin - starts)
    # Java writes a map's entries in the order of its buckets: anywhere, either first.
    is_topic_first = topic_begin < queue_begin
    first_begin = np.where(is_topic_first, topic_begin, queue_begin)
    first_end = np.where(is_topic_first, topic_end, queue_end)
    second_begin = np.where(is_topic_first, queue_begin, topic_begin)
    second_end = np.where(is_topic_first, queue_end, topic_end)
    joined = pc.binary_join_element_wise(
        gather_spans(Spans(buffer, starts, first_begin - starts)),
        gather_spans(Spans(buffer, first_end, second_begin - first_end)),
        gather_spans(Spans(buffer, second_end, ends - second_end)),
        pa.scalar(b"", type=pa.binary()),
    )
    return spans_of(joined)


def _without_user(fields: RecordFields, properties: Spans) -> Spans:
    """Return properties texts without PREPARED_BY: readers of a topic need not know the user."""
    (named,) = find_values(fields.properties, [PREPARED_BY])
    if not named.lengths.any():
        return properties
    # Only single messages have it, so these are few.
    texts = gather_spans(properties).to_pylist()
    mark, end = (PREPARED_BY + NAME_VALUE_SEPARATOR).encode(), PROPERTY_SEPARATOR.encode()
    for row in np.flatnonzero(named.lengths).tolist():
        entries = texts[row].split(end)
        texts[row] = end.join(entry for entry in entries if not entry.startswith(mark))
    return spans_of(pa.array(texts, type=pa.binary()))


def _entry(
    value: Spans, name: str, ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions where `name 01 value 02` begins and ends.

    The last 02 of a text may be missing.
    """
    begin = value.starts - len(name) - len(NAME_VALUE_SEPARATOR)
    end = value.starts + value.lengths + len(PROPERTY_SEPARATOR)
    return begin, np.minimum(end, ends)


def changed_properties(text: bytes, changes: Mapping[str, str]) -> bytes:
    r"""Return a properties text with entries added or replaced, in the order Java writes it.

    Java's map has 128 buckets when it was parsed from text, and writes bucket by bucket.

    >>> changed_properties(b"WAIT\x01true\x02REAL_TOPIC\x01t\x02", {"TRANSACTION_CHECK_TIMES": "1"})
    b'WAIT\x01true\x02TRANSACTION_CHECK_TIMES\x011\x02REAL_TOPIC\x01t\x02'
    """
    # Byte for byte as Apache's broker puts a half message back, so that either may do it.
    properties = parse_properties(text) | dict(changes)
    buckets = _JAVA_BUCKETS
    while len(properties) > buckets * 3 // 4:
        buckets *= 2
    ordered = sorted(properties, key=lambda name: _bucket(name, buckets))
    return join_entries({name: properties[name] for name in ordered})


def _bucket(name: str, buckets: int) -> int:
    spread = java_hash(name) & 0xFFFFFFFF
    return (spread ^ (spread >> 16)) & (buckets - 1)
