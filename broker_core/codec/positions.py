"""Where bodies, topics and properties of many records lie, and which records do not add up.

Fields behind the fixed part follow one another by their lengths, so each position depends on the
lengths before it. Lengths are read only from places inside the record; a record with a length that
leads out of it, or whose lengths do not add up to its size, is reported as wrong, and its positions
mean nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.codec import layout
from broker_core.codec.spans import Spans, fixed_width, integers, padded_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GATHER_MAX_BYTES = 1024


class Positions(NamedTuple):
    """Starts and lengths of the fields of varying length, one element a record."""

    body_starts: NDArray[np.int64]
    body_lengths: NDArray[np.int64]
    topic_starts: NDArray[np.int64]
    topic_lengths: NDArray[np.int64]
    properties_starts: NDArray[np.int64]
    properties_lengths: NDArray[np.int64]

    def spans(
        self, data: NDArray[np.uint8], texts: NDArray[np.uint8]
    ) -> tuple[Spans, Spans, Spans]:
        """Return bodies and topics as spans of the data, properties as spans of the texts."""
        return (
            Spans(data, self.body_starts, self.body_lengths),
            Spans(data, self.topic_starts, self.topic_lengths),
            Spans(texts, self.properties_starts, self.properties_lengths),
        )


def first_topic(records: Spans) -> str | None:
    """The topic of the first of many V1/IPv4 records; None if there is no reading it."""
    start, size = int(records.starts[0]), int(records.lengths[0])
    record = records.data[start : start + size].tobytes()
    at = layout.BODY + int.from_bytes(record[layout.BODY_LENGTH : layout.BODY], "big", signed=True)
    if not layout.BODY <= at < size:
        return None
    try:
        return record[at + 1 : at + 1 + record[at]].decode()
    except UnicodeDecodeError:
        return None


def plain_bodies(
    records: Spans, body_lengths: NDArray[np.int64], topic: bytes
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """(starts, lengths, which are wrong) of bodies in V1/IPv4 records that carry one topic.

    Those that are wrong lead out of their record; their lengths become 0.
    """
    spare = records.lengths - (layout.MIN_RECORD_BYTES + len(topic))
    is_wrong = (body_lengths < 0) | (body_lengths > spare)
    if is_wrong.any():
        body_lengths = np.where(is_wrong, 0, body_lengths)
    return records.starts + layout.BODY, body_lengths, is_wrong


class Tail(NamedTuple):
    """What lies behind the bodies: positions, which records are wrong, and where texts lie.

    Positions of properties are in `texts`, all others in the records' buffer.
    """

    positions: Positions
    is_wrong: NDArray[np.bool_]
    texts: NDArray[np.uint8]


def one_topic(
    records: Spans,
    body_starts: NDArray[np.int64],
    body_lengths: NDArray[np.int64],
    topic: bytes,
    *,
    gathered: bool,
) -> Tail:
    """What lies behind the bodies of V1/IPv4 records that must all carry one topic.

    With the topic known, the lengths behind the body follow from the sizes and are compared, not
    read. The bodies are those of `plain_bodies`. With `gathered` everything behind the bodies is
    copied, if it is small: whoever reads properties then finds them close together.
    """
    kind, expected = _tail_kind(topic)
    properties_lengths = records.lengths - body_lengths - (layout.BODY + kind.itemsize)
    is_wrong = properties_lengths < 0
    ends = body_starts + body_lengths
    if is_wrong.any():
        ends[is_wrong] = 0
    width = kind.itemsize + int(properties_lengths.max())
    if gathered and _is_worth_gathering(records.data, properties_lengths, width):
        rows = padded_rows(records.data, ends, width)
        texts, properties_starts = rows.reshape(-1), np.arange(kind.itemsize, rows.size, width)
        tails = np.ndarray(len(rows), kind, rows, strides=(width,))
    else:
        texts, properties_starts = records.data, ends + kind.itemsize
        tails = fixed_width(records.data, ends, kind.itemsize).view(kind)[:, 0]
    is_wrong |= tails["propertiesLength"] != properties_lengths
    for name, value in expected.items():
        is_wrong |= tails[name] != value
    positions = Positions(
        body_starts,
        body_lengths,
        ends + 1,
        np.full(len(ends), len(topic), dtype=np.int64),
        properties_starts,
        properties_lengths,
    )
    return Tail(positions, is_wrong, texts)


def _is_worth_gathering(
    data: NDArray[np.uint8], properties_lengths: NDArray[np.int64], width: int
) -> bool:
    """Whether tails are small and of about one size."""
    if not 0 < width <= min(_GATHER_MAX_BYTES, len(data)):
        return False
    return width * len(properties_lengths) <= 2 * int(properties_lengths.sum())


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


def any_topic(
    records: Spans, sys_flags: NDArray[np.int32], is_v1: NDArray[np.bool_]
) -> tuple[Positions, NDArray[np.bool_]]:
    """Positions in records of any version and host width, and which of them are wrong."""
    data, starts, sizes = records
    growth = host_growth(sys_flags, born=True, store=True)
    topic_heads = np.where(is_v1, 1, 2)
    fixed = layout.BODY + growth + topic_heads + 2
    is_wrong = sizes < fixed
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
    positions = Positions(
        body_starts, body_lengths, topic_starts, topic_lengths, after + 2, properties_lengths
    )
    return positions, is_wrong


def other_topics(
    data: NDArray[np.uint8],
    positions: Positions,
    is_wrong: NDArray[np.bool_],
    topic: bytes,
) -> NDArray[np.bool_]:
    """Which records carry another topic than this one; the wrong ones are not looked at."""
    is_other: NDArray[np.bool_] = positions.topic_lengths != len(topic)
    rows = np.flatnonzero(~is_other & ~is_wrong)
    if len(topic) and len(rows):
        texts = fixed_width(data, positions.topic_starts[rows], len(topic))
        is_other[rows] = (texts != np.frombuffer(topic, dtype=np.uint8)).any(axis=1)
    return is_other


def host_growth(sys_flags: NDArray[np.int32], *, born: bool, store: bool) -> NDArray[np.int64]:
    """How many bytes IPv6 hosts push later fields back."""
    grown = np.zeros(len(sys_flags), dtype=np.int64)
    if born:
        grown += ((sys_flags & layout.SysFlag.BORN_HOST_V6) != 0) * layout.HOST_GROWTH
    if store:
        grown += ((sys_flags & layout.SysFlag.STORE_HOST_V6) != 0) * layout.HOST_GROWTH
    return grown
