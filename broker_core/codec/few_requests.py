"""Dispatch requests of a few records, without index keys: the scalar twin of dispatch_request.py.

This one runs where readers find up to FEW_RECORDS new records in the log (store/pending_tail.py):
columns cost half a millisecond, for one record as for a hundred. It knows ordinary records only.
For all others, and wherever something is wrong, `queue_requests` returns None and the columnar twin
decides. Property tests hold the two equal. The layout is drawn in layout.py.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from broker_core.codec import layout
from broker_core.codec.hashing.java import java_hash
from broker_core.codec.layout import SysFlag
from broker_core.codec.property_names import SCHEDULE_TOPIC, TAGS

FEW_RECORDS = 256
"""Beyond, columns are as quick."""

# TOTALSIZE, MAGICCODE, QUEUEID, QUEUEOFFSET, PHYSICALOFFSET, SYSFLAG
_HEAD = struct.Struct(">iI4xi4xqqi")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_LENGTHS = {layout.MAGIC_V1: struct.Struct(">b"), layout.MAGIC_V2: _SHORT}
"""How formats store a topic's length."""
_IN_QUEUE = (0, int(SysFlag.COMMIT))
_SEPARATOR = b"\2"
_TAGS_HEAD = _SEPARATOR + TAGS.encode() + b"\1"


class QueueRequest(NamedTuple):
    """What a consume queue needs to know of one record; `tags_code` as the queue stores it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


def queue_requests(data: bytes, physical_offset: int) -> list[QueueRequest] | None:
    """Return the requests of records that lie one after another in the log, and fill `data`.

    Records that get no queue entry are left out. None if they are more than a few, or one of them
    is delayed or does not check; bodies are not looked at.
    """
    found: list[QueueRequest] = []
    at, stop = 0, len(data)
    try:
        for _ in range(FEW_RECORDS):
            if at == stop:
                break
            request, flags = _request(data, at, physical_offset + at)
            if flags & layout.TRANSACTION_MASK in _IN_QUEUE:
                found.append(request)
            at += request.size
    except (_OddError, struct.error, UnicodeDecodeError):
        return None
    return found if at == stop else None


class _OddError(ValueError):
    """A record that is not an ordinary one."""


def _request(data: bytes, at: int, expected_offset: int) -> tuple[QueueRequest, int]:
    """Return the request of the record at a position, and its system flags."""
    size, magic, queue_id, queue_offset, physical_offset, flags = _HEAD.unpack_from(data, at)
    end = at + size
    if size < layout.MIN_RECORD_BYTES or end > len(data) or physical_offset != expected_offset:
        raise _OddError
    body_at = at + layout.BODY
    if flags & layout.HOSTS_V6_MASK:
        body_at += layout.HOST_GROWTH * (flags & layout.HOSTS_V6_MASK).bit_count()
    (body_length,) = _INT.unpack_from(data, body_at - _INT.size)
    length_kind = _LENGTHS.get(magic)
    if length_kind is None or not 0 <= body_length <= end - body_at:
        raise _OddError
    topic_at = body_at + body_length + length_kind.size
    (topic_length,) = length_kind.unpack_from(data, body_at + body_length)
    properties_at = topic_at + topic_length + _SHORT.size
    # With no length below 0 the last condition says that all of them lie in the record.
    (properties_length,) = _SHORT.unpack_from(data, properties_at - _SHORT.size)
    if topic_length < 0 or properties_length < 0 or properties_at + properties_length != end:
        raise _OddError
    topic = data[topic_at : topic_at + topic_length].decode()
    if topic == SCHEDULE_TOPIC:
        raise _OddError
    code = _tags_code(data[properties_at:end])
    return QueueRequest(topic, queue_id, queue_offset, physical_offset, size, code), flags


def _tags_code(properties: bytes) -> int:
    """Return the hash of a record's tag, 0 if it has none; of several tags the last counts."""
    text = _SEPARATOR + properties
    at = text.rfind(_TAGS_HEAD)
    while at >= 0:
        begin = at + len(_TAGS_HEAD)
        end = text.find(_SEPARATOR, begin)
        tag = text[begin:] if end < 0 else text[begin:end]
        if tag:
            return _hash_of(tag)
        at = text.rfind(_TAGS_HEAD, 0, at)
    return 0


@lru_cache(maxsize=1024)
def _hash_of(tag: bytes) -> int:
    return java_hash(tag.decode("utf-8", "replace"))
