"""Admission of encoded records: what a client sent, checked and made ready to be appended.

Requests carry records as the log holds them, made by the client with everything but what only the
holder of the store's lock knows. Nothing of them is trusted: each must be whole, its body must have
its checksum, and the rules of the door hold (the package's docstring). Hosts and prepared offset
are the broker's to say and are written over.

`admit` checks columns of many records. Its twin for up to 64 plain records is few.py,
whose `admit_appends` chooses between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from broker_core.broker.admission.door import CLIENT_FLAGS, illegal_body, illegal_flags
from broker_core.broker.admission.properties import refuse_own_in
from broker_core.codec import layout
from broker_core.codec.compression import (
    MAX_INFLATED_BYTES,
    InflateError,
    require_inflatable,
)
from broker_core.codec.decode import property_columns
from broker_core.codec.encode import EncodedRecords
from broker_core.codec.fields import RecordFields, locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.hosts import is_v6
from broker_core.codec.message_batch import Destinations
from broker_core.codec.property_names import REAL_TOPIC, SCHEDULE_TOPIC
from broker_core.codec.spans import gather_spans, sliding, starts_of
from broker_core.errors import CorruptRecordError, IllegalMessageError, RequestError
from broker_core.jit import availability
from broker_core.store.batch import Batch
from broker_core.store.few_records import MOST_RECORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.admission.door import Door
    from broker_core.broker.transactions.ownership import Permit

INFLATED_BYTES = 64 << 20
INFLATED_TIMES = 64
"""The compressed bodies of an append inflate to at most 64 MiB, or 64 times its bytes if that is
more: checking them takes time by what they grow to, and 150 bytes can grow to 4 MiB."""
_COMPRESSED = int(layout.SysFlag.COMPRESSED)
_NAME = "the request"
_STORE_ADVICE = " Run `rocketmq-broker check` on the store."


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one request, one after another, and the address that they came from."""

    data: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    born_host: bytes | None = None

    def __post_init__(self) -> None:
        # Requests are joined: a byte too many here would be read as part of another's record.
        # Few sizes are summed without arrays, which take longer for one than for a thousand.
        few = len(self.sizes) <= MOST_RECORDS
        total = sum(self.sizes.tolist()) if few else int(self.sizes.sum(dtype=np.int64))
        if total != len(self.data):
            message = (
                f"A request of {len(self.sizes)} records has {len(self.data)} bytes, which is not "
                "what their sizes add up to. Nothing was written."
            )
            raise RequestError(message)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def has_compressed(self) -> bool:
        """True if a body has to be inflated to be checked; nothing else of them was checked yet."""
        if len(self.sizes) <= MOST_RECORDS:
            return self._has_compressed_of_few()
        lowest_byte = starts_of(self.sizes) + layout.SYS_FLAG + 3
        flags = self.data.take(lowest_byte, mode="clip") if len(self.data) else self.data
        return bool((flags & _COMPRESSED).any())

    def _has_compressed_of_few(self) -> bool:
        data, at = self.data.data, layout.SYS_FLAG + 3
        for size in self.sizes.tolist():
            if at < len(data) and data[at] & _COMPRESSED:
                return True
            at += size
        return False


def admit(door: Door, requests: Sequence[Records], permits: Sequence[Permit | None] = ()) -> Batch:
    """Check the records of several requests and return them as one batch, in order.

    `permits` has each request's, None or none at all permits every topic; it is asked before the
    door is, which tells what exists. Raise IllegalMessageError or RequestError for records that no
    client may send, TopicNotFoundError and PermissionDeniedError as `append` does. One bad request
    refuses all.
    """
    data = _writable([request.data for request in requests])
    sizes = np.concatenate([request.sizes for request in requests]).astype(np.int32, copy=False)
    starts = starts_of(sizes)
    nowhere = np.zeros(len(sizes), dtype=np.int64)
    fields = _located(FrameBatch(data, starts, sizes, nowhere, name=_NAME, verify=True))
    # Structure and checksums are checked now, by `verify`: what follows may trust positions.
    store_host = door.settings.store_host
    _check_flags(fields, store_host)
    _check_bodies(fields, door.settings.max_message_bytes)
    route = _destinations(fields)
    bounds = np.cumsum([len(request) for request in requests]).tolist()
    for permit, end, request in zip(permits, bounds, requests, strict=bool(permits)):
        if permit is not None:
            permit(_topics(fields, route, slice(end - len(request), end)))
    door.require_destinations(route, fields.properties, sizes)
    refuse_own_in(fields.properties, route)
    _put_born_hosts(data, starts, requests, bounds)
    _put_host(data, starts + layout.STORE_HOST, store_host)
    # Behind the hosts, whose width the flags tell: no client says of what its message is a copy.
    prepared_at = fields.bodies.starts - (layout.BODY - layout.PREPARED_OFFSET)
    _put_host(data, prepared_at, bytes(layout.BODY_LENGTH - layout.PREPARED_OFFSET))
    encoded = EncodedRecords(data, starts, sizes, layout.STORE_TIMESTAMP)
    return Batch.of_located(encoded, route, fields.properties.lengths, fields.sys_flags)


def _writable(parts: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return the parts one after another, in memory that can be written to."""
    return parts[0] if len(parts) == 1 and parts[0].flags.writeable else np.concatenate(parts)


def _located(frames: FrameBatch) -> RecordFields:
    try:
        return locate(frames)
    except CorruptRecordError as error:
        what = str(error).partition(": ")[2].removesuffix(_STORE_ADVICE)
        message = f"The request holds bytes that are no record: {what} Nothing was written."
        raise RequestError(message) from error


def _check_flags(fields: RecordFields, store_host: bytes) -> None:
    flags = fields.sys_flags
    allowed = CLIENT_FLAGS | (layout.SysFlag.STORE_HOST_V6 if is_v6(store_host) else 0)
    is_wide = (flags & layout.SysFlag.STORE_HOST_V6) != 0
    wrong = ((flags & ~allowed) != 0) | (is_wide != is_v6(store_host))
    if wrong.any():
        row = int(wrong.argmax())
        raise illegal_flags(row, int(flags[row]))


def _check_bodies(fields: RecordFields, limit: int) -> None:
    lengths = fields.bodies.lengths
    wrong = (lengths == 0) | (lengths > limit)
    if wrong.any():
        row = int(wrong.argmax())
        raise illegal_body(row, int(lengths[row]), limit)
    _check_inflatable(fields, min(max(limit, layout.MAX_BODY_BYTES), MAX_INFLATED_BYTES))


def _check_inflatable(fields: RecordFields, limit: int) -> None:
    """Raise IllegalMessageError for a compressed body that a reader could not take.

    `limit` counts inflated bytes of one: clients compress bodies of at most maxMessageSize.
    """
    left = max(INFLATED_BYTES, INFLATED_TIMES * len(fields.data))
    # One by one, as they were compressed: no kernel inflates many.
    for row in np.flatnonzero(fields.sys_flags & layout.SysFlag.COMPRESSED).tolist():
        start, end = int(fields.bodies.starts[row]), int(fields.bodies.ends[row])
        try:
            body, flags = fields.data[start:end].tobytes(), int(fields.sys_flags[row])
            left -= require_inflatable(body, flags, limit)
        except InflateError as error:
            # Every reader of the topic would fail at it.
            message = f"Message {row} of the request can't be read: {error}. Nothing was written."
            raise IllegalMessageError(message) from error
        if left < 0:
            message = (
                f"The bodies of the first {row + 1} messages of the request inflate to more than "
                f"{INFLATED_BYTES} bytes and {INFLATED_TIMES} times the request. Nothing was "
                f"written; send them in smaller parts."
            )
            raise IllegalMessageError(message)


def _destinations(fields: RecordFields) -> Destinations:
    """Return the topics and queues that the records name."""
    queue_ids = fields.integer("queueId").astype(np.int32)
    if fields.topic is not None:
        return Destinations((fields.topic,), np.zeros_like(queue_ids), queue_ids)
    column = gather_spans(fields.topics)
    encoded = pc.dictionary_encode(column)
    topics = [raw.decode("utf-8", "replace") for raw in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy().astype(np.int32)
    return Destinations(topics, codes, queue_ids)


def _topics(fields: RecordFields, route: Destinations, rows: slice) -> set[str]:
    """Return the topics that messages in `rows` are for; real ones if delayed."""
    codes = route.topic_codes[rows]
    found: set[str] = set()
    for code in np.unique(codes).tolist():
        topic = route.topics[code]
        if topic == SCHEDULE_TOPIC:
            found |= _real_topics(fields, rows.start + np.flatnonzero(codes == code))
        else:
            found.add(topic)
    return found


def _real_topics(fields: RecordFields, rows: NDArray[np.intp]) -> set[str]:
    """Return the topics that delayed messages name, those in `rows`; the door refuses odd names."""
    frames = replace(fields.frames.select(rows), verify=False)
    named = property_columns(frames, [REAL_TOPIC])[REAL_TOPIC].unique().to_pylist()
    return {topic for topic in named if topic is not None}


def _put_born_hosts(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    requests: Sequence[Records],
    bounds: Sequence[int],
) -> None:
    at = starts + layout.BORN_HOST
    # Hosts carry no port, so that requests of one machine, on several connections, take this way.
    if len({request.born_host for request in requests}) == 1:
        _put_host(data, at, requests[0].born_host)
        return
    for request, end in zip(requests, bounds, strict=True):
        _put_host(data, at[end - len(request) : end], request.born_host)


def _put_host(data: NDArray[np.uint8], at: NDArray[np.int64], host: bytes | None) -> None:
    if host is None:
        return
    if len(host) == layout.HOST_V4 and availability.is_worth(len(at)):
        from broker_core.codec.spans_kernels import put_long

        if put_long(data, at, int.from_bytes(host, "big", signed=True)):
            return
    sliding(data, np.dtype((np.void, len(host))))[at] = np.void(host)
