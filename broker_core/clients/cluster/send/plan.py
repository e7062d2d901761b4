"""The send plan: a batch of messages, cut into send units of one request each.

A unit holds messages of one topic for one write queue with equal system flags, no larger than a
request should be. Its messages keep their order, and units of a write queue are in order too, so a
write queue that is sent unit by unit keeps the order of its messages. A message that RocketMQ takes
only by itself (delayed, transactional, for a retry topic, too large for a batch) is a unit of its
own, a SEND_MESSAGE_V2; so is one that is alone anyway. All others travel as SEND_BATCH_MESSAGE.

Delayed messages. Our own brokers are handed delayed messages ready for the schedule topic, with
their real topic and queue among their properties. Brokers of a cluster schedule messages
themselves, and refuse the schedule topic from clients: `unscheduled` turns such messages back.

Next step down: queue_selection.py chooses each unit's queue, broker_share.py sends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec import layout
from broker_core.codec.compression import compress, compression_flags, compression_of
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.text import join_entries, parse_properties
from broker_core.codec.property_names import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
)
from broker_core.codec.spans import spans_of
from broker_core.errors import IllegalMessageError
from broker_core.wire.remoting.send_message import ENTRY_OVERHEAD_BYTES, encode_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray

ANY_WRITE_QUEUE = -(1 << 31)
"""The write queue of messages that may go to any queue, also of another broker if one fails."""

BROKER_PROPERTIES_BYTES = 160
"""Bytes that brokers may add to a message's properties."""
_ALONE = r"(^|\x02)(DELAY|TIMER_DELIVER_MS|TIMER_DELAY_SEC|TIMER_DELAY_MS|TRAN_MSG)\x01"
_Column = TypeVar("_Column", "NDArray[np.int32] | int", "NDArray[np.int64] | int")

# One more request costs about as much as compressing 20 small bodies.
_BODIES_PER_REQUEST = 20


@dataclass(frozen=True, eq=False)
class SendUnit:
    """Messages for one request. `rows` are their numbers in the batch they came from.

    `body` is the request's body: a batch's entries (wire/remoting/send_message.py), or a single
    message's own, which has its `properties` beside it. `write_queue` is ANY_WRITE_QUEUE or the
    number of one of the topic's write queues. `is_visible` is False if the queue will not show the
    message at once: it is delayed, or half a transaction.
    """

    topic: str
    write_queue: int
    rows: NDArray[np.int64]
    body: bytes
    sys_flag: int
    born_timestamp_ms: int
    properties: bytes | None = None
    flag: int = 0
    is_visible: bool = True


def unscheduled(messages: MessageBatch) -> MessageBatch:
    """Return messages with those for the schedule topic put back into their real topics."""
    if SCHEDULE_TOPIC not in messages.topics:
        return messages
    topics = [topic for topic in messages.topics if topic != SCHEDULE_TOPIC]
    schedule = list(messages.topics).index(SCHEDULE_TOPIC)
    is_delayed = messages.topic_codes == schedule
    codes = np.where(
        messages.topic_codes > schedule, messages.topic_codes - 1, messages.topic_codes
    )
    queue_ids = messages.queue_ids.copy()
    texts = []
    for row in np.flatnonzero(is_delayed).tolist():
        properties = parse_properties(messages.property_texts[row].as_py())
        topic, queue_id = properties.pop(REAL_TOPIC), properties.pop(REAL_QUEUE_ID)
        if topic not in topics:
            topics.append(topic)
        codes[row], queue_ids[row] = topics.index(topic), int(queue_id)
        texts.append(join_entries(properties))
    return replace(
        messages,
        topics=topics,
        topic_codes=codes.astype(np.int32),
        queue_ids=queue_ids,
        properties=pc.replace_with_mask(
            messages.property_texts,
            pa.array(is_delayed),
            pa.array(texts, type=pa.binary()),
        ),
    )


def plan_send_units(
    messages: MessageBatch, batch_bytes: int, max_message_bytes: int
) -> list[SendUnit]:
    """Cut a batch into send units; IllegalMessageError for a message that brokers would refuse."""
    _check_sizes(messages, max_message_bytes)
    # lexsort is stable: messages of one write queue keep their order.
    order = np.lexsort((messages.queue_ids, messages.topic_codes)).astype(np.int64)
    arranged = _evenly_packed(_take(messages, order))
    body_lengths = spans_of(arranged.bodies).lengths
    properties_lengths = arranged.property_parts.lengths
    sizes = ENTRY_OVERHEAD_BYTES + body_lengths + properties_lengths
    alone = _must_go_alone(arranged) | (sizes > min(batch_bytes, max_message_bytes))
    units: list[SendUnit] = []
    for start, stop in _runs(arranged, alone):
        if alone[start]:
            units += [_single(arranged, row, order) for row in range(start, stop)]
        else:
            units += _batches(arranged, start, stop, order, batch_bytes)
    return units


def _take(messages: MessageBatch, order: NDArray[np.int64]) -> MessageBatch:
    if bool((np.diff(order) == 1).all()):
        return messages

    def at(column: _Column) -> _Column:
        return column if isinstance(column, int) else column[order]

    rows = pa.array(order)
    return replace(
        messages,
        topic_codes=messages.topic_codes[order],
        queue_ids=messages.queue_ids[order],
        bodies=messages.bodies.take(rows),
        properties=messages.property_texts.take(rows),
        born_timestamps=at(messages.born_timestamps),
        sys_flags=at(messages.sys_flags),
        flags=at(messages.flags),
    )


def _evenly_packed(messages: MessageBatch) -> MessageBatch:
    """Compress the plain bodies of a mixture that would fall into many small requests.

    All entries of a request are compressed alike, or none is: the flag stands in its header.
    """
    flags = messages.sys_flags
    if isinstance(flags, int) or not len(flags):
        return messages
    changes = int(np.count_nonzero(np.diff(flags)))
    plain = (flags & layout.SysFlag.COMPRESSED) == 0
    kinds = {compression_of(int(flag)) for flag in np.unique(flags[~plain])}
    # Each change of flags ends a request. Compressing the plain bodies pays where they are fewer
    # than what the requests saved are worth.
    if len(kinds) != 1 or changes * _BODIES_PER_REQUEST < int(np.count_nonzero(plain)):
        return messages
    (kind,) = kinds
    rows = np.flatnonzero(plain)
    packed = [compress(body, kind) for body in messages.bodies.take(pa.array(rows)).to_pylist()]
    bodies = pc.replace_with_mask(
        messages.bodies.cast(pa.binary()), pa.array(plain), pa.array(packed, type=pa.binary())
    )
    mask = layout.COMPRESSION_MASK | layout.SysFlag.COMPRESSED
    return replace(messages, bodies=bodies, sys_flags=(flags & ~mask) | compression_flags(kind))


def _must_go_alone(messages: MessageBatch) -> NDArray[np.bool_]:
    marked = pc.match_substring_regex(messages.property_texts, _ALONE)
    alone: NDArray[np.bool_] = pc.fill_null(marked, fill_value=False).to_numpy(zero_copy_only=False)
    retried = [topic.startswith(RETRY_PREFIX) for topic in messages.topics]
    if any(retried):
        alone = alone | np.array(retried, dtype=np.bool_)[messages.topic_codes]
    return alone


def _runs(messages: MessageBatch, alone: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield runs of messages with equal topic, write queue and system flags, alone or not."""
    count = len(messages)
    if not count:
        return
    changes = np.diff(messages.topic_codes) != 0
    changes |= np.diff(messages.queue_ids) != 0
    changes |= alone[1:] != alone[:-1]
    if not isinstance(messages.sys_flags, int):
        changes |= np.diff(messages.sys_flags) != 0
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), count]
    yield from pairwise(bounds)


def _batches(
    messages: MessageBatch, start: int, stop: int, order: NDArray[np.int64], batch_bytes: int
) -> Iterator[SendUnit]:
    part = messages.slice(start, stop)
    # All entries of the run at once, then cut at their bounds.
    data, bounds = encode_entries(part.bodies, part.property_texts, part.flags)
    at = 0
    while at < len(part):
        limit = int(bounds[at]) + batch_bytes
        end = max(at + 1, int(np.searchsorted(bounds, limit, side="right")) - 1)
        if end == at + 1:
            yield _single(messages, start + at, order)
        else:
            yield SendUnit(
                topic=messages.topics[int(part.topic_codes[0])],
                write_queue=int(part.queue_ids[0]),
                rows=order[start + at : start + end],
                body=bytes(data[int(bounds[at]) : int(bounds[end])]),
                sys_flag=_at(part.sys_flags, at),
                born_timestamp_ms=_at(part.born_timestamps, at),
            )
        at = end


def _single(messages: MessageBatch, row: int, order: NDArray[np.int64]) -> SendUnit:
    text = messages.property_texts[row].as_py() or b""
    return SendUnit(
        topic=messages.topics[int(messages.topic_codes[row])],
        write_queue=int(messages.queue_ids[row]),
        rows=order[row : row + 1],
        body=messages.bodies[row].as_py(),
        sys_flag=_at(messages.sys_flags, row),
        born_timestamp_ms=_at(messages.born_timestamps, row),
        properties=text,
        is_visible=re.search(_ALONE.encode(), text) is None,
        flag=_at(messages.flags, row),
    )


def _at(column: NDArray[np.int32] | NDArray[np.int64] | int, row: int) -> int:
    return column if isinstance(column, int) else int(column[row])


def _check_sizes(messages: MessageBatch, max_message_bytes: int) -> None:
    def refuse(row: int, what: str) -> None:
        topic = messages.topics[int(messages.topic_codes[row])]
        raise IllegalMessageError(
            f"Message {row} of this batch for topic '{topic}' {what}. Nothing was sent."
        )

    lengths = spans_of(messages.bodies).lengths
    if len(lengths) and int(lengths.min()) == 0:
        refuse(int(lengths.argmin()), "has no body, which RocketMQ's clients refuse")
    if len(lengths) and int(lengths.max()) > max_message_bytes:
        row = int(lengths.argmax())
        refuse(
            row,
            f"has a body of {int(lengths[row])} bytes, the limit is {max_message_bytes}"
            f" (maxMessageSize)",
        )
    lengths = messages.property_parts.lengths
    limit = layout.MAX_PROPERTIES_BYTES - BROKER_PROPERTIES_BYTES
    if len(lengths) and int(lengths.max()) > limit:
        row = int(lengths.argmax())
        refuse(row, f"has {int(lengths[row])} bytes of properties, the limit is {limit}")
