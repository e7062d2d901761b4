"""Fields of many records, located and checked: the NumPy twin of fields_kernels.py.

The kernel runs for batches of at least WORTH_ROWS records that all check. This one runs for
smaller batches, where Numba is missing, and for a batch in which the kernel met a record that does
not check: every error is found and worded here.

A batch is checked as a whole: sizes against the consume queue's, magic, lengths adding up to the
size, and, where the batch says which queue it belongs to, topic, queue id, queue offset and
physical offset. Body checksums are checked only on demand, for they cost a pass over the bodies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from broker_core.codec import layout
from broker_core.codec.hashing.crc import body_crcs
from broker_core.codec.layout import HEAD
from broker_core.codec.record import corrupt
from broker_core.codec.spans import Spans, fixed_width, gather_spans, integers
from broker_core.jit import arguments, availability
from broker_core.process_settings import keep_freed_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.frames import FrameBatch


@dataclass(frozen=True)
class RecordFields:
    """The fields of a batch's records, one element a record; made by `locate`.

    Bodies (as stored), topics and properties are spans of the batch's buffer. `head` are the fixed
    parts, read as if all were V1 with IPv4 hosts, or None if the kernel located the fields.
    `is_plain` says that all of them are. `topic` is the topic of all records, if they share one.
    """

    frames: FrameBatch
    head: NDArray[np.void] | None
    sys_flags: NDArray[np.int32]
    is_plain: bool
    bodies: Spans
    topics: Spans
    properties: Spans
    topic: str | None = None

    @property
    def data(self) -> NDArray[np.uint8]:
        """The batch's buffer."""
        return self.frames.buffer

    def integer(self, name: str) -> NDArray[np.integer]:
        """Return one integer field of every record, in native byte order."""
        kind, at = HEAD.fields[name][:2]  # type: ignore[index]  # HEAD is a structured dtype
        positions = self.frames.starts + at
        if self.is_plain or at < layout.BORN_HOST:
            if self.head is not None:
                return self.head[name].astype(kind.newbyteorder("="))
        else:
            positions += host_growth(self.sys_flags, born=True, store=at > layout.STORE_HOST)
        return integers(self.data, positions, kind)

    def hosts(self, name: str) -> list[tuple[NDArray[np.intp], NDArray[np.uint8]]]:
        """Return raw hosts ("bornHost" or "storeHost") as (rows, matrix) groups of one width."""
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


def locate(frames: FrameBatch) -> RecordFields:
    """Find all fields; CorruptRecordError naming the first record that does not check."""
    fields, bad = examine(frames)
    if bad is None and frames.verify:
        bad = first_bad_body(fields)
    if bad is not None:
        raise corrupt(frames, bad)
    return fields


def examine(frames: FrameBatch) -> tuple[RecordFields, int | None]:
    """Return (fields, number of the first bad record or None).

    The fields of the records before that one can be relied on.
    """
    keep_freed_memory()
    if availability.is_worth(len(frames)):
        fields = _examine_compiled(frames)
        if fields is not None:
            return fields, None
    bad = _first_outside(frames)
    if bad is not None:
        # Heads are gathered without looking, so none may lie outside the buffer.
        fields, earlier = examine(frames.slice(0, bad))
        return fields, bad if earlier is None else earlier
    # The smallest record is longer than these 88 bytes. Fields before the hosts are right for any
    # record, the others for plain ones only.
    head = fixed_width(frames.buffer, frames.starts, layout.BODY).view(HEAD)[:, 0]
    sys_flags = head["sysFlag"].astype(np.int32)
    is_v1 = head["magic"] == layout.MAGIC_V1
    is_plain = bool(is_v1.all()) and not bool((sys_flags & layout.HOSTS_V6_MASK).any())
    is_wrong = head["size"] != frames.sizes
    is_wrong |= ~is_v1 & (head["magic"] != layout.MAGIC_V2)
    is_wrong |= _misplaced(frames, head)
    bodies, topics, properties = _follow_lengths(frames, sys_flags, is_v1, is_wrong)
    topic = _check_topics(frames, topics, is_wrong)
    fields = RecordFields(frames, head, sys_flags, is_plain, bodies, topics, properties, topic)
    return fields, _first(is_wrong)


def _examine_compiled(frames: FrameBatch) -> RecordFields | None:
    """Examine a batch by the kernel; None if one of its records does not check."""
    from broker_core.codec.fields_kernels import NONE, locate_fields

    count = len(frames)
    queue = frames.queue
    topic = b"" if queue is None else queue.topic.encode()
    sys_flags = np.empty(count, dtype=np.int32)
    found = np.empty((6, count), dtype=np.int64)
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
    bodies, topics, properties = (Spans(frames.buffer, *found[row : row + 2]) for row in (0, 2, 4))
    name = None if queue is None else queue.topic
    if queue is None and is_one_topic:
        name = _text(topics.bytes_of(0))
    return RecordFields(frames, None, sys_flags, bool(is_plain), bodies, topics, properties, name)


def _follow_lengths(
    frames: FrameBatch,
    sys_flags: NDArray[np.int32],
    is_v1: NDArray[np.bool_],
    is_wrong: NDArray[np.bool_],
) -> tuple[Spans, Spans, Spans]:
    """Find bodies, topics and properties; mark records whose lengths do not add up as wrong.

    Fields behind the fixed part follow one another by their lengths, so each position depends on
    the lengths before it. Lengths are read only inside the record: for one that is wrong already,
    position 0 is read instead, and its spans mean nothing.
    """
    data, starts, sizes = frames.buffer, frames.starts, frames.sizes.astype(np.int64)
    growth = host_growth(sys_flags, born=True, store=True)
    topic_heads = np.where(is_v1, 1, 2)
    fixed = layout.BODY + growth + topic_heads + 2
    is_wrong |= sizes < fixed
    at = np.where(is_wrong, 0, starts + layout.BODY_LENGTH + growth)
    body_lengths = integers(data, at, ">i4").astype(np.int64)
    is_wrong |= (body_lengths < 0) | (body_lengths > sizes - fixed)
    body_lengths[is_wrong] = 0
    body_starts = starts + layout.BODY + growth
    at = np.where(is_wrong, 0, body_starts + body_lengths)
    topic_lengths = integers(data, at, ">i1").astype(np.int64)
    if not is_v1.all():
        topic_lengths = np.where(is_v1, topic_lengths, integers(data, at, ">i2"))
    topic_starts = at + topic_heads
    spare = sizes - fixed - body_lengths
    is_wrong |= (topic_lengths < 0) | (topic_lengths > spare)
    after = np.where(is_wrong, 0, topic_starts + topic_lengths)
    properties_lengths = integers(data, after, ">i2").astype(np.int64)
    is_wrong |= properties_lengths != spare - topic_lengths
    return (
        Spans(data, body_starts, body_lengths),
        Spans(data, topic_starts, topic_lengths),
        Spans(data, after + 2, properties_lengths),
    )


def _check_topics(frames: FrameBatch, topics: Spans, is_wrong: NDArray[np.bool_]) -> str | None:
    """Return the topic that all records carry, if they do.

    With a queue given, records of other topics are marked as wrong.
    """
    if frames.queue is not None:
        is_wrong |= _other_topics(topics, frames.queue.topic.encode(), is_wrong)
        return frames.queue.topic
    if not len(frames) or is_wrong.any():
        return None
    first = topics.bytes_of(0)
    return None if _other_topics(topics, first, is_wrong).any() else _text(first)


def _other_topics(topics: Spans, topic: bytes, is_wrong: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which records carry another topic than this one; the wrong ones are not looked at."""
    is_other: NDArray[np.bool_] = topics.lengths != len(topic)
    rows = np.flatnonzero(~is_other & ~is_wrong)
    if len(topic) and len(rows):
        texts = fixed_width(topics.data, topics.starts[rows], len(topic))
        is_other[rows] = (texts != np.frombuffer(topic, dtype=np.uint8)).any(axis=1)
    return is_other


def _first_outside(frames: FrameBatch) -> int | None:
    """Return the number of the first record that is outside the buffer or too small to be one."""
    if not len(frames):
        return None
    starts, sizes, limit = frames.starts, frames.sizes, len(frames.buffer)
    ends = starts + sizes  # wraps around for a start near 2**63, so starts are compared as well
    smallest = layout.MIN_RECORD_BYTES
    if sizes.min() >= smallest and starts.min() >= 0 and starts.max() <= limit >= ends.max():
        return None
    return _first((sizes < smallest) | (starts < 0) | (starts > limit) | (ends > limit))


def _misplaced(frames: FrameBatch, head: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell which records say that they are not the ones looked for."""
    is_misplaced = np.zeros(len(head), dtype=np.bool_)
    if frames.queue is not None:
        is_misplaced |= head["queueId"] != frames.queue.queue_id
        is_misplaced |= head["queueOffset"] != frames.offsets
    if frames.origin is not None:
        is_misplaced |= head["physicalOffset"] != frames.starts + frames.origin
    return is_misplaced


def first_bad_body(fields: RecordFields) -> int | None:
    """Return the number of the first record whose body does not have its checksum."""
    found = body_crcs(fields.bodies)
    return _first(found != fields.integer("bodyCrc"))


def first_bad_topic(fields: RecordFields) -> int | None:
    """Return the number of the first record whose topic is not UTF-8."""
    if fields.topic is not None:
        return None
    topics = gather_spans(fields.topics)
    try:
        topics.cast(pa.string())
    except pa.ArrowInvalid:
        return next(row for row, topic in enumerate(topics.to_pylist()) if _text(topic) is None)
    return None


def _text(raw: bytes) -> str | None:
    """Decode UTF-8; None for bytes that are not."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _first(mask: NDArray[np.bool_]) -> int | None:
    return int(mask.argmax()) if mask.any() else None


def host_growth(sys_flags: NDArray[np.int32], *, born: bool, store: bool) -> NDArray[np.int64]:
    """Return how many bytes IPv6 hosts push later fields back."""
    grown = np.zeros(len(sys_flags), dtype=np.int64)
    if born:
        grown += ((sys_flags & layout.SysFlag.BORN_HOST_V6) != 0) * layout.HOST_GROWTH
    if store:
        grown += ((sys_flags & layout.SysFlag.STORE_HOST_V6) != 0) * layout.HOST_GROWTH
    return grown
