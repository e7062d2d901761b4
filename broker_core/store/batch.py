"""Batch: records that are appended together, all of them or none, made ready outside the lock.

Everything that does not depend on where the batch will lie is computed before the lock is taken:
the records' bytes, their order by queue, and what dispatch needs to know of them. Under the lock,
offsets and the store time are filled in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.dispatch_request import (
    DispatchRequests,
    Located,
    dispatch_requests,
    joined,
    requests_of_located,
)
from broker_core.codec.encode import EncodedRecords, encode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.layout import MAX_BODY_BYTES, TRANSACTION_MASK, SysFlag
from broker_core.codec.properties.checksum import fill_in, make_room
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.codec.record_copy import Route
from broker_core.store.dispatch import QueueGroups, group_by_queue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.encode import MessageBatch
    from broker_core.codec.properties.parts import Named

# Arrow joins records with 32-bit offsets.
PART_BYTES = 512 << 20


class Part(EncodedRecords):
    """Encoded records that remember what dispatch needs to know of them."""

    @classmethod
    def of(cls, records: EncodedRecords) -> Part:
        """The same records."""
        at = records.store_timestamp_at
        return cls(records.buffer, records.starts, records.sizes, at)

    @classmethod
    def known(cls, records: EncodedRecords, fields: DispatchRequests) -> Part:
        """The same records, of which somebody knows already what dispatch needs."""
        part = cls.of(records)
        part.__dict__["fields"] = fields  # where cached_property keeps it
        return part

    @cached_property
    def fields(self) -> DispatchRequests:
        """What dispatch needs; where the records will lie, and when, is not in it yet."""
        return _fields(self, ())


@dataclass(frozen=True)
class LocatedPart(Part):
    """A part of which everything is known that dispatch needs, but for what properties say.

    Those are read when they are asked for: what goes into half blocks is not dispatched.
    """

    located: Located

    @cached_property
    def fields(self) -> DispatchRequests:
        """What dispatch needs; where the records will lie, and when, is not in it yet."""
        return requests_of_located(self.located, np.zeros(len(self), dtype=np.int64))


class CheckedPart(Part):
    """A part whose records end with a checksum of themselves (codec/property_crc.py)."""

    @classmethod
    def of(cls, records: EncodedRecords) -> CheckedPart:
        """The records with room for the checksum."""
        if isinstance(records, cls):
            return records
        room = make_room(records)
        return cls(room.buffer, room.starts, room.sizes, room.store_timestamp_at)

    def patch(
        self,
        queue_offsets: NDArray[np.int64],
        physical_offsets: NDArray[np.int64],
        store_timestamp_ms: int,
    ) -> None:
        """Write what only the holder of the store's lock knows, then the checksums."""
        super().patch(queue_offsets, physical_offsets, store_timestamp_ms)
        fill_in(self)


@dataclass(frozen=True)
class Batch:
    """Encoded records and where they go; `in_queue` says which take a place in a queue."""

    parts: tuple[Part, ...]
    route: Route
    in_queue: NDArray[np.bool_]

    @classmethod
    def of_messages(
        cls, messages: MessageBatch, *, max_message_bytes: int = MAX_BODY_BYTES
    ) -> Batch:
        """Encode messages; IllegalMessageError for one over a limit."""
        parts = [
            _known(encode(part, max_message_bytes=max_message_bytes), part)
            for part in messages.parts(PART_BYTES)
        ]
        transaction = np.asarray(messages.sys_flags) & TRANSACTION_MASK
        in_queue = (transaction == 0) | (transaction == SysFlag.COMMIT)
        route = Route(messages.topics, messages.topic_codes, messages.queue_ids)
        return cls(tuple(parts), route, np.broadcast_to(in_queue, len(messages)))

    @classmethod
    def of_copies(cls, records: EncodedRecords, route: Route) -> Batch:
        """Copies of stored records (codec/copies.py), all of which have a place in a queue."""
        part = records if isinstance(records, Part) else Part.of(records)
        return cls((part,), route, np.broadcast_to(np.bool_(True), len(records)))

    @classmethod
    def join(cls, batches: Sequence[Batch]) -> Batch:
        """Several batches as one, in order."""
        if len(batches) == 1:
            return batches[0]
        topics: list[str] = []
        codes = []
        for batch in batches:
            codes.append(batch.route.topic_codes + np.int32(len(topics)))
            topics.extend(batch.route.topics)
        route = Route(
            topics,
            np.concatenate(codes),
            np.concatenate([batch.route.queue_ids for batch in batches]),
        )
        parts = tuple(part for batch in batches for part in batch.parts)
        return cls(parts, route, np.concatenate([batch.in_queue for batch in batches]))

    def with_checksums(self) -> Batch:
        """The batch with property checksums; one that has them stays as it is."""
        if all(isinstance(part, CheckedPart) for part in self.parts):
            return self
        return replace(self, parts=tuple(map(CheckedPart.of, self.parts)))

    def __len__(self) -> int:
        return len(self.route)

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        """Each record's bytes."""
        sizes = [part.sizes for part in self.parts]
        return np.concatenate(sizes) if sizes else np.zeros(0, dtype=np.int32)

    @cached_property
    def groups(self) -> QueueGroups:
        """The records by queue."""
        route = self.route
        return group_by_queue(route.topics, route.topic_codes, route.queue_ids, self.in_queue)

    @cached_property
    def fields(self) -> DispatchRequests:
        """What dispatch needs of all records; where they will lie, and when, is not in it yet."""
        return joined([part.fields for part in self.parts])

    def make_ready(self) -> Batch:
        """Compute all that can be known outside the lock; of parts it is kept when joined."""
        if self.parts:
            _ = self.groups, self.sizes, self.fields
        return self

    def place(
        self,
        queue_offsets: NDArray[np.int64],
        physical_offsets: NDArray[np.int64],
        store_ms: int,
        delay_levels: Sequence[int],
    ) -> DispatchRequests:
        """Fill in what is known only under the lock, in the records and for dispatch."""
        first = 0
        for part in self.parts:
            rows = slice(first, first + len(part))
            first += len(part)
            part.patch(queue_offsets[rows], physical_offsets[rows], store_ms)
        fields = self.fields
        if SCHEDULE_TOPIC in fields.topics:
            # Its entries carry the time of delivery, which counts from the store time.
            fields = joined(
                [
                    _fields(part, delay_levels)
                    if SCHEDULE_TOPIC in part.fields.topics
                    else part.fields
                    for part in self.parts
                ]
            )
        return replace(
            fields,
            queue_offsets=queue_offsets,
            physical_offsets=physical_offsets,
            store_timestamps=np.broadcast_to(np.int64(store_ms), len(self)),
        )


def _known(records: EncodedRecords, messages: MessageBatch) -> Part:
    """Records that were just made of messages: what they hold need not be read out of them."""
    route = Route(messages.topics, messages.topic_codes, messages.queue_ids)
    properties = messages.property_parts
    return known_part(
        records, route, properties.lengths, messages.sys_flags, named=properties.named
    )


def known_part(
    records: EncodedRecords,
    route: Route,
    properties_lengths: NDArray[np.int64],
    sys_flags: NDArray[np.int32] | int,
    *,
    named: Named | None = None,
) -> Part:
    """Records whose route, lengths of properties and flags somebody knows, and maybe more."""
    located = Located(
        records.buffer,
        records.starts,
        records.sizes,
        route.topics,
        route.topic_codes,
        route.queue_ids,
        np.broadcast_to(np.asarray(sys_flags, dtype=np.int32), len(records)),
        properties_lengths,
        named,
    )
    at = records.store_timestamp_at
    return LocatedPart(records.buffer, records.starts, records.sizes, at, located)


def _fields(part: EncodedRecords, delay_levels: Sequence[int]) -> DispatchRequests:
    rows = np.zeros(len(part), dtype=np.int64)
    frames = FrameBatch(part.buffer, part.starts, part.sizes, rows, name="the batch")
    return dispatch_requests(frames, delay_levels=delay_levels)
