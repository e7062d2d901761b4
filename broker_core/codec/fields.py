"""Where the fields of many records lie, found and checked without a loop.

Almost all records are V1 with IPv4 hosts, so their fixed parts have one shape; a batch of only
such records takes the fast path. Any other batch computes each record's own positions.

A batch is checked as a whole: sizes against the consume queue's, magic, lengths adding up to the
size, and, where the batch says which queue it belongs to, topic, queue id, queue offset and
physical offset. Body checksums are checked only on demand, for they cost a pass over the bodies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from broker_core.codec import layout
from broker_core.codec.corruption import corrupt
from broker_core.codec.hashing.crc import body_crcs
from broker_core.codec.header_dtype import HEAD
from broker_core.codec.positions import (
    Positions,
    Tail,
    any_topic,
    first_topic,
    host_growth,
    one_topic,
    other_topics,
    plain_bodies,
)
from broker_core.codec.spans import Spans, fixed_width, gather_spans, integers
from broker_core.jit import arguments, kernels
from broker_core.process_settings import keep_freed_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.frames import FrameBatch

_EARLY_BYTES = 256 << 20
"""Bodies of batches up to this size may be copied before all is checked."""


@dataclass(frozen=True)
class RecordFields:
    """Positions in the batch's buffer, one element a record; made by `locate`.

    Bodies and topics are spans of the batch's buffer; properties are spans of it, or of a copy of
    all tails. `head` are the fixed parts, where they were copied together. `topic` is the one that
    all records carry, where they were found to.
    """

    frames: FrameBatch
    head: NDArray[np.void] | None
    sys_flags: NDArray[np.int32]
    is_plain: bool
    bodies: Spans
    topics: Spans
    properties: Spans
    topic: str | None = None
    stored_bodies: pa.Array | None = None

    @property
    def data(self) -> NDArray[np.uint8]:
        """The batch's buffer."""
        return self.frames.buffer

    def integer(self, name: str) -> NDArray[np.integer]:
        """One integer field of every record, in native byte order."""
        kind, at = HEAD.fields[name][:2]  # type: ignore[index]  # HEAD is a structured dtype
        places = self.frames.starts + at
        if self.is_plain or at < layout.BORN_HOST:
            if self.head is not None:
                return self.head[name].astype(kind.newbyteorder("="))
        else:
            places += host_growth(self.sys_flags, born=True, store=at > layout.STORE_HOST)
        return integers(self.data, places, kind)

    def hosts(self, name: str) -> list[tuple[NDArray[np.intp], NDArray[np.uint8]]]:
        """Raw hosts ("bornHost" or "storeHost") as (rows, matrix) groups of one width each."""
        is_born = name == "bornHost"
        bit = layout.SysFlag.BORN_HOST_V6 if is_born else layout.SysFlag.STORE_HOST_V6
        at = self.frames.starts + (layout.BORN_HOST if is_born else layout.STORE_HOST)
        at += host_growth(self.sys_flags, born=not is_born, store=False)
        is_wide = (self.sys_flags & bit) != 0
        groups = [
            (np.flatnonzero(~is_wide), layout.HOST_V4),
            (np.flatnonzero(is_wide), layout.HOST_V6),
        ]
        return [
            (rows, fixed_width(self.data, at[rows], width)) for rows, width in groups if len(rows)
        ]


def locate(frames: FrameBatch, *, texts: bool = False, bodies: bool = False) -> RecordFields:
    """Find all fields; CorruptRecordError naming the first record that does not check.

    Two hints about what is going to be read, for memory is what this costs: `texts` lets
    properties be copied together (`fields.properties` are spans of the copy then), `bodies`
    lets the stored bodies be copied on the way, between what lies before and behind them.
    """
    fields, bad = examine(frames, texts=texts, bodies=bodies)
    if bad is None and frames.verify:
        bad = first_bad_body(fields)
    if bad is not None:
        raise corrupt(frames, bad)
    return fields


def locate_properties(frames: FrameBatch) -> Spans:
    """Find the properties only, for a filter: as little of each record is touched as possible.

    A record whose topic and lengths fit its size is taken at its word; whoever reads more of it
    calls `locate`, which checks the rest. CorruptRecordError as there for one that does not fit.
    """
    is_small = not kernels.is_worth(len(frames))
    if is_small and frames.queue is not None and len(frames):
        found = _properties_of_queue(frames)
        if found is not None:
            return found
    fields = locate(frames, texts=True)
    return fields.properties


def _properties_of_queue(frames: FrameBatch) -> Spans | None:
    """Look for V1/IPv4 records of the queue's topic; None if not all of them are such."""
    assert frames.queue is not None
    topic = frames.queue.topic.encode()
    if len(topic) > layout.MAX_TOPIC_V1 or _first_outside(frames) is not None:
        return None
    records = Spans(frames.buffer, frames.starts, frames.sizes.astype(np.int64))
    lengths = integers(frames.buffer, frames.starts + layout.BODY_LENGTH, ">i4").astype(np.int64)
    body_starts, lengths, is_outside = plain_bodies(records, lengths, topic)
    if is_outside.any():
        return None
    tail = one_topic(records, body_starts, lengths, topic, gathered=True)
    if tail.is_wrong.any():
        return None
    positions = tail.positions
    return Spans(tail.texts, positions.properties_starts, positions.properties_lengths)


def examine(
    frames: FrameBatch, *, texts: bool = False, bodies: bool = False
) -> tuple[RecordFields, int | None]:
    """(fields, number of the first bad record or None); fields cover the records before it."""
    keep_freed_memory()
    if kernels.is_worth(len(frames)):
        located = _located(frames)
        if located is not None:
            return located, None
    bad = _first_outside(frames)
    if bad is not None:
        fields, earlier = examine(frames.slice(0, bad))
        return fields, bad if earlier is None else earlier
    head = fixed_width(frames.buffer, frames.starts, layout.BODY).view(HEAD)[:, 0]
    records = Spans(frames.buffer, frames.starts, frames.sizes.astype(np.int64))
    sys_flags = head["sysFlag"].astype(np.int32)
    is_v1 = head["magic"] == layout.MAGIC_V1
    is_plain = bool(is_v1.all()) and not bool((sys_flags & layout.HOSTS_V6_MASK).any())
    is_broken = head["size"] != frames.sizes
    is_broken |= _misplaced(frames, head)
    found = _of_one_topic(frames, records, head, texts, bodies) if is_plain and len(head) else None
    if found is None:
        is_broken |= ~is_v1 & (head["magic"] != layout.MAGIC_V2)
        found = _of_any_topic(frames, records, sys_flags, is_v1)
    is_broken |= found.tail.is_wrong
    fields = RecordFields(
        frames,
        head,
        sys_flags,
        is_plain,
        *found.tail.positions.spans(frames.buffer, found.tail.texts),
        found.topic,
        found.bodies,
    )
    return fields, _first(is_broken)


def _located(frames: FrameBatch) -> RecordFields | None:
    """What a kernel finds in a batch; None if one of its records does not check."""
    from broker_core.codec.fields_kernels import NONE, locate_fields

    count = len(frames)
    queue = frames.queue
    topic = b"" if queue is None else queue.topic.encode()
    sys_flags = np.empty(count, dtype=np.int32)
    found = np.empty((len(Positions._fields), count), dtype=np.int64)
    checked, is_plain, is_one_topic = locate_fields(
        arguments.octets(frames.buffer),
        arguments.longs(frames.starts),
        arguments.ints(frames.sizes),
        arguments.longs(frames.offsets),
        NONE if queue is None else queue.queue_id,
        NONE if frames.origin is None else frames.origin,
        (np.frombuffer(topic, dtype=np.uint8), NONE if queue is None else len(topic)),
        sys_flags,
        found,
    )
    if checked < count:
        return None
    positions = Positions(*found)
    name = None if queue is None else queue.topic
    if queue is None and is_one_topic:
        first = int(positions.topic_starts[0])
        name = _text(frames.buffer[first : first + int(positions.topic_lengths[0])].tobytes())
    spans = positions.spans(frames.buffer, frames.buffer)
    return RecordFields(frames, None, sys_flags, bool(is_plain), *spans, name)


class _Found(NamedTuple):
    tail: Tail
    topic: str | None = None
    bodies: pa.Array | None = None


def _of_one_topic(
    frames: FrameBatch, records: Spans, head: NDArray[np.void], texts: bool, bodies: bool
) -> _Found | None:
    """Look into plain records that carry the queue's topic, or all of them the first one's.

    None if no queue is given and they do not.
    """
    topic = frames.queue.topic if frames.queue is not None else first_topic(records)
    raw = topic.encode() if topic is not None else b""
    if topic is None or len(raw) > layout.MAX_TOPIC_V1:
        return None
    lengths = head["bodyLength"].astype(np.int64)
    body_starts, lengths, is_outside = plain_bodies(records, lengths, raw)
    is_early = bodies and frames.size_bytes <= _EARLY_BYTES
    stored = gather_spans(Spans(records.data, body_starts, lengths)) if is_early else None
    tail = one_topic(records, body_starts, lengths, raw, gathered=texts)
    np.logical_or(tail.is_wrong, is_outside, out=tail.is_wrong)
    if frames.queue is None and tail.is_wrong.any():
        return None
    return _Found(tail, topic, stored)


def _of_any_topic(
    frames: FrameBatch,
    records: Spans,
    sys_flags: NDArray[np.int32],
    is_v1: NDArray[np.bool_],
) -> _Found:
    """Look into records of any shape; with a queue given, those of other topics are wrong."""
    positions, is_wrong = any_topic(records, sys_flags, is_v1)
    if frames.queue is not None:
        topic = frames.queue.topic.encode()
        is_wrong |= other_topics(records.data, positions, is_wrong, topic)
    return _Found(Tail(positions, is_wrong, records.data))


def _first_outside(frames: FrameBatch) -> int | None:
    """Number of the first record that is not inside the buffer or is too small to be one."""
    if not len(frames):
        return None
    starts, sizes, limit = frames.starts, frames.sizes, len(frames.buffer)
    ends = starts + sizes
    smallest = layout.MIN_RECORD_BYTES
    if sizes.min() >= smallest and starts.min() >= 0 and starts.max() <= limit >= ends.max():
        return None
    return _first((sizes < smallest) | (starts < 0) | (starts > limit) | (ends > limit))


def _misplaced(frames: FrameBatch, head: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which records say that they are not the ones looked for."""
    is_misplaced = np.zeros(len(head), dtype=np.bool_)
    if frames.queue is not None:
        is_misplaced |= head["queueId"] != frames.queue.queue_id
        is_misplaced |= head["queueOffset"] != frames.offsets
    if frames.origin is not None:
        is_misplaced |= head["physicalOffset"] != frames.starts + frames.origin
    return is_misplaced


def first_bad_body(fields: RecordFields) -> int | None:
    """Number of the first record whose body does not have its checksum."""
    found = body_crcs(fields.bodies)
    return _first(found != fields.integer("bodyCrc"))


def first_bad_topic(fields: RecordFields) -> int | None:
    """Number of the first record whose topic is not text."""
    if fields.topic is not None:
        return None
    topics = gather_spans(fields.topics)
    try:
        topics.cast(pa.string())
    except pa.ArrowInvalid:
        return next(row for row, topic in enumerate(topics.to_pylist()) if _text(topic) is None)
    return None


def _text(raw: bytes) -> str | None:
    """What bytes say, if they are text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _first(mask: NDArray[np.bool_]) -> int | None:
    return int(mask.argmax()) if mask.any() else None
