"""One commit-log record, encoded and decoded by itself: the scalar twin of decode.py and encode.py.

This one runs for single messages, for lookups that find fewer than FEW records, and wherever a
refused record has to be explained; the columnar twins run for batches. Property tests hold them to
what is computed here. The layout is drawn in layout.py.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from broker_core.codec import layout
from broker_core.codec.compression import InflateError, decompress
from broker_core.codec.hashing.crc import body_crc
from broker_core.codec.hosts import host_text, is_v6
from broker_core.codec.ids import offset_id
from broker_core.codec.layout import CRC_MASK, MAGIC_V1, MAGIC_V2, SysFlag
from broker_core.codec.properties.text import parse_properties, terminated
from broker_core.codec.property_names import KEYS, PROPERTY_CRC, TAGS, UNIQ_KEY
from broker_core.codec.schema import ALL_COLUMNS, schema_of
from broker_core.errors import CorruptRecordError

if TYPE_CHECKING:
    from broker_core.codec.frames import FrameBatch

_HEAD = struct.Struct(">iIiiiqqiq")  # TOTALSIZE .. BORNTIMESTAMP
_TIME = struct.Struct(">q")
_BODY_HEAD = struct.Struct(">iqi")  # RECONSUMETIMES, PREPAREDOFFSET, BODYLENGTH
_SHORT = struct.Struct(">h")
_NO_TIME = bytes(_TIME.size)
_NEW_BYTES = _HEAD.size + _TIME.size + _BODY_HEAD.size + _SHORT.size
_CRC_PROPERTY_BYTES = len(PROPERTY_CRC) + 1 + 10 + 1

FEW = 64
"""Below this, rows are made several times as fast as columns: columns cost the same for one record
as for a thousand."""

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Record:
    """All stored fields of one message; `body` and `properties` are the stored bytes.

    `crc` is the stored body checksum, or None to have it computed when the record is encoded.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    store_timestamp: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_offset: int = 0
    crc: int | None = None
    version: int = MAGIC_V1

    @cached_property
    def property_map(self) -> dict[str, str]:
        """The properties as a reader sees them."""
        return parse_properties(self.properties)

    @property
    def offset_id(self) -> str:
        """The id by which a broker finds the record without any index."""
        return offset_id(self.store_host, self.physical_offset)

    @property
    def msg_id(self) -> str:
        """The id that RocketMQ's clients show: the unique key, or else the offset id."""
        return self.property_map.get(UNIQ_KEY) or self.offset_id

    @property
    def size_bytes(self) -> int:
        """The length of the stored bytes."""
        fixed = layout.BODY - 2 * layout.HOST_V4 + len(self.born_host) + len(self.store_host)
        topic = (1 if self.version == MAGIC_V1 else 2) + len(self.topic.encode())
        return fixed + len(self.body) + topic + 2 + len(self.properties)

    @property
    def born_host_text(self) -> str:
        """`address:port` of the sender."""
        return host_text(self.born_host)

    @property
    def store_host_text(self) -> str:
        """`address:port` of the broker that stored it."""
        return host_text(self.store_host)

    @property
    def plain_body(self) -> bytes:
        """The body as it was sent; CorruptRecordError if it can't be inflated."""
        try:
            return decompress(self.body, self.sys_flag)
        except InflateError as error:
            message = f"The body of the record at physical offset {self.physical_offset}: {error}."
            raise CorruptRecordError(message, "", self.physical_offset) from error


def encode_record(record: Record) -> bytes:
    """Return the stored bytes; host bits of SYSFLAG and the checksum follow from the fields."""
    topic = record.topic.encode()
    topic_head = (
        struct.pack(">b", len(topic)) if record.version == MAGIC_V1 else _SHORT.pack(len(topic))
    )
    sys_flag = record.sys_flag & ~layout.HOSTS_V6_MASK
    sys_flag |= SysFlag.BORN_HOST_V6 if is_v6(record.born_host) else 0
    sys_flag |= SysFlag.STORE_HOST_V6 if is_v6(record.store_host) else 0
    crc = body_crc(record.body) if record.crc is None else record.crc
    tail = b"".join(
        (
            record.born_host,
            _TIME.pack(record.store_timestamp),
            record.store_host,
            _BODY_HEAD.pack(record.reconsume_times, record.prepared_offset, len(record.body)),
            record.body,
            topic_head,
            topic,
            _SHORT.pack(len(record.properties)),
            record.properties,
        )
    )
    head = _HEAD.pack(
        _HEAD.size + len(tail),
        record.version,
        crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        sys_flag,
        record.born_timestamp,
    )
    return head + tail


def encode_new(
    topic: str,
    queue_id: int,
    body: Buffer,
    properties: bytes,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
) -> bytes:
    """Return what `encode_record` returns for a message that has no more fields than these.

    The twin of that, for single sends: making a Record takes four times as long as its bytes.
    """
    raw_topic = topic.encode()
    is_v1 = len(raw_topic) <= layout.MAX_TOPIC_V1
    born_bytes, store_bytes = len(born_host), len(store_host)
    sys_flag = 0
    if born_bytes == layout.HOST_V6:
        sys_flag |= SysFlag.BORN_HOST_V6
    if store_bytes == layout.HOST_V6:
        sys_flag |= SysFlag.STORE_HOST_V6
    version = MAGIC_V1 if is_v1 else MAGIC_V2
    topic_head = len(raw_topic).to_bytes(1 if is_v1 else 2, "big")
    size = (
        _NEW_BYTES
        + born_bytes
        + store_bytes
        + len(body)
        + len(topic_head)
        + len(raw_topic)
        + len(properties)
    )
    crc = zlib.crc32(body) & CRC_MASK
    return b"".join(
        (
            _HEAD.pack(size, version, crc, queue_id, 0, 0, 0, sys_flag, born_timestamp),
            born_host,
            _NO_TIME,
            store_host,
            _BODY_HEAD.pack(0, 0, len(body)),
            body,
            topic_head,
            raw_topic,
            _SHORT.pack(len(properties)),
            properties,
        )
    )


def with_property_crc(encoded: bytes) -> bytes:
    """Return a finished record with `__CRC32#` appended to its properties.

    The checksum covers all but the 20 bytes that hold it, sizes already grown; its ten digits are
    written least significant first.
    """
    record = decode_record(encoded)
    gap = terminated(record.properties)[len(record.properties) :]
    grown = bytearray(encoded + gap + bytes(_CRC_PROPERTY_BYTES))
    struct.pack_into(">i", grown, layout.TOTAL_SIZE, len(grown))
    at = len(encoded) - len(record.properties) - 2
    struct.pack_into(">h", grown, at, len(record.properties) + len(gap) + _CRC_PROPERTY_BYTES)
    crc = zlib.crc32(grown[:-_CRC_PROPERTY_BYTES]) & CRC_MASK
    digits = str(crc)[::-1].ljust(10, "0")
    grown[-_CRC_PROPERTY_BYTES:] = f"{PROPERTY_CRC}\x01{digits}\x02".encode()
    return bytes(grown)


def property_crc_matches(encoded: Buffer) -> bool:
    """Tell whether a record ends with a `__CRC32#` property that agrees with its bytes."""
    tail = bytes(encoded[-_CRC_PROPERTY_BYTES:])
    name, _, digits = tail[:-1].partition(b"\x01")
    if name.decode("utf-8", "replace") != PROPERTY_CRC or not digits.isdigit():
        return False
    # The zeros that fill up the ten digits lead, once the digits are reversed.
    return int(digits[::-1]) == zlib.crc32(encoded[:-_CRC_PROPERTY_BYTES]) & CRC_MASK


def decode_record(
    data: Buffer,
    position: int = 0,
    *,
    name: str = "",
    verify: bool = True,
    with_body: bool = True,
) -> Record:
    """Return the record at `position`.

    CorruptRecordError if there is none, or if `verify` is set and the body does not have its
    checksum. Without `with_body` the body is left out: not read, and so not checked.
    """
    try:
        return _decode(memoryview(data), position, verify and with_body, with_body)
    except (_BrokenError, struct.error) as error:
        where = f"{name or 'the buffer'} at byte {position}"
        message = f"No valid record in {where}: {error}. Run `rocketmq-broker check` on the store."
        raise CorruptRecordError(message, name, position) from error


class _BrokenError(ValueError):
    """A field that contradicts the layout."""


def _decode(data: memoryview, position: int, verify: bool, with_body: bool) -> Record:
    size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = (
        _HEAD.unpack_from(data, position)
    )
    if magic not in (MAGIC_V1, MAGIC_V2):
        message = f"magic is {magic:#010x}, expected {MAGIC_V1:#010x} or {MAGIC_V2:#010x}"
        raise _BrokenError(message)
    if size < layout.MIN_RECORD_BYTES or size > len(data) - position:
        message = f"size is {size}, {len(data) - position} bytes remain"
        raise _BrokenError(message)
    # From here on nothing outside the record can be read: a length that leads out of it is refused.
    record = data[position : position + size]
    at = _HEAD.size
    born_host, at = _host(record, at, sys_flag & SysFlag.BORN_HOST_V6)
    (stored,) = _TIME.unpack_from(record, at)
    store_host, at = _host(record, at + 8, sys_flag & SysFlag.STORE_HOST_V6)
    reconsume, prepared, body_length = _BODY_HEAD.unpack_from(record, at)
    body, at = _field(record, at + _BODY_HEAD.size, body_length, "body", is_read=with_body)
    if magic == MAGIC_V1:
        (topic_length,) = struct.unpack_from(">b", record, at)
        topic, at = _field(record, at + 1, topic_length, "topic")
    else:
        (topic_length,) = _SHORT.unpack_from(record, at)
        topic, at = _field(record, at + 2, topic_length, "topic")
    (properties_length,) = _SHORT.unpack_from(record, at)
    properties, at = _field(record, at + 2, properties_length, "properties")
    if at != size:
        message = f"its fields take {at} bytes, its size says {size}"
        raise _BrokenError(message)
    if verify and body_crc(body) != crc:
        message = f"body checksum is {body_crc(body):#010x}, the record says {crc:#010x}"
        raise _BrokenError(message)
    return Record(
        topic=_topic_text(topic),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        body=body,
        properties=properties,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=born_host,
        store_timestamp=stored,
        store_host=store_host,
        reconsume_times=reconsume,
        prepared_offset=prepared,
        crc=crc,
        version=magic,
    )


def _topic_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        message = f"topic {raw!r} is not UTF-8"
        raise _BrokenError(message) from error


def _host(record: memoryview, at: int, is_wide: int) -> tuple[bytes, int]:
    width = layout.HOST_V6 if is_wide else layout.HOST_V4
    return _field(record, at, width, "host")


def _field(
    record: memoryview, at: int, length: int, name: str, *, is_read: bool = True
) -> tuple[bytes, int]:
    if length < 0 or at + length > len(record):
        message = f"{name} length is {length}, {max(0, len(record) - at)} bytes remain"
        raise _BrokenError(message)
    return bytes(record[at : at + length]) if is_read else b"", at + length


def corrupt(frames: FrameBatch, row: int, what: str = "") -> CorruptRecordError:
    """Return the error that names record `row` of a batch and what is wrong with it."""
    start = int(frames.starts[row])
    physical_offset = start + (frames.origin or 0)
    where = f"{frames.name or 'a received batch'}, physical offset {physical_offset}"
    if frames.queue is not None:
        where += f" (queue {frames.queue}, offset {int(frames.offsets[row])})"
    reason = what or _reason(frames, start, int(frames.sizes[row]))
    message = f"Corrupt record in {where}: {reason}. Run `rocketmq-broker check` on the store."
    return CorruptRecordError(message, frames.name, physical_offset)


def _reason(frames: FrameBatch, start: int, size: int) -> str:
    """Say why a record was refused: by its own bytes if they do not add up, else by its batch."""
    if start < 0 or start + size > len(frames.buffer) or size < layout.MIN_RECORD_BYTES:
        return f"its {size} bytes do not fit the {len(frames.buffer)} bytes that are there"
    # Columns and kernels only say that a record is wrong; the scalar decoder finds the words.
    try:
        record = decode_record(frames.buffer[start:].data)
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


def row_of(record: Record, broker_name: str) -> dict[str, Any]:
    """Return every column's value: times in microseconds, properties as pairs."""
    properties = record.property_map
    return {
        "topic": record.topic,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "msgId": record.msg_id,
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS),
        "body": record.plain_body,
        "bornTimestamp": record.born_timestamp * 1000,
        "storeTimestamp": record.store_timestamp * 1000,
        "properties": list(properties.items()),
        "offsetMsgId": record.offset_id,
        "physicalOffset": record.physical_offset,
        "storeSize": record.size_bytes,
        "bornHost": record.born_host_text,
        "storeHost": record.store_host_text,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "bodyCrc": record.crc,
        "preparedTransactionOffset": record.prepared_offset,
    }


def table_of(records: Sequence[Record], broker_name: str) -> pa.Table:
    """Return a few records as a table with all columns; decode.py makes the one of many."""
    rows = [row_of(record, broker_name) for record in records]
    return pa.Table.from_pylist(rows, schema=schema_of(ALL_COLUMNS))
