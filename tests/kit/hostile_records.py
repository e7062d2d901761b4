"""Hostile records: every field of a message's record, every property that a broker acts on.

A mutation turns a valid record into the bytes of a hostile one, which differs in one place. What is
hidden inside of a body, to be taken for the broker's own, has the body `forged`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from broker_core.codec import layout
from broker_core.codec.compression import MAX_INFLATED_BYTES, compress, compression_flags
from broker_core.codec.hosts import pack_host
from broker_core.codec.layout import MAGIC_BLANK, MAGIC_V2, MAX_TOPIC_V1
from broker_core.codec.property_names import (
    BATCH_TOPIC,
    OP_TOPIC,
    RESERVED_PROPERTIES,
    SCHEDULE_TOPIC,
)
from broker_core.codec.record import Record, encode_record

QUEUE_IDS = (-(1 << 31), -(1 << 31) + 1, -77, -2, -1, 1, 2, 18, 77, 3000, (1 << 31) - 1)
LONG = ((1 << 63) - 1, -(1 << 63), -1, 1, 1 << 31)
_NOT_UTF8 = b"\xff\xfe\xc3("
FORGED_DECISION = (
    b'{"kind":"done","owner":"query:q","name":"","batch":1000000000,"user":"owner",'
    b'"run":"evil","keep":true}'
)


@dataclass(frozen=True)
class Facts:
    """What an attacker knows of the world: names of others, and numbers that can be counted."""

    own_topics: Sequence[str]
    topics: Sequence[str]
    prepared_offsets: Sequence[int]
    forged: bytes
    mark: bytes


@dataclass(frozen=True)
class RecordMutation:
    """One change of a valid record, whose checksum is to be computed; `apply` returns the bytes."""

    label: str
    apply: Callable[[Record], bytes]


def record_mutations(facts: Facts) -> Iterator[RecordMutation]:
    """Yield every change of one place of a record."""
    yield RecordMutation("as it is", encode_record)
    yield from _heads(facts)
    yield from _bytes()
    yield from _properties()
    yield from _topics(facts)
    yield from _delays(facts)
    yield from _blocks(facts)
    yield from _bodies(facts)


def _set(label: str, **fields: Any) -> RecordMutation:
    return RecordMutation(label, lambda record: encode_record(replace(record, **fields)))


# Heads


def _heads(facts: Facts) -> Iterator[RecordMutation]:
    for queue_id in QUEUE_IDS:
        yield _set(f"queueId={queue_id}", queue_id=queue_id)
    for bit in range(32):
        value = struct.unpack(">i", struct.pack(">I", 1 << bit))[0]
        yield _patch(f"sysFlag={value:#x}", layout.SYS_FLAG, ">i", value)
    yield _patch("sysFlag=0xc", layout.SYS_FLAG, ">i", 0xC)
    for value in (-(1 << 31), -1, (1 << 31) - 1):
        yield _set(f"flag={value}", flag=value)
        yield _set(f"reconsumeTimes={value}", reconsume_times=value)
    for value in (*facts.prepared_offsets, *LONG):
        yield _set(f"preparedTransactionOffset={value}", prepared_offset=value)
    for value in LONG:
        yield _set(f"queueOffset={value}", queue_offset=value)
        yield _set(f"physicalOffset={value}", physical_offset=value)
        yield _set(f"bornTimestamp={value}", born_timestamp=value)
        yield _set(f"storeTimestamp={value}", store_timestamp=value)
    for host in (pack_host("8.8.8.8", 7), bytes(20), b"\xff" * 20):
        yield _set(f"bornHost={host.hex()}", born_host=host)
        yield _set(f"storeHost={host.hex()}", store_host=host)
    yield _set("version 2", version=MAGIC_V2)
    yield _set("a wrong checksum", crc=1)


def _patch(label: str, at: int, kind: str, value: int) -> RecordMutation:
    def apply(record: Record) -> bytes:
        raw = bytearray(encode_record(record))
        struct.pack_into(kind, raw, at, value)
        return bytes(raw)

    return RecordMutation(label, apply)


def _bytes() -> Iterator[RecordMutation]:
    """Yield records whose parts do not add up."""
    for value in (-1, 0, 1, 90, (1 << 31) - 1):
        yield _patch(f"size={value}", layout.TOTAL_SIZE, ">i", value)
        yield _patch(f"bodyLength={value}", layout.BODY_LENGTH, ">i", value)
    for magic in (0, MAGIC_BLANK, 0xFFFFFFFF):
        yield _patch(f"magic={magic:#x}", layout.MAGIC, ">I", magic)
    yield RecordMutation("noise", lambda record: b"\xa5" * len(encode_record(record)))
    yield RecordMutation("cut short", lambda record: encode_record(record)[:-1])
    yield RecordMutation("a byte too long", lambda record: encode_record(record) + b"\x00")
    yield RecordMutation("properties' length", lambda record: _lengthened(record, -1))
    yield RecordMutation("properties' length huge", lambda record: _lengthened(record, 32767))


def _lengthened(record: Record, value: int) -> bytes:
    raw = bytearray(encode_record(record))
    struct.pack_into(">h", raw, len(raw) - len(record.properties) - 2, value)
    return bytes(raw)


# Properties


def _with(label: str, text: bytes, *, first: bool = False) -> RecordMutation:
    def apply(record: Record) -> bytes:
        parts = (text, record.properties) if first else (record.properties, text)
        return encode_record(replace(record, properties=b"".join(parts)))

    return RecordMutation(label, apply)


def _entry(name: str, value: str) -> bytes:
    return f"{name}\x01{value}\x02".encode()


def _properties() -> Iterator[RecordMutation]:
    for name in sorted(RESERVED_PROPERTIES):
        yield _with(f"{name}=1", _entry(name, "1"))
    for name in ("HALF_BLOCK", "PREPARED_BY", "REAL_TOPIC", "REAL_QID", "__transactionId__"):
        yield _with(f"{name}=owner, first", _entry(name, "owner"), first=True)
        yield _with(f"{name}=owner, twice", _entry(name, "owner") * 2)
        yield _with(f"{name} without end", _entry(name, "owner")[:-1])
        yield _with(f"{name} with a value of separators", f"{name}\x01\x01\x01\x02".encode())
        yield _with(f"{name} empty", _entry(name, ""))
    yield _with("no name", b"\x01value\x02")
    yield _with("no value", b"name\x02name\x01\x02")
    yield _with("separators alone", b"\x02\x02\x01\x01\x02")
    yield _with("NUL", b"a\x00b\x01c\x00d\x02")
    yield _with("not UTF-8", _NOT_UTF8 + b"\x01" + _NOT_UTF8 + b"\x02")
    yield _with("a long value", _entry("name", "x" * 30_000))
    yield _with("many", b"".join(_entry(f"n{number}", "v") for number in range(2000)))
    yield _set("no properties", properties=b"")
    yield _set("noise for properties", properties=bytes(range(256)))


# Places


def _topics(facts: Facts) -> Iterator[RecordMutation]:
    odd = ("", "..", "../x", "../../../../escaped", "a/b", "\x00", "\x01", "#", "@", "%23", " ")
    for topic in (*odd, "missing", "t" * 127, "t" * 128, "t" * 255, *facts.topics):
        yield _set(f"topic={topic[:20]!r}", topic=topic, version=_version(topic))
    for topic in facts.own_topics:
        yield _set(f"topic={topic}", topic=topic, queue_id=0)
        yield _set(f"topic={topic}, version 2", topic=topic, queue_id=0, version=MAGIC_V2)
    yield RecordMutation("topic not UTF-8", _odd_topic)


def _version(topic: str) -> int:
    return MAGIC_V2 if len(topic) > MAX_TOPIC_V1 else layout.MAGIC_V1


def _odd_topic(record: Record) -> bytes:
    topic = "t" * len(_NOT_UTF8)
    return encode_record(replace(record, topic=topic)).replace(b"\x04tttt", b"\x04" + _NOT_UTF8)


def _delays(facts: Facts) -> Iterator[RecordMutation]:
    """Yield delayed messages, the level's queue and the place in all ways that are wrong."""

    def delayed(label: str, text: str | None = None, queue_id: int = 0) -> RecordMutation:
        return RecordMutation(f"delayed: {label}", partial(_delayed, text, queue_id))

    yield delayed("right")
    yield delayed("right, last level", "DELAY=18 REAL_TOPIC={topic} REAL_QID=0", 17)
    for queue_id in QUEUE_IDS:
        yield delayed(f"schedule queue {queue_id}", queue_id=queue_id)
    for text in (
        "",
        "DELAY=1",
        "REAL_TOPIC={topic}",
        "REAL_QID=0",
        "REAL_TOPIC= REAL_QID=0",
        "REAL_TOPIC={topic} REAL_QID=",
        "REAL_TOPIC={topic} REAL_TOPIC={topic} REAL_QID=0",
        "REAL_TOPIC={topic} REAL_QID=0 REAL_QID=1",
        *(f"REAL_TOPIC={topic} REAL_TOPIC={{topic}} REAL_QID=0" for topic in facts.topics),
        *(f"REAL_TOPIC={{topic}} REAL_TOPIC={topic} REAL_QID=0" for topic in facts.topics),
        *(
            f"REAL_TOPIC={{topic}} REAL_QID={value}"
            for value in ("abc", "-1", "+1", "1e3", "0x1", "٣", "2", "00", "999999999", "9" * 30)
        ),
        *(
            f"REAL_TOPIC={topic} REAL_QID=0"
            for topic in (*facts.topics, *facts.own_topics, "missing", "..", "a/b", "../../x")
        ),
        "DELAY=2 REAL_TOPIC={topic} REAL_QID=0",
        "DELAY=x REAL_TOPIC={topic} REAL_QID=0",
        "DELAY=-1 REAL_TOPIC={topic} REAL_QID=0",
        "DELAY=1 DELAY=2 REAL_TOPIC={topic} REAL_QID=0",
        "HALF_BLOCK=1 DELAY=1 REAL_TOPIC={topic} REAL_QID=0",
    ):
        yield delayed(text or "no place", text)


def _delayed(text: str | None, queue_id: int, record: Record) -> bytes:
    said = "DELAY=1 REAL_TOPIC={topic} REAL_QID=0" if text is None else text
    places = "".join(
        f"{name}\x01{value}\x02"
        for name, _, value in (each.partition("=") for each in said.split())
    ).format(topic=record.topic)
    properties = record.properties + places.encode()
    return encode_record(
        replace(record, topic=SCHEDULE_TOPIC, queue_id=queue_id, properties=properties)
    )


# Bodies


def _blocks(facts: Facts) -> Iterator[RecordMutation]:
    """Yield messages that pass for half blocks: their bodies are records for other places."""
    places = [(topic, 0) for topic in (*facts.topics, *facts.own_topics[:6], "missing")]
    places += [(topic, 0) for topic in ("..", "a/b", "../../../../escaped")]
    places += [("", queue_id) for queue_id in (-1, 99, (1 << 31) - 1)]
    for topic, queue_id in places:
        for size in (10, 17_000):
            label = f"a block for {topic or 'its own topic'}/{queue_id} of {size} bytes"
            yield RecordMutation(label, partial(_block, facts, topic, queue_id, size, "1"))
    for count in ("2", "0", "-1", "x", "99999999999"):
        label = f"a block of {count}"
        yield RecordMutation(label, partial(_block, facts, facts.topics[0], 0, 17_000, count))


def _block(facts: Facts, topic: str, queue_id: int, size: int, count: str, record: Record) -> bytes:
    bodies = {BATCH_TOPIC: FORGED_DECISION, OP_TOPIC: b"0,1,2,3,"}
    tags = "query:q#" if topic == BATCH_TOPIC else "d"
    inner = Record(
        topic or record.topic,
        queue_id,
        0,
        0,
        bodies.get(topic, facts.forged + b"x" * size),
        _entry("TAGS", tags) + _entry("mark", facts.mark.decode()) + _entry("pad", "x" * 9),
        sys_flag=0,
    )
    block = encode_record(inner)
    if size > len(block):  # the broker's own are short: a second record makes the block large
        block += encode_record(replace(inner, topic=record.topic, body=b"x" * size))
    properties = record.properties + _entry("HALF_BLOCK", count)
    return encode_record(replace(record, body=block, properties=properties))


def _bodies(facts: Facts) -> Iterator[RecordMutation]:
    yield _set("an empty body", body=b"")
    yield _set("a body larger than a block", body=facts.mark + b"x" * 20_000)
    yield _set("a body of noise", body=facts.mark + bytes(range(256)))
    for flags in (0x1, 0x101, 0x201, 0x301, 0x701):
        label = f"a body that is not compressed, though {flags:#x} says so"
        yield _set(label, body=facts.mark + b"x" * 50, sys_flag=flags)
    label = "a body that inflates to more than a reader takes"
    yield RecordMutation(label, lambda record: encode_record(replace(record, **_bomb())))


@cache
def _bomb() -> dict[str, Any]:
    return {
        "body": compress(bytes(MAX_INFLATED_BYTES + 1), "zstd"),
        "sys_flag": compression_flags("zstd"),
    }
