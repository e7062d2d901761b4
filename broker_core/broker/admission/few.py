"""Admission of up to 64 plain records, one by one: the twin of records.py for single sends.

Checks on columns cost about as much for one record as for a thousand. Here the same checks run on
plain values, without arrays, and what passes can go the quick way into the log
(store/few_records.py). Only ordinary records pass: IPv4 hosts, format V1, neither delayed nor
compressed. For all others `admit` (records.py) decides, also about the error. Tests hold both
equal, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker_core.broker.admission.records import Records, admit
from broker_core.codec import layout
from broker_core.codec.hashing.crc import body_crc
from broker_core.codec.hosts import is_v6
from broker_core.codec.legal_names import is_own_topic
from broker_core.codec.properties.text import parse_properties
from broker_core.codec.property_names import OWN_PROPERTIES
from broker_core.store.few_records import MOST_RECORDS, FewRecords, most_keys

if TYPE_CHECKING:
    from broker_core.broker.admission.door import Door
    from broker_core.broker.transactions.ownership import Permit
    from broker_core.store.batch import Batch
    from broker_core.store.settings import StoreSettings

FEW = MOST_RECORDS
"""Most records that are admitted one by one; beyond, columns are quicker."""
_HEAD = struct.Struct(">iIii20xi")  # TOTALSIZE, MAGICCODE, BODYCRC, QUEUEID, SYSFLAG
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PLAIN_FLAGS = int(layout.SysFlag.MULTI_TAGS)
_NO_OFFSET = bytes(layout.BODY_LENGTH - layout.PREPARED_OFFSET)


class _Plain(NamedTuple):
    """What an append needs to know of one record; it has no more index keys than `keys`."""

    topic: str
    queue_id: int
    keys: int


class QueueDoor(Protocol):
    """The part of a Door that plain records are asked at."""

    @property
    def settings(self) -> StoreSettings:
        """The store's."""

    def require_queues(self, topic: str, *queue_ids: int) -> None:
        """Raise unless clients may write to these queues of a topic."""


def admit_appends(
    door: Door, requests: Sequence[Records], permits: Sequence[Permit | None] = ()
) -> Batch | FewRecords:
    """Check and join the records of several appends, one by one or as columns."""
    if sum(map(len, requests)) <= FEW:
        admitted = admit_few(door, requests, permits)
        if admitted is not None:
            return admitted
    return admit(door, requests, permits)


def admit_few(
    door: QueueDoor, requests: Sequence[Records], permits: Sequence[Permit | None] = ()
) -> FewRecords | None:
    """Return the records that `admit` would return, or None if one is not plain.

    Raise TopicNotFoundError, PermissionDeniedError and RequestError as `admit` does.
    """
    settings = door.settings
    store_host = settings.store_host
    if is_v6(store_host):
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
    _put_hosts(data, starts, requests, store_host)
    queues = [(plain.topic, plain.queue_id) for plain in found]
    return FewRecords(data, sizes, queues, sum(plain.keys for plain in found))


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
    keys = most_keys(1, data.count(b" ", properties_at + 2, end)) if properties else 0
    return _Plain(topic, queue_id, keys) if is_plain else None


def _put_hosts(
    data: bytearray, starts: Sequence[int], requests: Sequence[Records], store_host: bytes
) -> None:
    born = (request.born_host for request in requests for _ in range(len(request)))
    for start, born_host in zip(starts, born, strict=True):
        if born_host is not None:
            data[start + layout.BORN_HOST : start + layout.STORE_TIMESTAMP] = born_host
        data[start + layout.STORE_HOST : start + layout.RECONSUME_TIMES] = store_host
        data[start + layout.PREPARED_OFFSET : start + layout.BODY_LENGTH] = _NO_OFFSET
