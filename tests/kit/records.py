"""Commit-log records that hypothesis makes up, and batches of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import strategies as st

from broker_core.codec.compression import Compression, compress, compression_flags
from broker_core.codec.frames import FrameBatch
from broker_core.codec.layout import MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1
from broker_core.codec.property_names import DELAY, KEYS, SCHEDULE_TOPIC, TAGS, UNIQ_KEY
from broker_core.codec.record import Record, encode_record
from broker_core.types import QueueRef

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MILLIS = st.integers(-(2**63 // 1000), 2**63 // 1000 - 1)
HOSTS = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
TOPICS = st.one_of(
    st.sampled_from(["T", "TopicTest", SCHEDULE_TOPIC, "%RETRY%g", "Ωμέγα"]),
    st.integers(MAX_TOPIC_V1 + 1, 255).map(lambda size: "t" * size),
)
COMPRESSIONS: tuple[Compression, ...] = ("none", "none", "none", "zlib", "lz4", "zstd")

# Names that somebody looks for, names that nearly are, and what only a broken writer would store.
NAMES = st.sampled_from(
    [TAGS, KEYS, UNIQ_KEY, DELAY, "TAGS2", "TAG", "a", "k" * 16, "k" * 17, "名", ""]
).map(str.encode)
VALUES = st.one_of(
    st.sampled_from([b"A", b"Aa", b"BB", b"1", b"+3", b"0", b"-1", b"x", b"99", b" k1  k2 ", b""]),
    st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=12),
)
ODD_SEGMENTS = st.sampled_from(
    [b"", b"\x01", b"TAGS", b"\x01v", b"a\x01", b"\x00", b"\xff\x01\xc3"]
)
SEGMENTS = st.one_of(st.builds(lambda name, value: name + b"\x01" + value, NAMES, VALUES))
PROPERTIES = st.builds(
    lambda segments, last: b"\x02".join(segments) + last,
    st.lists(st.one_of(SEGMENTS, SEGMENTS, ODD_SEGMENTS), max_size=5),
    st.sampled_from([b"\x02", b""]),
)
"""Properties text, tidy and odd: duplicates, empty names and values, stray separators."""


@st.composite
def records(draw: st.DrawFn, topics: st.SearchStrategy[str] = TOPICS) -> Record:
    """A record whose every field is arbitrary; what it says of its own place is, too."""
    topic = draw(topics)
    is_long = len(topic.encode()) > MAX_TOPIC_V1
    compression = draw(st.sampled_from(COMPRESSIONS))
    transaction = draw(st.sampled_from([0, 0, 0, 0x4, 0x8, 0xC]))
    return Record(
        topic=topic,
        queue_id=draw(INT32),
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        body=compress(draw(st.binary(max_size=40)), compression),
        properties=draw(PROPERTIES),
        flag=draw(INT32),
        sys_flag=compression_flags(compression) | transaction,
        born_timestamp=draw(MILLIS),
        born_host=draw(HOSTS),
        store_timestamp=draw(MILLIS),
        store_host=draw(HOSTS),
        reconsume_times=draw(INT32),
        prepared_offset=draw(INT64),
        version=MAGIC_V2 if is_long or draw(st.booleans()) else MAGIC_V1,
    )


def plain(record: Record) -> Record:
    """The same as almost all records are: V1, IPv4 hosts."""
    return replace(
        record,
        topic=record.topic[:30],
        version=MAGIC_V1,
        born_host=record.born_host[:8],
        store_host=record.store_host[:8],
    )


@st.composite
def mixtures(draw: st.DrawFn, max_rows: int = 200) -> list[Record]:
    """A few records or many, of few kinds: enough rows for what only large batches go through."""
    kinds = draw(st.lists(records(), min_size=1, max_size=6))
    if draw(st.booleans()):
        kinds = [plain(record) for record in kinds]
    rows = draw(st.one_of(st.just(len(kinds)), st.integers(1, max_rows)))
    random = Random(draw(st.integers(0, 2**32)))
    return [random.choice(kinds) for _ in range(rows)]


def laid_out(records: Sequence[Record], *, gap: int = 0, origin: int = 0) -> FrameBatch:
    """Records at increasing places of one buffer, each saying where it lies."""
    parts, starts = [], []
    at = 0
    for record in records:
        at += gap
        encoded = encode_record(replace(record, physical_offset=origin + at))
        parts += [b"\x02" * gap, encoded]
        starts.append(at)
        at += len(encoded)
    sizes = [len(part) for part in parts[1::2]]
    return FrameBatch(
        buffer=np.frombuffer(b"".join(parts), dtype=np.uint8),
        starts=np.array(starts, dtype=np.int64),
        sizes=np.array(sizes, dtype=np.int32),
        offsets=np.array([record.queue_offset for record in records], dtype=np.int64),
        origin=origin,
        name="a test",
    )


def of_one_queue(records: Sequence[Record], *, gap: int = 0, origin: int = 0) -> FrameBatch:
    """Records made consecutive messages of the first one's topic, as a queue's batch."""
    first = records[0]
    topic = first.topic
    queued = [
        replace(record, topic=topic, version=first.version, queue_id=3, queue_offset=row)
        for row, record in enumerate(records)
    ]
    frames = laid_out(queued, gap=gap, origin=origin)
    return replace(frames, queue=QueueRef(topic, "broker-a", 3), next_offset=len(records))
