"""Half messages: prepared, durable, and invisible until their transaction is decided.

A half message is an ordinary record of RMQ_SYS_TRANS_HALF_TOPIC, queue 0, with transaction bits 0.
Where it belongs is said by two properties, which we put last:

    ... TRAN_MSG 01 true 02 PGROUP 01 group 02 ... REAL_TOPIC 01 orders 02 REAL_QID 01 3 02

Its commit is a copy of it: to that topic and queue, with transaction bits 0x8, the half's own
physical offset as PREPAREDTRANSACTIONOFFSET, and its properties without those two (as 5.5 does it;
4.9 leaves them in). A rollback leaves nothing but an op message (op_messages.py). The last pair of
the two counts, so a delayed message can be half as well: its commit goes to the schedule topic and
still says, with the pair before, where it will go from there.

Half messages of other brokers, whose properties lie in any order, are understood too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.fields import RecordFields, locate
from broker_core.codec.hashing.java import java_hash
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.properties.search import find_values
from broker_core.codec.properties.text import format_properties, parse_properties
from broker_core.codec.property_names import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
)
from broker_core.codec.record_copy import Destinations, copy_records
from broker_core.codec.spans import Spans, fixed_width, gather_spans, spans_of
from broker_core.errors import CorruptRecordError
from broker_core.jit import arguments, kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.encode import EncodedRecords
    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.message_batch import MessageBatch

HALF_QUEUE = 0

_LAST_PLACE = re.compile(rb"\x02REAL_TOPIC\x01([^\x01\x02]+)\x02REAL_QID\x01[0-9]\x02\Z")
_ZERO = 0x30
_JAVA_BUCKETS = 128


def as_halves(messages: MessageBatch) -> MessageBatch:
    """The half messages of a few messages whose properties say that they are transactional.

    Batches go by half_blocks.py.
    """
    rows = zip(messages.topic_codes.tolist(), messages.queue_ids.tolist(), strict=True)
    places = [place_text(messages.topics[code], queue_id) for code, queue_id in rows]
    to_half = Destinations.to_queue(HALF_TOPIC, HALF_QUEUE, len(messages))
    return replace(
        messages,
        topics=to_half.topics,
        topic_codes=to_half.topic_codes,
        queue_ids=to_half.queue_ids,
        properties=pc.binary_join_element_wise(
            messages.property_texts,
            pa.array(places, type=pa.binary()),
            pa.scalar(b"", type=pa.binary()),
        ),
        sys_flags=messages.sys_flags & ~TRANSACTION_MASK,
    )


def place_text(topic: str, queue_id: int) -> bytes:
    r"""The properties that say where a half message belongs.

    >>> place_text("orders", 3)
    b'REAL_TOPIC\x01orders\x02REAL_QID\x013\x02'
    """
    return format_properties({REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)})


@dataclass(frozen=True)
class Halves:
    """Half messages read back: where each belongs, and its properties without saying so."""

    fields: RecordFields
    route: Destinations
    properties: Spans

    def __len__(self) -> int:
        return len(self.route)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Their offsets in the half queue."""
        return self.fields.frames.offsets

    @property
    def physical_offsets(self) -> NDArray[np.int64]:
        """Where they lie in the log."""
        return self.fields.integer("physicalOffset").astype(np.int64)

    def commit(self) -> EncodedRecords:
        """The records that make the messages visible."""
        return copy_records(
            self.fields,
            self.route,
            self.properties,
            transaction=SysFlag.COMMIT,
            prepared_offsets=self.physical_offsets,
        )


def read_halves(frames: FrameBatch) -> Halves:
    """Understand records of the half queue; CorruptRecordError for one that is no half message."""
    fields = locate(frames)
    alike = _alike(fields)
    if alike is not None:
        return alike
    topic, queue = _places(fields)
    return Halves(fields, _route(frames, topic, queue), _without_places(fields, topic, queue))


def _alike(fields: RecordFields) -> Halves | None:
    """Half messages whose texts end alike, but for the digit of the queue; None if they do not.

    What one task of a sink prepares for one topic: no need to look for anything in its texts.
    """
    texts = fields.properties
    buffer, starts, lengths = texts
    if not len(starts):
        return None
    first = buffer[int(starts[0]) : int(starts[0] + lengths[0])].tobytes()
    found = _LAST_PLACE.search(first)
    if found is None:
        return None
    queue_ids = _last_digits(texts, found[0])
    if queue_ids is None:
        return None
    route = Destinations(
        (found[1].decode("utf-8", "replace"),), np.zeros_like(queue_ids), queue_ids
    )
    # The separator before the place stays with the text it ends.
    return Halves(fields, route, Spans(buffer, starts, lengths - (len(found[0]) - 1)))


def _last_digits(texts: Spans, ending: bytes) -> NDArray[np.int32] | None:
    """The digit before the last byte of each text; None unless all end like this but for it."""
    width, count = len(ending), len(texts.starts)
    if kernels.is_worth(count):
        from broker_core.broker.transactions.half_kernels import read_last_digits

        found = np.empty(count, dtype=np.int32)
        like = np.frombuffer(ending, dtype=np.uint8)
        return found if read_last_digits(arguments.spans(*texts), like, found) else None
    if int(texts.lengths.min()) < width:
        return None
    tails = fixed_width(texts.data, texts.ends - width, width)
    differs = (tails != tails[0]).any(axis=0)
    digits = tails[:, width - 2]
    differs[width - 2] = not bool(((digits >= _ZERO) & (digits <= _ZERO + 9)).all())
    return None if differs.any() else digits.astype(np.int32) - np.int32(_ZERO)


def real_route(fields: RecordFields) -> Destinations:
    """Where messages that lie elsewhere for a while belong; CorruptRecordError if one is lost."""
    return _route(fields.frames, *_places(fields))


def _places(fields: RecordFields) -> list[Spans]:
    """Where each record says its topic and its queue."""
    topic, queue = find_values(fields.properties, [REAL_TOPIC, REAL_QUEUE_ID])
    lacks = (topic.lengths == 0) | (queue.lengths == 0)
    if lacks.any():
        row, what = int(lacks.argmax()), f"without {REAL_TOPIC} or {REAL_QUEUE_ID}"
        raise _no_place(fields.frames, row, what)
    return [topic, queue]


def _route(frames: FrameBatch, topic: Spans, queue: Spans) -> Destinations:
    names = pc.dictionary_encode(gather_spans(topic))
    numbers = pc.dictionary_encode(gather_spans(queue))
    queue_ids = np.array([_queue_id(frames, text) for text in numbers.dictionary.to_pylist()])
    return Destinations(
        tuple(text.decode("utf-8", "replace") for text in names.dictionary.to_pylist()),
        names.indices.to_numpy().astype(np.int32),
        queue_ids.astype(np.int32)[numbers.indices.to_numpy()],
    )


def put_back(frames: FrameBatch, changes: Sequence[Mapping[str, str]]) -> EncodedRecords:
    """The same half messages once more, each with some properties added or changed.

    What RocketMQ does with one that it asks about: the copy is the half message from then on.
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
    """Half messages as they lie in the discard topic: all that was known of them is kept."""
    fields = locate(frames)
    return copy_records(
        fields,
        Destinations.to_queue(DISCARD_TOPIC, 0, len(frames)),
        fields.properties,
        transaction=0,
    )


def _queue_id(frames: FrameBatch, text: bytes) -> int:
    if not text.isdigit() or len(text) > 9:
        raise _no_place(frames, 0, f"whose {REAL_QUEUE_ID} is {text!r}")
    return int(text)


def _no_place(frames: FrameBatch, row: int, what: str) -> CorruptRecordError:
    place = int(frames.starts[row]) + (frames.origin or 0)
    message = (
        f"A half or delayed message {what} lies at or after physical offset {place} in "
        f"{frames.name or 'a received batch'}: nobody knows where it belongs. Run "
        "`rocketmq-broker check` on the store."
    )
    return CorruptRecordError(message, frames.name, place)


def _without_places(fields: RecordFields, topic: Spans, queue: Spans) -> Spans:
    """Properties texts without the two entries, wherever they are."""
    buffer, starts, _ = fields.properties
    ends = fields.properties.ends
    topic_begin, topic_end = _entry(topic, REAL_TOPIC, ends)
    queue_begin, queue_end = _entry(queue, REAL_QUEUE_ID, ends)
    if bool((topic_end == queue_begin).all()) and bool((queue_end == ends).all()):
        return Spans(buffer, starts, topic_begin - starts)
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


def _entry(
    value: Spans, name: str, ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where `name 01 value 02` begins and ends; the last 02 of a text may be missing."""
    begin = value.starts - len(name) - len(NAME_VALUE_SEPARATOR)
    end = value.starts + value.lengths + len(PROPERTY_SEPARATOR)
    return begin, np.minimum(end, ends)


def changed_properties(text: bytes, changes: Mapping[str, str]) -> bytes:
    r"""A properties text with entries added or replaced, in the order in which Java writes it.

    Java's map has 128 buckets when it was parsed from text, and writes bucket by bucket.

    >>> changed_properties(b"WAIT\x01true\x02REAL_TOPIC\x01t\x02", {"TRANSACTION_CHECK_TIMES": "1"})
    b'WAIT\x01true\x02TRANSACTION_CHECK_TIMES\x011\x02REAL_TOPIC\x01t\x02'
    """
    properties = parse_properties(text) | dict(changes)
    buckets = _JAVA_BUCKETS
    while len(properties) > buckets * 3 // 4:
        buckets *= 2
    ordered = sorted(properties, key=lambda name: _bucket(name, buckets))
    return format_properties({name: properties[name] for name in ordered})


def _bucket(name: str, buckets: int) -> int:
    spread = java_hash(name) & 0xFFFFFFFF
    return (spread ^ (spread >> 16)) & (buckets - 1)
