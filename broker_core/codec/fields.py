"""Where the fields of many records lie, found and checked without a loop.

Almost all records are V1 with IPv4 hosts, so their first 88 bytes have one shape; a batch of only
such records takes the fast path. Any other batch computes each record's own positions.

A batch is checked as a whole: sizes against the consume queue's, magic, lengths adding up to the
size, and, where the batch says which queue it belongs to, topic, queue id, queue offset and
physical offset. Body checksums are checked only on demand, for they cost a pass over the bodies.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec import layout
from broker_core.codec.gather import fixed_width, integers
from broker_core.codec.record import decode_record
from broker_core.errors import CorruptRecordError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.frames import FrameBatch

HEAD = np.dtype(
    {
        "names": [
            "size",
            "magic",
            "bodyCrc",
            "queueId",
            "flag",
            "queueOffset",
            "physicalOffset",
            "sysFlag",
            "bornTimestamp",
            "storeTimestamp",
            "reconsumeTimes",
            "preparedTransactionOffset",
            "bodyLength",
        ],
        "formats": ">i4 >u4 >i4 >i4 >i4 >i8 >i8 >i4 >i8 >i8 >i4 >i8 >i4".split(),
        "offsets": [
            layout.TOTAL_SIZE,
            layout.MAGIC,
            layout.BODY_CRC,
            layout.QUEUE_ID,
            layout.FLAG,
            layout.QUEUE_OFFSET,
            layout.PHYSICAL_OFFSET,
            layout.SYS_FLAG,
            layout.BORN_TIMESTAMP,
            layout.STORE_TIMESTAMP,
            layout.RECONSUME_TIMES,
            layout.PREPARED_OFFSET,
            layout.BODY_LENGTH,
        ],
        "itemsize": layout.BODY,
    }
)
"""The fixed part of an IPv4/IPv4 record, as layout.py states it."""

_AFTER_BORN_HOST = frozenset({"storeTimestamp"})
_AFTER_BOTH_HOSTS = frozenset({"reconsumeTimes", "preparedTransactionOffset", "bodyLength"})


@dataclass(frozen=True)
class RecordFields:
    """Positions in the batch's buffer, one element a record; made by `locate`."""

    frames: FrameBatch
    head: NDArray[np.void]
    sys_flags: NDArray[np.int32]
    is_plain: bool
    body_starts: NDArray[np.int64]
    body_lengths: NDArray[np.int64]
    topic_starts: NDArray[np.int64]
    topic_lengths: NDArray[np.int64]
    properties_starts: NDArray[np.int64]
    properties_lengths: NDArray[np.int64]

    def integer(self, name: str) -> NDArray[np.integer]:
        """One integer field of every record, in native byte order."""
        if self.is_plain or not (name in _AFTER_BORN_HOST or name in _AFTER_BOTH_HOSTS):
            column = self.head[name]
            return column.astype(column.dtype.newbyteorder("="))
        kind, at = HEAD.fields[name][:2]  # type: ignore[index]  # HEAD is a structured dtype
        both = name in _AFTER_BOTH_HOSTS
        shift = _growth(self.sys_flags, born=True, store=both)
        return integers(self.frames.buffer, self.frames.starts + at + shift, kind)

    def hosts(self, name: str) -> list[tuple[NDArray[np.intp], NDArray[np.uint8]]]:
        """Raw hosts ("bornHost" or "storeHost") as (rows, matrix) groups of one width each."""
        starts = self.frames.starts
        is_born = name == "bornHost"
        bit = layout.SysFlag.BORN_HOST_V6 if is_born else layout.SysFlag.STORE_HOST_V6
        at = starts + (layout.BORN_HOST if is_born else layout.STORE_HOST)
        if not is_born:
            at = at + _growth(self.sys_flags, born=True, store=False)
        wide = (self.sys_flags & bit) != 0
        groups = []
        for rows, width in (
            (np.flatnonzero(~wide), layout.HOST_V4),
            (np.flatnonzero(wide), layout.HOST_V6),
        ):
            if len(rows):
                groups.append((rows, fixed_width(self.frames.buffer, at[rows], width)))
        return groups


def _growth(sys_flags: NDArray[np.int32], *, born: bool, store: bool) -> NDArray[np.int64]:
    """How many bytes IPv6 hosts push later fields back."""
    grown = np.zeros(len(sys_flags), dtype=np.int64)
    if born:
        grown += ((sys_flags & layout.SysFlag.BORN_HOST_V6) != 0) * layout.HOST_GROWTH
    if store:
        grown += ((sys_flags & layout.SysFlag.STORE_HOST_V6) != 0) * layout.HOST_GROWTH
    return grown


def locate(frames: FrameBatch) -> RecordFields:
    """Find all fields; CorruptRecordError naming the first record that does not check."""
    fields, bad = examine(frames)
    if bad is not None:
        raise corrupt(frames, bad)
    if frames.verify:
        wrong = first_bad_body(fields)
        if wrong is not None:
            raise corrupt(frames, wrong)
    return fields


def examine(frames: FrameBatch) -> tuple[RecordFields, int | None]:
    """(fields, number of the first bad record or None); fields cover the records before it."""
    buffer, starts, sizes = frames.buffer, frames.starts, frames.sizes
    fits = (sizes >= layout.MIN_RECORD_BYTES) & (starts >= 0) & (starts + sizes <= len(buffer))
    bad = _first(~fits)
    if bad is not None:
        fields, earlier = examine(frames.slice(0, bad))
        return fields, bad if earlier is None else earlier
    head = fixed_width(buffer, starts, layout.BODY).view(HEAD)[:, 0]
    magic = head["magic"]
    is_v1 = magic == layout.MAGIC_V1
    broken = (head["size"] != sizes) | ~(is_v1 | (magic == layout.MAGIC_V2))
    sys_flags = head["sysFlag"].astype(np.int32)
    is_plain = bool(is_v1.all()) and not bool((sys_flags & layout.HOSTS_V6_MASK).any())
    locate_fields = _plain if is_plain else _shifted
    positions, wrong = locate_fields(frames, head, sys_flags, is_v1)
    broken |= wrong
    if frames.queue is not None:
        broken |= head["queueId"] != frames.queue.queue_id
        broken |= head["queueOffset"] != frames.offsets
    if frames.origin is not None:
        broken |= head["physicalOffset"] != starts + frames.origin
    fields = RecordFields(frames, head, sys_flags, is_plain, *positions)
    return fields, _first(broken)


_Positions = tuple[
    "NDArray[np.int64]",
    "NDArray[np.int64]",
    "NDArray[np.int64]",
    "NDArray[np.int64]",
    "NDArray[np.int64]",
    "NDArray[np.int64]",
]


def _plain(
    frames: FrameBatch,
    head: NDArray[np.void],
    sys_flags: NDArray[np.int32],
    is_v1: NDArray[np.bool_],
) -> tuple[_Positions, NDArray[np.bool_]]:
    """Positions in records whose fixed part has one shape, and which of them do not add up."""
    del sys_flags, is_v1
    body_lengths = head["bodyLength"].astype(np.int64)
    body_starts = frames.starts + layout.BODY
    topic = frames.queue.topic.encode() if frames.queue is not None else None
    if topic is None:
        return _tails(frames, body_starts, body_lengths, np.ones(len(head), dtype=np.int64))
    # All records carry the one topic: compare its bytes and derive where the properties lie.
    kind, expected = _tail_kind(topic)
    spare = frames.sizes.astype(np.int64) - (layout.BODY + kind.itemsize)
    wrong = (body_lengths < 0) | (body_lengths > spare)
    ends = body_starts + body_lengths
    if wrong.any():
        body_lengths = np.where(wrong, 0, body_lengths)
        ends = np.where(wrong, 0, body_starts)
    tails = fixed_width(frames.buffer, ends, kind.itemsize).view(kind)[:, 0]
    properties_lengths = spare - body_lengths
    wrong |= tails["propertiesLength"] != properties_lengths
    for name, value in expected.items():
        wrong |= tails[name] != value
    topic_lengths = np.full(len(head), len(topic), dtype=np.int64)
    return (
        body_starts,
        body_lengths,
        ends + 1,
        topic_lengths,
        ends + kind.itemsize,
        properties_lengths,
    ), wrong


@lru_cache(maxsize=256)
def _tail_kind(topic: bytes) -> tuple[np.dtype[np.void], dict[str, int]]:
    """TOPICLENGTH, TOPIC and PROPERTIESLENGTH of a V1 record as words, and what they must be."""
    text = bytes([len(topic)]) + topic
    expected: dict[str, int] = {}
    formats, offsets = [">i2"], [len(text)]
    at = 0
    while at < len(text):
        width = next(size for size in (8, 4, 2, 1) if size <= len(text) - at)
        expected[f"text{at}"] = int.from_bytes(text[at : at + width], "big")
        formats.append(f">u{width}")
        offsets.append(at)
        at += width
    names = ["propertiesLength", *expected]
    kind = np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": len(text) + 2}
    )
    return kind, expected


def _shifted(
    frames: FrameBatch,
    head: NDArray[np.void],
    sys_flags: NDArray[np.int32],
    is_v1: NDArray[np.bool_],
) -> tuple[_Positions, NDArray[np.bool_]]:
    """Positions where hosts or topic lengths differ in width from record to record."""
    del head
    growth = _growth(sys_flags, born=True, store=True)
    topic_heads = np.where(is_v1, 1, 2).astype(np.int64)
    fixed = layout.BODY + growth + topic_heads + 2
    too_small = frames.sizes < fixed
    at = np.where(too_small, 0, frames.starts + layout.BODY_LENGTH + growth)
    body_lengths = integers(frames.buffer, at, ">i4").astype(np.int64)
    wrong = too_small | (body_lengths < 0) | (body_lengths > frames.sizes - fixed)
    body_lengths = np.where(wrong, 0, body_lengths)
    body_starts = np.where(wrong, 0, frames.starts + layout.BODY + growth)
    positions, also = _tails(frames, body_starts, body_lengths, topic_heads)
    wrong |= also
    if frames.queue is not None:
        topic = np.frombuffer(frames.queue.topic.encode(), dtype=np.uint8)
        wrong |= positions[3] != len(topic)
        rows = np.flatnonzero(~wrong)
        texts = fixed_width(frames.buffer, positions[2][rows], max(1, len(topic)))
        wrong[rows] |= (texts[:, : len(topic)] != topic).any(axis=1)
    return positions, wrong


def _tails(
    frames: FrameBatch,
    body_starts: NDArray[np.int64],
    body_lengths: NDArray[np.int64],
    topic_heads: NDArray[np.int64],
) -> tuple[_Positions, NDArray[np.bool_]]:
    """Read topic and properties lengths of each record and check that all adds up to its size."""
    ends = frames.starts + frames.sizes
    at = body_starts + body_lengths
    wrong = (body_lengths < 0) | (at + topic_heads + 2 > ends)
    at = np.where(wrong, 0, at)
    narrow = integers(frames.buffer, at, ">i1").astype(np.int64)
    wide = integers(frames.buffer, at, ">i2").astype(np.int64)
    topic_lengths = np.where(topic_heads == 1, narrow, wide)
    topic_starts = at + topic_heads
    after = topic_starts + topic_lengths
    wrong |= (topic_lengths < 0) | (after + 2 > ends)
    after = np.where(wrong, 0, after)
    properties_lengths = integers(frames.buffer, after, ">i2").astype(np.int64)
    wrong |= (properties_lengths < 0) | (after + 2 + properties_lengths != ends)
    positions = (
        body_starts,
        np.where(wrong, 0, body_lengths),
        topic_starts,
        topic_lengths,
        after + 2,
        properties_lengths,
    )
    return positions, wrong


def first_bad_body(fields: RecordFields) -> int | None:
    """Number of the first record whose body does not have its checksum.

    No kernel computes many CRC-32s at once; zlib is mapped over slices of the buffer instead.
    """
    view = fields.frames.buffer.data
    starts = fields.body_starts.tolist()
    ends = (fields.body_starts + fields.body_lengths).tolist()
    found = np.fromiter(
        map(zlib.crc32, map(view.__getitem__, map(slice, starts, ends))),
        dtype=np.uint32,
        count=len(starts),
    )
    return _first((found & layout.CRC_MASK) != fields.integer("bodyCrc"))


def _first(mask: NDArray[np.bool_]) -> int | None:
    return int(mask.argmax()) if mask.any() else None


def corrupt(frames: FrameBatch, row: int) -> CorruptRecordError:
    """The error that names record `row` of a batch and what is wrong with it."""
    start, size = int(frames.starts[row]), int(frames.sizes[row])
    place = start + (frames.origin or 0)
    where = f"{frames.name or 'a received batch'}, physical offset {place}"
    if frames.queue is not None:
        where += f" (queue {frames.queue}, offset {int(frames.offsets[row])})"
    what = _what(frames, row, start, size)
    message = f"Corrupt record in {where}: {what}. Run `rocketmq-broker check` on the store."
    return CorruptRecordError(message, frames.name, place)


def _what(frames: FrameBatch, row: int, start: int, size: int) -> str:
    """Say in words why a record was refused."""
    if start < 0 or start + size > len(frames.buffer) or size < layout.MIN_RECORD_BYTES:
        return f"its {size} bytes do not fit the {len(frames.buffer)} bytes that are there"
    try:
        record = decode_record(frames.buffer[start:].data, 0)
    except CorruptRecordError as error:
        return str(error.__cause__)
    stored = int.from_bytes(frames.buffer[start : start + 4].tobytes(), "big")
    if stored != size:
        return f"its size is {stored}, the consume queue says {size}"
    if frames.origin is not None and record.physical_offset != start + frames.origin:
        return f"it says that it lies at {record.physical_offset}"
    return (
        f"it is message {record.queue_offset} of {record.topic}/{record.queue_id},"
        f" not the one looked for"
    )
