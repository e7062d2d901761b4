"""A single message: what RocketMQ's clients check and add before they send it.

The twin of the columnar path for one message at a time: `encode_single` makes the record's bytes,
`single_message` a MessageBatch (message_batch.py) of one row. Tests hold both equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from broker_core.codec.layout import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES
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
from broker_core.codec.record import encode_new
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
        if UNSTORABLE.search(name) or UNSTORABLE.search(value):
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
    if properties:
        check_user_properties(topic, properties)
    # An entry without a value does not exist for any reader, so none is written.
    ours = {UNIQ_KEY: unique_key}
    if tags:
        ours[TAGS] = tags
    if keys:
        ours[KEYS] = join_keys(topic, keys)
    if sharding_key:
        ours[SHARDING_KEY] = sharding_key
    if UNSTORABLE.search("".join(ours.values())):
        name = next(name for name, value in ours.items() if UNSTORABLE.search(value))
        raise _illegal(topic, f"{_UNSTORABLE} in {name}")
    return ours | dict(properties) if properties else ours


class SingleMessage(NamedTuple):
    """One message, encoded without offsets and store time, and the queue that it goes to."""

    topic: str
    queue_id: int
    encoded: bytes


def encode_single(
    topic: str,
    queue_id: int,
    body: bytes,
    properties: Mapping[str, str],
    born_timestamp_ms: int,
    *,
    delay_level: int = 0,
    store_host: bytes = LOOPBACK,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> SingleMessage:
    """Encode one message; IllegalMessageError for one without a body, or over a limit.

    With a delay level it goes to the schedule topic first.
    """
    body = _body(topic, body)
    if len(body) > max_body_bytes:
        limit = f"the limit is {max_body_bytes} (maxMessageSize)"
        raise _illegal(topic, f"has a body of {len(body)} bytes, {limit}")
    first, first_queue, text = _first_stop(topic, queue_id, properties, delay_level)
    if len(text) > MAX_PROPERTIES_BYTES:
        limit = f"the limit is {MAX_PROPERTIES_BYTES}"
        raise _illegal(topic, f"has {len(text)} bytes of properties, {limit}")
    raw = encode_new(first, first_queue, body, text, born_timestamp_ms, LOOPBACK, store_host)
    return SingleMessage(first, first_queue, raw)


def single_message(
    topic: str,
    queue_id: int,
    body: bytes,
    properties: Mapping[str, str],
    born_timestamp_ms: int,
    *,
    delay_level: int = 0,
) -> MessageBatch:
    """Return a batch of one message; see `encode_single`. Encoding it checks the limits."""
    body = _body(topic, body)
    first, first_queue, text = _first_stop(topic, queue_id, properties, delay_level)
    return MessageBatch(
        topics=[first],
        topic_codes=np.zeros(1, dtype=np.int32),
        queue_ids=np.array([first_queue], dtype=np.int32),
        bodies=pa.array([body], type=pa.binary()),
        properties=pa.array([text], type=pa.binary()),
        born_timestamps=born_timestamp_ms,
    )


def _first_stop(
    topic: str, queue_id: int, properties: Mapping[str, str], delay_level: int
) -> tuple[str, int, bytes]:
    """Return the topic and queue that a message is stored in first, and its properties there."""
    if not delay_level:
        return topic, queue_id, format_properties(properties)
    # As RocketMQ does: the real destination waits in the properties until delivery.
    stored = {DELAY: str(delay_level), REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
    return SCHEDULE_TOPIC, delay_level - 1, format_properties({**properties, **stored})


def _body(topic: str, body: object) -> bytes:
    if type(body) is bytes and body:
        return body
    if not isinstance(body, bytes | bytearray | memoryview):
        raise _illegal(topic, f"has a body of type {type(body).__name__}; bodies are bytes")
    if not len(body):
        raise _illegal(topic, "has no body; RocketMQ's clients refuse empty messages")
    return bytes(body)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _illegal(topic: str, what: str) -> IllegalMessageError:
    return IllegalMessageError(f"The message for topic {topic} {what}. Nothing was written.")
