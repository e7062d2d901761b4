"""Batch: records that are appended together, all of them or none, prepared outside the lock.

Everything that does not depend on where the batch will lie is computed before the lock is taken
(`make_ready`): the records' bytes, their order by queue, and their dispatch requests (tags codes
and index keys). Under the lock `place` fills in offsets and the store time.

A batch has several parts where it was joined, or where it is larger than one Arrow buffer may be.
Dispatch requests belong to a part, so that joining batches keeps what was computed for each.

Next in an append: writer.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.dispatch_request import (
    DispatchRequests,
    LocatedRecords,
    dispatch_requests,
    join_requests,
    requests_of_located,
)
from broker_core.codec.encode import EncodedRecords, encode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.layout import MAX_BODY_BYTES, TRANSACTION_MASK, SysFlag
from broker_core.codec.message_batch import Destinations
from broker_core.codec.properties.checksum import fill_checksums, reserve_checksums
from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.store.dispatch import QueueGroups, group_by_queue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.message_batch import MessageBatch
    from broker_core.codec.properties.join import DispatchValues

# Arrow joins records with 32-bit offsets.
PART_BYTES = 512 << 20


@dataclass(frozen=True)
class Part:
    """Encoded records in one buffer, and what is known of them before they are read again.

    `known` saves reading the records: their dispatch requests, or the route, flags and lengths from
    which requests follow. None for copies of stored records: everything is read out of the bytes.
    With `has_checksums` each record ends with a checksum of itself (codec/properties/checksum.py).
    """

    records: EncodedRecords
    known: DispatchRequests | LocatedRecords | None = None
    has_checksums: bool = False

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def requests(self) -> DispatchRequests:
        """Dispatch requests; offsets and store times are 0 until the batch is placed.

        Computed on first use: records that go into a half block are not dispatched.
        """
        if isinstance(self.known, DispatchRequests):
            return self.known
        if self.known is not None:
            return requests_of_located(self.known, np.zeros(len(self), dtype=np.int64))
        return _read_requests(self.records, ())

    def with_checksums(self) -> Part:
        """Return the part with room for checksums; a part that has it stays as it is."""
        # What was known speaks of the sizes before records grew.
        return (
            self
            if self.has_checksums
            else Part(reserve_checksums(self.records), has_checksums=True)
        )

    def patch(
        self,
        queue_offsets: NDArray[np.int64],
        physical_offsets: NDArray[np.int64],
        store_ms: int,
    ) -> None:
        """Write offsets and store time into the records, then the checksums that cover them."""
        self.records.patch(queue_offsets, physical_offsets, store_ms)
        if self.has_checksums:
            fill_checksums(self.records)


@dataclass(frozen=True)
class Batch:
    """Encoded records and their destinations; `in_queue` tells which get a consume-queue entry."""

    parts: tuple[Part, ...]
    route: Destinations
    in_queue: NDArray[np.bool_]

    @classmethod
    def of_messages(
        cls, messages: MessageBatch, *, max_message_bytes: int = MAX_BODY_BYTES
    ) -> Batch:
        """Encode messages; IllegalMessageError for one over a limit."""
        parts = [
            _encoded(part, max_message_bytes=max_message_bytes)
            for part in messages.parts(PART_BYTES)
        ]
        transaction = np.asarray(messages.sys_flags) & TRANSACTION_MASK
        in_queue = (transaction == 0) | (transaction == SysFlag.COMMIT)
        return cls(tuple(parts), messages.destinations, np.broadcast_to(in_queue, len(messages)))

    @classmethod
    def of_copies(cls, records: EncodedRecords, route: Destinations) -> Batch:
        """Return copies of stored records (codec/record_copy.py), each with a queue entry."""
        return cls._all_in_queues(Part(records), route)

    @classmethod
    def of_located(
        cls,
        records: EncodedRecords,
        route: Destinations,
        properties_lengths: NDArray[np.int64],
        sys_flags: NDArray[np.int32] | int,
    ) -> Batch:
        """Return records whose fields the caller has located already, each with a queue entry."""
        known = _located(records, route, properties_lengths, sys_flags)
        return cls._all_in_queues(Part(records, known), route)

    @classmethod
    def _all_in_queues(cls, part: Part, route: Destinations) -> Batch:
        return cls((part,), route, np.broadcast_to(np.bool_(True), len(part)))

    @classmethod
    def join(cls, batches: Sequence[Batch]) -> Batch:
        """Return several batches as one, in order."""
        if len(batches) == 1:
            return batches[0]
        topics: list[str] = []
        codes = []
        for batch in batches:
            codes.append(batch.route.topic_codes + np.int32(len(topics)))
            topics.extend(batch.route.topics)
        route = Destinations(
            topics,
            np.concatenate(codes),
            np.concatenate([batch.route.queue_ids for batch in batches]),
        )
        parts = tuple(part for batch in batches for part in batch.parts)
        return cls(parts, route, np.concatenate([batch.in_queue for batch in batches]))

    def with_checksums(self) -> Batch:
        """Return the batch with property checksums; one that has them stays as it is."""
        if all(part.has_checksums for part in self.parts):
            return self
        return replace(self, parts=tuple(part.with_checksums() for part in self.parts))

    def __len__(self) -> int:
        return len(self.route)

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        """Each record's bytes."""
        sizes = [part.records.sizes for part in self.parts]
        return np.concatenate(sizes) if sizes else np.zeros(0, dtype=np.int32)

    @cached_property
    def groups(self) -> QueueGroups:
        """The records by queue."""
        route = self.route
        return group_by_queue(route.topics, route.topic_codes, route.queue_ids, self.in_queue)

    @cached_property
    def requests(self) -> DispatchRequests:
        """Dispatch requests of all records; offsets are 0 until the batch is placed."""
        return join_requests([part.requests for part in self.parts])

    def make_ready(self) -> Batch:
        """Compute all that can be known outside the lock; parts keep theirs when joined."""
        if self.parts:
            _ = self.groups, self.sizes, self.requests
        return self

    def place(
        self,
        queue_offsets: NDArray[np.int64],
        physical_offsets: NDArray[np.int64],
        store_ms: int,
        delay_levels: Sequence[int],
    ) -> DispatchRequests:
        """Write offsets and store time into the records; return the final dispatch requests."""
        first = 0
        for part in self.parts:
            rows = slice(first, first + len(part))
            first += len(part)
            part.patch(queue_offsets[rows], physical_offsets[rows], store_ms)
        requests = self.requests
        if SCHEDULE_TOPIC in requests.topics:
            # Its entries carry the time of delivery, which counts from the store time: read the
            # records again, now that they have one.
            requests = join_requests(
                [
                    _read_requests(part.records, delay_levels)
                    if SCHEDULE_TOPIC in part.requests.topics
                    else part.requests
                    for part in self.parts
                ]
            )
        return replace(
            requests,
            queue_offsets=queue_offsets,
            physical_offsets=physical_offsets,
            store_timestamps=np.broadcast_to(np.int64(store_ms), len(self)),
        )


def _encoded(messages: MessageBatch, *, max_message_bytes: int) -> Part:
    """Encode messages into one part; what the columns say need not be read from the records."""
    records = encode(messages, max_message_bytes=max_message_bytes)
    properties = messages.property_parts
    known = _located(
        records,
        messages.destinations,
        properties.lengths,
        messages.sys_flags,
        values=properties.dispatch_values,
    )
    return Part(records, known)


def _located(
    records: EncodedRecords,
    route: Destinations,
    properties_lengths: NDArray[np.int64],
    sys_flags: NDArray[np.int32] | int,
    *,
    values: DispatchValues | None = None,
) -> LocatedRecords:
    return LocatedRecords(
        records.buffer,
        records.starts,
        records.sizes,
        route.topics,
        route.topic_codes,
        route.queue_ids,
        np.broadcast_to(np.asarray(sys_flags, dtype=np.int32), len(records)),
        properties_lengths,
        values,
    )


def _read_requests(records: EncodedRecords, delay_levels: Sequence[int]) -> DispatchRequests:
    """Read dispatch requests out of encoded records."""
    nowhere = np.zeros(len(records), dtype=np.int64)
    frames = FrameBatch(records.buffer, records.starts, records.sizes, nowhere, name="the batch")
    return dispatch_requests(frames, delay_levels=delay_levels)
