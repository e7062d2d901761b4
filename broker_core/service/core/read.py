"""Handlers of calls that read: topics, offsets, ranges of queues, single messages.

Rights are asked before a handler runs (auth/method_rules.py); only `topics` and `message` ask here,
since their answers depend on them. Every handler takes a request and a Call, also where it needs
one of them only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from broker_core.broker.query import as_frames, find_by_id, find_by_key, not_found
from broker_core.codec.schema import schema_of
from broker_core.errors import OffsetRangeError, RequestError
from broker_core.filter.pipeline import MessageFilter
from broker_core.service.auth import method_rules
from broker_core.service.auth.user_rights import ANYONE
from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.frames import join_packed, pack_columns, pack_frames

if TYPE_CHECKING:
    from broker_core.broker.broker import EmbeddedBroker
    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.record import Record
    from broker_core.service.broker_pool import BrokerPool
    from broker_core.service.core.rpc import Call
    from broker_core.types import TopicInfo
    from broker_core.wire.core.methods import Limits

log = logging.getLogger(__name__)
MOST_ROWS = 1 << 20
MOST_COLUMNS = 256
MOST_VALUES = 1 << 24
"""Values that are decoded at a time, nulls too: rows times columns."""
REPLY_BYTES = 256 << 20
"""Bytes of the replies of all pulls together, half of it for one user: with many pulls open, the
replies of those that begin are smaller. A reply that its client does not take is held."""
LONGEST_WAIT_S = 60.0
COLUMNS_AHEAD = 4
"""Chunks' worth of records that are decoded at a time: columns are smaller than records."""
_RECORD_BYTES = 1024
"""Memory that a single record takes beside its body."""
FOLLOW_PAUSE_S = 0.005
"""A follower gets at most one reply every 5 ms, with all that arrived since the last one. Under
load the slowest hundredth of messages then takes 0.7 of the time that it took without."""


class ReadHandlers:
    """Handlers of calls that change nothing."""

    def __init__(self, pool: BrokerPool, limits: Limits) -> None:
        self._pool = pool
        self._limits = limits
        self._lock = threading.Lock()
        self._pulls: Counter[str] = Counter()

    # Topics and offsets

    def topics(self, request: pb.Empty, call: Call) -> pb.TopicList:
        """Return the names of the topics that the caller has any right on."""
        with self._pool.broker() as broker:
            found = method_rules.visible(call.identity, broker.topics())
        return pb.TopicList(topics=found)

    def describe(self, request: pb.Topic, call: Call) -> pb.TopicInfo:
        """Return the description of a topic."""
        with self._pool.broker() as broker:
            return topic_message(broker.describe(request.topic))

    def offsets(self, request: pb.Topic, call: Call) -> pb.TopicBounds:
        """Return (min, max) of every queue of a topic."""
        with self._pool.broker() as broker:
            return self._bounds(broker, request.topic)

    def offset_at(self, request: pb.OffsetAt, call: Call) -> pb.Offset:
        """Return the first offset at or after a time."""
        name = request.broker_name if request.HasField("broker_name") else None
        with self._pool.broker() as broker:
            found = broker.offset_at(
                request.topic, request.queue_id, request.timestamp_ms, broker_name=name
            )
        return pb.Offset(offset=found)

    def consumer_offsets(self, request: pb.Group, call: Call) -> pb.GroupOffsets:
        """Return the next offsets of a consumer group."""
        with self._pool.broker() as broker:
            found = broker.consumer_offsets(request.group, request.topic)
        queues = [
            pb.QueueOffset(queue_id=queue.queue_id, offset=offset)
            for queue, offset in found.items()
        ]
        return pb.GroupOffsets(broker_name=self._pool.settings.broker_name, queues=queues)

    def wait(self, request: pb.Await, call: Call) -> pb.TopicBounds:
        """Return (min, max) of every queue as soon as one of them goes beyond a known offset.

        They are returned as they are when the time is over or the broker stops. RequestError for
        queues that the topic lacks, or that are named twice: a request can name very many.
        """
        with self._pool.broker() as broker:
            known = _known_offsets(broker, request)
        keys = [(request.topic, queue_id) for queue_id in known]
        wait_s = min(max(0.0, request.timeout_ms / 1000), LONGEST_WAIT_S)
        until_s = time.monotonic() + wait_s
        with (
            call.waiting() if wait_s else nullcontext(),
            self._pool.broker() as broker,
            self._pool.arrivals.watch(keys) as watch,
        ):
            call.when_over(watch.wake)
            # The watch is set up before the look: an arrival in between ends the wait at once.
            while True:
                call.require_still()
                held = self._bounds(broker, request.topic)
                has_come = any(
                    queue.maximum > known.get(queue.queue_id, queue.maximum)
                    for queue in held.queues
                )
                left_s = until_s - time.monotonic()
                if has_come or left_s <= 0 or not call.is_active or self._pool.is_stopping:
                    return held
                watch.wait(min(left_s, call.recheck_s))

    def _bounds(self, broker: EmbeddedBroker, topic: str) -> pb.TopicBounds:
        queues = [
            pb.QueueBounds(queue_id=queue.queue_id, minimum=minimum, maximum=maximum)
            for queue, (minimum, maximum) in broker.offsets(topic).items()
        ]
        return pb.TopicBounds(broker_name=self._pool.settings.broker_name, queues=queues)

    # Messages

    def pull(self, request: pb.Pull, call: Call) -> Iterator[bytes]:
        """Yield the messages of a range in chunks, filtered; with `follow`, also later ones."""
        queue = QueueRef(request.topic, request.broker_name, request.queue_id)
        wanted_filter = filter_of(request.filter)
        _columns(request)  # now: a follower that finds nothing keeps them
        waiting = call.waiting() if request.follow else nullcontext()
        with waiting, self._pulling(call) as most_bytes, self._pool.broker() as broker:
            wanted = OffsetRange(queue, LogicalOffset(request.start), LogicalOffset(request.end))
            if request.follow:
                yield from self._follow(broker, wanted, wanted_filter, request, most_bytes, call)
            else:
                before = broker.filter_count
                yield from self._range(broker, wanted, wanted_filter, request, most_bytes)
                if wanted_filter is not None:
                    work = broker.filter_count - before
                    log.info("event=filtered queue=%s %s", queue, work)

    @contextmanager
    def _pulling(self, call: Call) -> Iterator[int]:
        """Count a pull over a block; yield the bytes that its replies may have."""
        user = "" if call.identity is ANYONE else call.identity.name
        with self._lock:
            self._pulls[user] += 1
            own, total = self._pulls[user], self._pulls.total()
        try:
            share = REPLY_BYTES // 2 // own if user else REPLY_BYTES
            yield min(self._limits.chunk_bytes, share, REPLY_BYTES // total)
        finally:
            with self._lock:
                self._pulls[user] -= 1
                self._pulls += Counter()  # forgets users without a pull

    def _range(
        self,
        broker: EmbeddedBroker,
        wanted: OffsetRange,
        wanted_filter: MessageFilter | None,
        request: pb.Pull,
        most_bytes: int,
    ) -> Iterator[bytes]:
        asked = request.batch_bytes
        chunk_bytes = min(asked, most_bytes) if asked > 0 else most_bytes
        columns = tuple(request.columns)
        rows = request.batch_rows if 0 < request.batch_rows < MOST_ROWS else MOST_ROWS
        # Many columns of small messages take more memory than the messages do.
        rows = max(1, min(rows, MOST_VALUES // max(1, len(columns))))
        frames = broker.pull(
            wanted,
            message_filter=wanted_filter,
            batch_rows=rows,
            batch_bytes=chunk_bytes * COLUMNS_AHEAD if columns else chunk_bytes,
            verify=request.verify if request.HasField("verify") else None,
        )
        for batch in frames:
            if columns:
                yield from pack_columns(batch, columns, chunk_bytes)
            else:
                yield pack_frames(batch)

    def _follow(
        self,
        broker: EmbeddedBroker,
        wanted: OffsetRange,
        wanted_filter: MessageFilter | None,
        request: pb.Pull,
        most_bytes: int,
        call: Call,
    ) -> Iterator[bytes]:
        queue, at = wanted.queue, wanted.start
        key, arrivals = (queue.topic, queue.queue_id), self._pool.arrivals
        is_ours = queue.broker_name == self._pool.settings.broker_name
        # Arrivals in memory are neither filtered nor verified: such followers read the files.
        may_skip_files = is_ours and wanted_filter is None and not request.verify
        with arrivals.follow(key) as watch:
            call.when_over(watch.wake)
            while call.is_active and not self._pool.is_stopping:
                arrived = arrivals.arrived(key, at, most_bytes if may_skip_files else 0)
                if arrived:
                    yield join_packed([each.packed for each in arrived])
                    at = LogicalOffset(arrived[-1].end)
                    time.sleep(FOLLOW_PAUSE_S)
                    continue
                # At the end of the last arrival there is nothing to find in the files either.
                if not (may_skip_files and arrivals.is_at_end(key, at)):
                    end = _end(broker, queue, at)
                    if end > at:
                        ahead = OffsetRange(queue, at, end)
                        yield from self._range(broker, ahead, wanted_filter, request, most_bytes)
                        at = end
                        continue
                watch.wait(call.recheck_s)
                call.require_still()
        if self._pool.is_stopping:
            raise self._pool.stopping()

    def query(self, request: pb.Query, call: Call) -> Iterator[bytes]:
        """Yield the messages with a key, in chunks, each of which is read when it is sent.

        There may be any number of them: Spark asks for all messages with a key.
        """
        if request.limit < 1:
            message = f"A query's limit is {request.limit}; give 1 or more."
            raise RequestError(message)
        with self._pool.broker() as broker:
            broker.describe(request.topic)
            found = find_by_key(broker.reader, request.topic, request.key, request.limit)
            for records in _in_parts(found, self._limits.chunk_bytes):
                yield from self._packed(as_frames(records, broker.reader))

    def message(self, request: pb.MessageId, call: Call) -> Iterator[bytes]:
        """Yield the message with an id; raise MessageNotFoundError if the caller can't read it."""
        with self._pool.broker() as broker:
            topics = method_rules.readable(call.identity, broker.topics())
            record = find_by_id(broker.reader, topics, request.message_id)
            # An offset id names a record of any topic: its right is asked when it has been read.
            if not method_rules.readable(call.identity, [record.topic]):
                raise not_found(request.message_id)
            frames = as_frames([record], broker.reader)
        yield from self._packed(frames)

    def _packed(self, frames: FrameBatch) -> Iterator[bytes]:
        for part in frames.cut(self._limits.chunk_bytes, MOST_ROWS):
            yield pack_frames(part)


def topic_message(info: TopicInfo) -> pb.TopicInfo:
    """Return the wire message of a topic's description."""
    return pb.TopicInfo(
        topic=info.name,
        broker_name=info.queues[0].broker_name if info.queues else "",
        read_queues=info.read_queues,
        write_queues=info.write_queues,
        perm=info.perm,
        queue_ids=[queue.queue_id for queue in info.queues],
        attributes=info.attributes,
    )


def filter_of(given: pb.Filter) -> MessageFilter | None:
    """Return the filter that a client asks for; raise FilterSyntaxError if it is none."""
    kind = given.WhichOneof("expression")
    if kind is None:
        return None
    return MessageFilter.of(**{kind: getattr(given, kind)})


def _columns(request: pb.Pull) -> tuple[str, ...]:
    """Return the columns that a client asks for; RequestError unless each exists and is one."""
    if len(request.columns) > MOST_COLUMNS or len(set(request.columns)) < len(request.columns):
        message = (
            f"{len(request.columns)} columns are to be read; name at most {MOST_COLUMNS}, and each "
            "once."
        )
        raise RequestError(message)
    columns = tuple(request.columns)
    schema_of(columns)  # refuses a column that does not exist, before anything is read
    return columns


def _in_parts(records: Iterable[Record], most_bytes: int) -> Iterator[list[Record]]:
    """Yield records in lists of about `most_bytes`; one that is empty if there are none."""
    held: list[Record] = []
    held_bytes = 0
    for record in records:
        if held_bytes >= most_bytes:
            yield held
            held, held_bytes = [], 0
        held.append(record)
        held_bytes += len(record.body) + _RECORD_BYTES
    yield held


def _known_offsets(broker: EmbeddedBroker, request: pb.Await) -> dict[int, int]:
    """Return the offsets that an Await names, by queue; raise unless its queues are the topic's."""
    broker.reader.refresh()
    catalog = broker.catalog
    held = catalog.readable_ids(request.topic, catalog.config(request.topic))
    # One more than the topic has tells as much as all of them.
    named = request.queues[: len(held) + 1]
    known = {queue.queue_id: queue.offset for queue in named}
    if len(known) < len(named) or not known.keys() <= set(held):
        message = (
            f"{len(request.queues)} queues of topic {request.topic} are to be awaited, but it has "
            f"{len(held)}; name queues that it has, each once."
        )
        raise RequestError(message)
    return known


def _end(broker: EmbeddedBroker, queue: QueueRef, at: int) -> LogicalOffset:
    """Return the max of a queue; raise if that is before `at`, or if there is no such queue."""
    held = broker.offsets(queue.topic).get(queue)
    if held is None:
        message = f"There is no queue {queue} to follow."
        raise RequestError(message)
    if held[1] < at:
        message = (
            f"Queue {queue} holds {held[0]} to {held[1]}, but {at} was asked for; start there."
        )
        raise OffsetRangeError(message, *held)
    return held[1]
