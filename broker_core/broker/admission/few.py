"""Admission of up to 64 plain records, one by one: the twin of records.py for single sends.

Checks on columns cost about as much for one record as for a thousand. Here the same checks run on
plain values, without arrays. Only ordinary records pass: IPv4 hosts, format V1, neither delayed
nor compressed. For all others `admit` (records.py) decides, also about the error. Tests hold both
equal, byte for byte.

Measured with and without it, one client process, single messages of 100 bytes, on two busy cores:

    threads   messages/s with, without   CPU of the server for a message with, without
    1               437, 226                        1825, 3550 us
    8              1553, 1204                        413, 563 us
    64             5428, 5683                         78, 78 us

So a lone sender would be half as fast without it; from about 64 records on, columns are as quick.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.broker.admission.records import Records, admit
from broker_core.codec import layout
from broker_core.codec.dispatch_request import DispatchRequests
from broker_core.codec.encode import EncodedRecords
from broker_core.codec.hashing.crc import body_crc
from broker_core.codec.hashing.index_keys import hashes_of
from broker_core.codec.hashing.java import java_hash
from broker_core.codec.hosts import is_v6
from broker_core.codec.legal_names import is_own_topic
from broker_core.codec.message_batch import Destinations
from broker_core.codec.properties.text import parse_properties
from broker_core.codec.property_names import OWN_PROPERTIES, TAGS
from broker_core.store.batch import Batch, Part

if TYPE_CHECKING:
    from broker_core.broker.admission.door import Door
    from broker_core.broker.transactions.ownership import Permit

FEW = 64
"""Most records that are admitted one by one; beyond, columns are quicker."""
_HEAD = struct.Struct(">iIii20xi")  # TOTALSIZE, MAGICCODE, BODYCRC, QUEUEID, SYSFLAG
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PLAIN_FLAGS = int(layout.SysFlag.MULTI_TAGS)
_NO_OFFSET = bytes(layout.BODY_LENGTH - layout.PREPARED_OFFSET)


class _Plain(NamedTuple):
    """The fields of one record that dispatch needs."""

    topic: str
    queue_id: int
    sys_flag: int
    properties: dict[str, str]


def admit_appends(
    door: Door, requests: Sequence[Records], permits: Sequence[Permit | None] = ()
) -> Batch:
    """Check and join the records of several appends, one by one or as columns."""
    if sum(map(len, requests)) <= FEW:
        admitted = admit_few(door, requests, permits)
        if admitted is not None:
            return admitted
    return admit(door, requests, permits)


def admit_few(
    door: Door, requests: Sequence[Records], permits: Sequence[Permit | None] = ()
) -> Batch | None:
    """Return what `admit` would return, or None if a record is not plain.

    Raise TopicNotFoundError, PermissionDeniedError and RequestError as `admit` does.
    """
    settings = door.settings
    if is_v6(settings.store_host):
        return None
    # A copy that can be written to: hosts are put in here, offsets when the batch is placed.
    data = bytearray().join(request.data.data for request in requests)
    sizes = [size for request in requests for size in request.sizes.tolist()]
    starts, at = [], 0
    for size in sizes:
        starts.append(at)
        at += size
    found = []
    for start, size in zip(starts, sizes, strict=True):
        plain = _plain(data, start, size, settings.max_message_bytes)
        if plain is None:
            return None
        found.append(plain)
    end = 0
    for permit, request in zip(permits, requests, strict=bool(permits)):
        end += len(request)
        if permit is not None:
            permit({plain.topic for plain in found[end - len(request) : end]})
    for topic in {plain.topic for plain in found}:
        queue_ids = [plain.queue_id for plain in found if plain.topic == topic]
        door.require_queues(topic, min(queue_ids), max(queue_ids))
    _put_hosts(data, starts, requests, settings.store_host)
    records = EncodedRecords(
        np.frombuffer(data, dtype=np.uint8),
        np.array(starts, dtype=np.int64),
        np.array(sizes, dtype=np.int32),
        layout.STORE_TIMESTAMP,
    )
    fields = _fields(found, records)
    route = Destinations(fields.topics, fields.topic_codes, fields.queue_ids)
    in_queue = np.ones(len(found), dtype=np.bool_)
    return Batch((Part(records, fields),), route, in_queue)


def _plain(data: bytearray, start: int, size: int, limit: int) -> _Plain | None:
    """Return a record's fields; None unless it is whole and plain, and its body intact."""
    end = start + size
    if size < layout.MIN_RECORD_BYTES:
        return None
    told, magic, crc, queue_id, sys_flag = _HEAD.unpack_from(data, start)
    if told != size or magic != layout.MAGIC_V1 or sys_flag & ~_PLAIN_FLAGS:
        return None
    (body_length,) = _INT.unpack_from(data, start + layout.BODY_LENGTH)
    topic_at = start + layout.BODY + body_length
    if not 0 < body_length <= limit or topic_at >= end:
        return None
    topic_length = data[topic_at]
    properties_at = topic_at + 1 + topic_length
    if not 0 < topic_length <= layout.MAX_TOPIC_V1 or properties_at + 2 > end:
        return None
    (properties_length,) = _SHORT.unpack_from(data, properties_at)
    if properties_at + 2 + properties_length != end:
        return None
    topic = data[topic_at + 1 : properties_at].decode("utf-8", "replace")
    if is_own_topic(topic):
        return None
    # Last but for the properties: the checksum reads the whole body, the others a few bytes.
    if body_crc(memoryview(data)[start + layout.BODY : topic_at]) != crc:
        return None
    properties = parse_properties(memoryview(data)[properties_at + 2 : end])
    has_zero = data.find(0, properties_at + 2, end) >= 0
    is_plain = not has_zero and OWN_PROPERTIES.isdisjoint(properties)
    return _Plain(topic, queue_id, sys_flag, properties) if is_plain else None


def _put_hosts(
    data: bytearray, starts: Sequence[int], requests: Sequence[Records], store_host: bytes
) -> None:
    born = (request.born_host for request in requests for _ in range(len(request)))
    for start, born_host in zip(starts, born, strict=True):
        if born_host is not None:
            data[start + layout.BORN_HOST : start + layout.STORE_TIMESTAMP] = born_host
        data[start + layout.STORE_HOST : start + layout.RECONSUME_TIMES] = store_host
        data[start + layout.PREPARED_OFFSET : start + layout.BODY_LENGTH] = _NO_OFFSET


def _fields(found: Sequence[_Plain], records: EncodedRecords) -> DispatchRequests:
    """Return the dispatch requests of these records; offsets stay 0 until they are placed."""
    topics = list(dict.fromkeys(plain.topic for plain in found))
    codes = {topic: code for code, topic in enumerate(topics)}
    rows: list[int] = []
    hashes: list[int] = []
    for row, plain in enumerate(found):
        of_one = hashes_of(plain.topic, plain.properties)
        hashes += of_one
        rows += [row] * len(of_one)
    nowhere = np.zeros(len(found), dtype=np.int64)
    tags = [_tags_code(plain.properties.get(TAGS, "")) for plain in found]
    return DispatchRequests(
        topics=topics,
        topic_codes=np.array([codes[plain.topic] for plain in found], dtype=np.int32),
        queue_ids=np.array([plain.queue_id for plain in found], dtype=np.int32),
        queue_offsets=nowhere,
        physical_offsets=nowhere,
        sizes=records.sizes,
        tags_codes=np.array(tags, dtype=np.int64),
        store_timestamps=nowhere,
        sys_flags=np.array([plain.sys_flag for plain in found], dtype=np.int32),
        index_rows=np.array(rows, dtype=np.int64),
        index_hashes=np.array(hashes, dtype=np.int32),
    )


@lru_cache(maxsize=1024)
def _tags_code(tags: str) -> int:
    return java_hash(tags)
