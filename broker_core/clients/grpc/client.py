"""The broker behind gRPC: the Broker protocol (api.py) over a connection.

Used like an embedded one, from any number of threads and processes. Connections belong to one
process: after a fork the child makes its own. Filters run at the broker, before the network. An
error that the broker raises is raised here with its class, message and numbers.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from broker_core.api import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_ROWS,
    DEFAULT_QUERY_LIMIT,
    require_batch_limits,
)
from broker_core.clients.grpc.connection import Connection
from broker_core.clients.grpc.options import GrpcOptions
from broker_core.clients.grpc.pull import pull, pull_columns
from broker_core.clients.grpc.send import Appender, Parcel
from broker_core.clients.grpc.topic_cache import TopicCache
from broker_core.clients.grpc.transactions import GrpcTransactions
from broker_core.codec.decode import decode
from broker_core.codec.encode import encode
from broker_core.codec.hashing.java import index_hash, java_hash
from broker_core.codec.ids import UniqueIds, offset_id
from broker_core.codec.message import encode_single, message_properties
from broker_core.codec.schema import ALL_COLUMNS, schema_of
from broker_core.errors import (
    IllegalMessageError,
    PermissionDeniedError,
    RequestError,
    TopicNotFoundError,
)
from broker_core.filter.pipeline import MessageFilter
from broker_core.read_spec import ReadSpec, range_between
from broker_core.types import (
    Closing,
    ColumnBatch,
    LogicalOffset,
    OffsetRange,
    QueueRef,
    SendResult,
    TopicInfo,
)
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.frames import unpack

if TYPE_CHECKING:
    from broker_core.clients.address import BrokerAddress
    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.types import AppendResult
    from broker_core.wire.core.methods import Method


def open_client(address: BrokerAddress, mode: str, **options: Any) -> GrpcBroker:
    """Open the broker at a grpc:// or grpcs:// address; raise UnavailableError if none answers."""
    broker = GrpcBroker(address, GrpcOptions.of(options), is_writable=mode == "rw")
    broker.greet()
    return broker


class SharedIds:
    """Unique message ids for several threads."""

    def __init__(self) -> None:
        self._ids = UniqueIds()
        self._lock = threading.Lock()

    def make(self, now_ms: int) -> str:
        """Return a fresh id."""
        with self._lock:
            return self._ids.make_one(now_ms)


class ProcessState(NamedTuple):
    """Sockets, locks, names and caches of one process: none may be used across a fork.

    A child that used its parent's channel would mix its bytes with the parent's; one that used its
    ids and its client's name would repeat them.
    """

    pid: int
    connection: Connection
    appender: Appender
    topics: TopicCache
    unique_ids: SharedIds

    @classmethod
    def make(cls, address: BrokerAddress, options: GrpcOptions) -> ProcessState:
        """Return new state for the process that calls."""
        connection = Connection(address, options)
        return cls(
            os.getpid(), connection, Appender(connection), TopicCache(connection), SharedIds()
        )


class GrpcBroker(Closing):
    """A Broker (api.py) behind gRPC. Thread-safe, and usable in forked processes."""

    def __init__(self, address: BrokerAddress, options: GrpcOptions, *, is_writable: bool) -> None:
        self._parsed = address
        self._options = options
        self._is_writable = is_writable
        self._turn = random.randrange(1 << 16)
        self._made = ProcessState.make(self._parsed, self._options)

    @property
    def address(self) -> str:
        """The address it was opened with."""
        return self._parsed.text

    def greet(self) -> None:
        """Raise UnavailableError unless a broker answers soon."""
        patience_ms = min(self._options.connect_ms, self._options.retry_ms)
        self._here.connection.greeting(patience_ms)

    def close(self) -> None:
        """Close the connection."""
        if self._made.pid == os.getpid():
            self._made.connection.close()

    @property
    def _here(self) -> ProcessState:
        if self._made.pid != os.getpid():
            # The old state is not closed: its sockets and locks are the parent's, which uses them.
            self._made = ProcessState.make(self._parsed, self._options)
        return self._made

    def _call(self, method: Method, request: Any) -> Any:
        return self._here.connection.call(method, request)

    def _require_writable(self) -> None:
        if not self._is_writable:
            message = (
                f"The broker {self.address} was opened with mode='r', which changes nothing; open "
                f"it with mode='rw' to write."
            )
            raise RequestError(message)

    def stats(self) -> dict[str, str | int]:
        """Return the numbers of the broker's store and server, by name."""
        reply = self._call(methods.STATS, pb.Empty())
        return {"store": reply.store, **reply.numbers}

    # Topics

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return list(self._call(methods.TOPICS, pb.Empty()).topics)

    def describe(self, topic: str) -> TopicInfo:
        """Return the description of a topic."""
        return self._here.topics.ask(topic)

    def create_topic(self, topic: str, queues: int = 4, *, exist_ok: bool = False) -> TopicInfo:
        """Make a topic; raise TopicExistsError unless `exist_ok`, which leaves one as it is."""
        self._require_writable()
        request = pb.CreateTopic(topic=topic, queues=queues, exist_ok=exist_ok)
        return self._here.topics.change(methods.CREATE_TOPIC, request)

    def add_queues(self, topic: str, total: int) -> TopicInfo:
        """Let a topic have `total` queues; only growth is allowed."""
        self._require_writable()
        request = pb.AddQueues(topic=topic, total=total)
        return self._here.topics.change(methods.ADD_QUEUES, request)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, its queues and groups' offsets in it; its records stay in the log."""
        self._require_writable()
        self._here.topics.forget(topic)
        self._call(methods.DELETE_TOPIC, pb.Topic(topic=topic))

    # Offsets

    def offsets(self, topic: str) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        """Return (min, max) of every readable queue; (0, 0) for one that never held any."""
        return _bounds(topic, self._call(methods.OFFSETS, pb.Topic(topic=topic)))

    def wait(
        self, known: Mapping[QueueRef, LogicalOffset], timeout_ms: int
    ) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        """Return (min, max) of a topic's queues as soon as one of them goes beyond `known`.

        All queues must be of one topic. After `timeout_ms` they are returned as they are.
        """
        topic = next(iter(known)).topic
        queues = [pb.QueueOffset(queue_id=q.queue_id, offset=at) for q, at in known.items()]
        request = pb.Await(topic=topic, queues=queues, timeout_ms=timeout_ms)
        timeout_s = (timeout_ms + self._options.timeout_ms) / 1000
        connection = self._here.connection
        return _bounds(topic, connection.call(methods.AWAIT, request, timeout_s=timeout_s))

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, *, broker_name: str | None = None
    ) -> LogicalOffset:
        """Return the first offset whose store time is at or after `timestamp_ms`, else the max."""
        request = pb.OffsetAt(
            topic=topic, queue_id=queue_id, timestamp_ms=timestamp_ms, broker_name=broker_name
        )
        return LogicalOffset(self._call(methods.OFFSET_AT, request).offset)

    def consumer_offsets(self, group: str, topic: str) -> dict[QueueRef, LogicalOffset]:
        """Return the next offsets of a group; queues that it never read are absent."""
        reply = self._call(methods.CONSUMER_OFFSETS, pb.Group(group=group, topic=topic))
        return {
            QueueRef(topic, reply.broker_name, queue.queue_id): LogicalOffset(queue.offset)
            for queue in reply.queues
        }

    def commit_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        broker_name: str | None = None,
    ) -> None:
        """Record the next offset of a group, durably."""
        self._require_writable()
        request = pb.CommitOffset(
            group=group, topic=topic, queue_id=queue_id, offset=offset, broker_name=broker_name
        )
        self._call(methods.COMMIT_OFFSET, request)

    # Reading

    def pull(
        self,
        wanted: OffsetRange,
        *,
        message_filter: MessageFilter | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        verify: bool | None = None,
    ) -> Iterator[FrameBatch]:
        """Return the messages of a range as frame batches, filtered by the broker."""
        require_batch_limits(batch_rows, batch_bytes)
        request = pb.Pull(batch_rows=batch_rows, batch_bytes=batch_bytes, verify=verify)
        return pull(self._here.connection, wanted, message_filter, request)

    def pull_columns(
        self,
        wanted: OffsetRange,
        columns: Sequence[str],
        *,
        message_filter: MessageFilter | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> Iterator[ColumnBatch]:
        """Return some columns of a range; the broker decodes, and only they are sent."""
        require_batch_limits(batch_rows, batch_bytes)
        request = pb.Pull(batch_rows=batch_rows, batch_bytes=batch_bytes, columns=columns)
        return pull_columns(self._here.connection, wanted, message_filter, request)

    def follow(
        self,
        queue: QueueRef,
        start: int,
        *,
        message_filter: MessageFilter | None = None,
    ) -> Iterator[FrameBatch]:
        """Return the messages of a queue from `start` on, without an end, as they come."""
        wanted = OffsetRange(queue, LogicalOffset(start), LogicalOffset(start))
        return pull(self._here.connection, wanted, message_filter, pb.Pull(follow=True))

    def read(
        self,
        topic: str,
        queue_id: int = 0,
        start: int | None = None,
        end: int | None = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return a range of one queue as a table, bodies checked."""
        wish = ReadSpec.of(columns, tags, sql)
        queue = QueueRef(topic, self._here.connection.greeting().broker_name, queue_id)
        wanted = range_between(queue, self.offsets(topic).get(queue, (0, 0)), start, end)
        frames = self.pull(wanted, message_filter=wish.message_filter, verify=True)
        return wish.table(frames, queue)

    def query(self, topic: str, key: str, limit: int = DEFAULT_QUERY_LIMIT) -> pa.Table:
        """Return messages with a key or unique key, all columns, by physical offset."""
        return self._table(methods.QUERY, pb.Query(topic=topic, key=key, limit=limit))

    def message(self, message_id: str) -> pa.Table:
        """Return the message with a unique or offset id, one row."""
        return self._table(methods.MESSAGE, pb.MessageId(message_id=message_id))

    def _table(self, method: Method, request: Any) -> pa.Table:
        connection = self._here.connection

        def ask() -> pa.Table:
            name = connection.greeting().broker_name
            with connection.translated():
                chunks = [unpack(reply) for reply in connection.stream(method, request)]
            batches = [
                decode(chunk.frames(None, self.address), ALL_COLUMNS, name) for chunk in chunks
            ]
            return pa.Table.from_batches(batches, schema=schema_of(ALL_COLUMNS))

        return connection.retry(ask)

    # Writing

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
    ) -> SendResult:
        """Append one message and return its queue and offsets.

        A delayed one is in the schedule topic until it is due. Messages of several threads share
        requests, so that many senders are faster than one.
        """
        self._require_writable()
        here = self._here
        greeting = here.connection.greeting()
        now_ms = time.time_ns() // 1_000_000
        config = self._writable(topic)
        if not 0 <= delay_level <= greeting.delay_levels:
            message = (
                f"Delay level {delay_level} for topic {topic} is not one of 1 to "
                f"{greeting.delay_levels}."
            )
            raise IllegalMessageError(message)
        unique_key = here.unique_ids.make(now_ms)
        stored = message_properties(
            topic,
            unique_key,
            tags=tags,
            keys=keys,
            properties=properties,
            sharding_key=sharding_key,
        )
        queue = self._choose_queue(config, queue_id, sharding_key)
        single = encode_single(
            topic,
            queue,
            body,
            stored,
            now_ms,
            delay_level=delay_level,
            store_host=greeting.store_host,
            max_body_bytes=greeting.limits.message_bytes,
        )
        try:
            appended = here.appender.append_shared(single.encoded)
        except (RequestError, TopicNotFoundError):
            # The topic may have been deleted, or made anew with fewer queues.
            here.topics.forget(topic)
            raise
        return SendResult(
            topic=single.topic,
            broker_name=greeting.broker_name,
            queue_id=appended.queue_id,
            queue_offset=appended.queue_offset,
            msg_id=unique_key,
            offset_msg_id=offset_id(greeting.store_host, appended.physical_offset),
            physical_offset=appended.physical_offset,
        )

    def append(
        self, messages: MessageBatch, *, flush: str | None = None, wants_places: bool = True
    ) -> AppendResult:
        """Append a batch; all of it or nothing."""
        self._require_writable()
        if self._here.connection.greeting().creates_topics:
            for topic in messages.topics:
                self._writable(topic)
        parcel = self._parcel(messages)
        return self._here.appender.append(parcel, flush, wants_places=wants_places)

    def _parcel(self, messages: MessageBatch) -> Parcel:
        greeting = self._here.connection.greeting()
        encoded = encode(
            replace(messages, store_host=greeting.store_host),
            max_message_bytes=greeting.limits.message_bytes,
        )
        return Parcel(encoded.buffer.data, encoded.sizes)

    def _writable(self, topic: str) -> TopicInfo:
        info = self._here.topics.known_to_sender(topic)
        if not info.is_writable:
            message = (
                f"Topic {topic} is not writable (perm {info.perm}); give it perm {info.perm | 2} "
                f"to write to it."
            )
            raise PermissionDeniedError(message)
        return info

    def _choose_queue(self, info: TopicInfo, queue_id: int | None, sharding_key: str | None) -> int:
        if queue_id is not None:
            return queue_id
        if sharding_key:
            return index_hash(java_hash(sharding_key)) % info.write_queues
        # Not locked: two threads that take one turn only send to the same queue.
        self._turn += 1
        return self._turn % info.write_queues

    @property
    def transactions(self) -> GrpcTransactions:
        """The broker's transactions; raises RequestError if it was opened for reading."""
        self._require_writable()
        return GrpcTransactions(self._here.connection, self._parcel)

    def delete_before(self, physical_offset: int) -> int:
        """Delete whole commit-log files that end at or before an offset; return the log's min."""
        self._require_writable()
        request = pb.DeleteBefore(physical_offset=physical_offset)
        return int(self._call(methods.DELETE_BEFORE, request).offset)


def _bounds(
    topic: str, reply: pb.TopicBounds
) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
    return {
        QueueRef(topic, reply.broker_name, queue.queue_id): (
            LogicalOffset(queue.minimum),
            LogicalOffset(queue.maximum),
        )
        for queue in reply.queues
    }
