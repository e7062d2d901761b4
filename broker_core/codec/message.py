"""A single message: what RocketMQ's clients check and add before they send it.

The twin of the columnar path for one message at a time: `single_record` makes the record itself,
`single_message` a MessageBatch (message_batch.py) of one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from broker_core.codec.layout import MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1
from broker_core.codec.message_batch import LOOPBACK, MessageBatch
from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RESERVED_PROPERTIES,
    SCHEDULE_TOPIC,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
    UNSTORABLE,
)
from broker_core.codec.record import Record
from broker_core.errors import IllegalMessageError

_TRANSIENT_PREFIX = "__RMQ.TRANSIENT."
_UNSTORABLE = "has a zero byte or a separator (0x00, 0x01, 0x02)"


def join_keys(topic: str, keys: Sequence[str] | str | None) -> str:
    """Return keys as they are stored, joined by single spaces; a text is taken as it is."""
    if keys is None or isinstance(keys, str):
        return keys or ""
    for key in keys:
        if not key or KEY_SEPARATOR in key:
            raise _illegal(topic, f"has the key {key!r}; keys are not empty and have no spaces")
    return KEY_SEPARATOR.join(keys)


def check_user_properties(topic: str, properties: Mapping[str, str]) -> None:
    """Raise IllegalMessageError for a property that RocketMQ reserves or can't store."""
    for name, value in properties.items():
        if not (_is_text(name) and _is_text(value)):
            raise _illegal(topic, f"has the property {name!r}={value!r}; both must be text")
        if name in RESERVED_PROPERTIES or name.startswith(_TRANSIENT_PREFIX):
            raise _illegal(topic, f"has the property {name}, which RocketMQ keeps for itself")
        if any(mark in name + value for mark in UNSTORABLE):
            raise _illegal(topic, f"{_UNSTORABLE} in the property {name!r}")


def message_properties(
    topic: str,
    unique_key: str,
    *,
    tags: str | None = None,
    keys: Sequence[str] | str | None = None,
    properties: Mapping[str, str] | None = None,
    sharding_key: str | None = None,
) -> dict[str, str]:
    """Return all properties of a message, in stored order; IllegalMessageError for a wrong one."""
    check_user_properties(topic, properties or {})
    ours = {
        UNIQ_KEY: unique_key,
        TAGS: tags or "",
        KEYS: join_keys(topic, keys),
        SHARDING_KEY: sharding_key or "",
    }
    for name, value in ours.items():
        if any(mark in value for mark in UNSTORABLE):
            raise _illegal(topic, f"{_UNSTORABLE} in {name}")
    # An entry without a value does not exist for any reader, so none is written.
    return {name: value for name, value in ours.items() if value} | dict(properties or {})


def single_message(
    topic: str,
    queue_id: int,
    body: bytes,
    properties: Mapping[str, str],
    born_timestamp_ms: int,
    *,
    delay_level: int = 0,
) -> MessageBatch:
    """Return a batch of one message; with a delay level it goes to the schedule topic first."""
    record = single_record(
        topic, queue_id, body, properties, born_timestamp_ms, delay_level=delay_level
    )
    return MessageBatch(
        topics=[record.topic],
        topic_codes=np.zeros(1, dtype=np.int32),
        queue_ids=np.array([record.queue_id], dtype=np.int32),
        bodies=pa.array([record.body], type=pa.binary()),
        properties=pa.array([record.properties], type=pa.binary()),
        born_timestamps=born_timestamp_ms,
    )


def single_record(
    topic: str,
    queue_id: int,
    body: bytes,
    properties: Mapping[str, str],
    born_timestamp_ms: int,
    *,
    delay_level: int = 0,
    store_host: bytes = LOOPBACK,
) -> Record:
    """Return one message as a record without offsets; see `single_message`."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise _illegal(topic, f"has a body of type {type(body).__name__}; bodies are bytes")
    if not len(body):
        raise _illegal(topic, "has no body; RocketMQ's clients refuse empty messages")
    stored = dict(properties)
    # As RocketMQ does: the real destination waits in the properties until delivery.
    if delay_level:
        stored |= {DELAY: str(delay_level), REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
        topic, queue_id = SCHEDULE_TOPIC, delay_level - 1
    return Record(
        topic,
        queue_id,
        queue_offset=0,
        physical_offset=0,
        body=bytes(body),
        properties=format_properties(stored),
        born_timestamp=born_timestamp_ms,
        born_host=LOOPBACK,
        store_host=store_host,
        version=MAGIC_V2 if len(topic.encode()) > MAX_TOPIC_V1 else MAGIC_V1,
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _illegal(topic: str, what: str) -> IllegalMessageError:
    return IllegalMessageError(f"The message for topic {topic} {what}. Nothing was written.")
