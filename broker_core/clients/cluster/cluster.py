"""An Apache RocketMQ cluster as a Broker: topics spread over brokers, reached by remoting.

The differences from our own brokers, which hold for every call here:

- A queue is a broker's name and a number. Where a call takes a single number to read from, the
  broker must be named if several have that number; where it takes one to write to, it is the
  number of a write queue (topics.py), and ANY_WRITE_QUEUE (send/plan.py) lets the client choose.
- Writing is at least once: a send whose answer is lost is sent again. `append` is not all or
  nothing: when it fails, part of the batch may be stored.
- An acknowledged message survives what the cluster was set up to survive.
- With a namespace, names are without it in calls and tables; only frame batches have the names that
  the cluster knows, which are what their records hold.

Next step down: pull/puller.py to read a range, send/sender.py to write, topics.py, offsets.py and
query.py for all other questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from broker_core.api import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_ROWS, require_batch_limits
from broker_core.clients.cluster.client_instance import ClientInstance
from broker_core.clients.cluster.namespace import Namespace
from broker_core.clients.cluster.offsets import ClusterOffsets
from broker_core.clients.cluster.pull.puller import BatchLimits, Puller
from broker_core.clients.cluster.query import ClusterQuery
from broker_core.clients.cluster.send.sender import ClusterSender
from broker_core.clients.cluster.settings import ClusterSettings
from broker_core.clients.cluster.topics import ClusterTopics
from broker_core.errors import OffsetRangeError, RequestError, UnsupportedError
from broker_core.filter.pipeline import MessageFilter
from broker_core.read_spec import ReadSpec, range_between
from broker_core.types import Closing, LogicalOffset, OffsetRange, QueueRef
from broker_core.wire.remoting.route import Endpoint, parse_endpoint

if TYPE_CHECKING:
    from broker_core.clients.address import BrokerAddress
    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.types import AppendResult, SendResult, TopicInfo


def open_client(address: BrokerAddress, mode: str, **options: Any) -> ClusterBroker:
    """Return a cluster by its name servers; no server is asked before the first call.

    `options` are named as in settings.py; ConfigError for one that is unknown.
    """
    servers = [parse_endpoint(host) for host in address.hosts]
    return ClusterBroker(address.text, servers, ClusterSettings.of(options), mode)


class ClusterBroker(Closing):
    """A Broker (api.py) over a cluster; thread-safe.

    May be used in a forked child, which makes connections of its own. Pickles as what it was opened
    with, secrets included.
    """

    def __init__(
        self,
        address: str,
        name_servers: Sequence[Endpoint],
        settings: ClusterSettings,
        mode: str = "r",
    ) -> None:
        self._address = address
        self._name_servers = tuple(name_servers)
        self._settings = settings
        self._mode = mode
        self._namespace = Namespace(settings.namespace)
        self._instance = ClientInstance(self._name_servers, self._wrapped(settings))
        self._topics = ClusterTopics(self._instance)
        self._offsets = ClusterOffsets(self._instance)
        self._query = ClusterQuery(self._instance, self._offsets.await_visible)
        self._sender = ClusterSender(self._instance)

    @property
    def address(self) -> str:
        """The address it was opened with."""
        return self._address

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        self._instance.close()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._address, self._name_servers, self._settings, self._mode)

    def __repr__(self) -> str:
        return f"ClusterBroker({self._address!r}, mode={self._mode!r})"

    # Topics

    def topics(self) -> list[str]:
        """Return the names of all topics, system topics included, sorted."""
        return sorted(self._namespace.unwrap(name) for name in self._known_topics())

    def describe(self, topic: str) -> TopicInfo:
        """Return what the brokers say of a topic now; numbers of queues are sums over brokers.

        With mode="rw" brokers that restart are waited for as long as a send would wait: a writer
        describes its topics before it sends.
        """
        patience_ms = self._settings.send_timeout_ms if self._mode == "rw" else 0
        return self._own_info(self._topics.describe(self._wrap(topic), patience_ms))

    def create_topic(self, topic: str, queues: int = 4, *, exist_ok: bool = False) -> TopicInfo:
        """Make a topic with `queues` queues in all, spread over the cluster's masters."""
        self._require_writing("create a topic")
        found = self._topics.create(self._wrap(topic), queues, exist_ok=exist_ok)
        return self._own_info(found)

    def add_queues(self, topic: str, total: int) -> TopicInfo:
        """Let a topic have `total` queues in all; only growth is allowed."""
        self._require_writing("add queues")
        return self._own_info(self._topics.add_queues(self._wrap(topic), total))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic on its brokers, then on the name servers."""
        self._require_writing("delete a topic")
        self._topics.delete(self._wrap(topic))

    # Offsets

    def offsets(self, topic: str) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        """Return (min, max) of every readable queue.

        A broker that can't be reached counts with what it said last, if it was asked before.
        """
        found = self._offsets.bounds(self._wrap(topic))
        return {self._own_queue(queue): bounds for queue, bounds in found.items()}

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, *, broker_name: str | None = None
    ) -> LogicalOffset:
        """Return the first offset whose store time is at or after `timestamp_ms`, else max."""
        return self._offsets.at(self._wrap(topic), queue_id, timestamp_ms, broker_name)

    def consumer_offsets(self, group: str, topic: str) -> dict[QueueRef, LogicalOffset]:
        """Return where a consumer group will read next; queues it never read are absent."""
        found = self._offsets.of_group(self._wrap(group), self._wrap(topic))
        return {self._own_queue(queue): offset for queue, offset in found.items()}

    def commit_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        broker_name: str | None = None,
    ) -> None:
        """Record where a consumer group will read next; the group is made if there is none."""
        self._require_writing("commit an offset")
        wrapped = self._wrap(group), self._wrap(topic)
        self._offsets.commit(*wrapped, queue_id, offset, broker_name)

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
        """Return the messages of a range as frame batches, filtered by the broker.

        Tags are filtered by the broker and once more here, where hashes do not collide; SQL92 needs
        `enablePropertyFilter` on the broker (UnsupportedError). Checksums are checked on demand.
        """
        require_batch_limits(batch_rows, batch_bytes)
        queue = replace(wanted.queue, topic=self._wrap(wanted.queue.topic))
        limits = BatchLimits(batch_rows, batch_bytes, bool(verify))
        ours = replace(wanted, queue=queue)
        if wanted.start > wanted.end:
            _require_range(ours, *self._offsets.bounds(queue.topic)[queue])
        return Puller(self._instance, ours, message_filter, limits).batches()

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
        broker_name: str | None = None,
    ) -> pa.Table:
        """Return a range of one queue as a table; None means earliest, latest, default columns."""
        wish = ReadSpec.of(columns, tags, sql)
        known = self._offsets.bounds(self._wrap(topic))
        queue = self._offsets.queue(self._wrap(topic), queue_id, broker_name)
        wanted = range_between(self._own_queue(queue), known[queue], start, end)
        _require_range(wanted, *known[queue])
        frames = self.pull(wanted, message_filter=wish.message_filter, verify=True)
        return self._own_rows(wish.table(frames, queue))

    def query(self, topic: str, key: str, limit: int = 64) -> pa.Table:
        """Return messages with a key or unique key, all columns, by physical offset; 64 at most."""
        return self._own_rows(self._query.by_key(self._wrap(topic), key, limit))

    def message(self, message_id: str) -> pa.Table:
        """Return the message with a unique or offset id, one row."""
        return self._own_rows(self._query.by_id(message_id, self._known_topics()))

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
        """Send one message and return its offsets; `queue_id` is the number of a write queue."""
        self._require_writing("send")
        sent = self._sender.send(
            self._wrap(topic),
            body,
            tags=tags,
            keys=keys,
            properties=properties,
            write_queue=queue_id,
            sharding_key=sharding_key,
            delay_level=delay_level,
        )
        return replace(sent, topic=topic)

    def append(
        self, messages: MessageBatch, *, flush: str | None = None, wants_places: bool = True
    ) -> AppendResult:
        """Send a batch and wait until all of it is acknowledged; queue ids are write queues'."""
        self._require_writing("append")
        wrapped = replace(messages, topics=[self._wrap(topic) for topic in messages.topics])
        return self._sender.append(wrapped, flush)

    @property
    def possible_duplicates(self) -> int:
        """Number of messages sent again because their acknowledgement was lost."""
        return self._sender.unsure

    def delete_before(self, physical_offset: int) -> int:
        """Raise UnsupportedError: brokers of a cluster delete files by age only."""
        self._require_writing("delete files")
        raise UnsupportedError(
            f"delete_before({physical_offset}) is not possible on {self._address}: Apache"
            f" RocketMQ's brokers delete files by themselves, by age (fileReservedTime)."
        )

    # Names

    def _known_topics(self) -> list[str]:
        """Return the topics of this namespace, by the names that the cluster knows."""
        return [name for name in self._topics.names() if self._namespace.holds(name)]

    def _wrap(self, name: str) -> str:
        return self._namespace.wrap(name)

    def _wrapped(self, settings: ClusterSettings) -> ClusterSettings:
        return replace(
            settings,
            consumer_group=self._wrap(settings.consumer_group),
            producer_group=self._wrap(settings.producer_group),
        )

    def _own_queue(self, queue: QueueRef) -> QueueRef:
        return replace(queue, topic=self._namespace.unwrap(queue.topic))

    def _own_rows(self, table: pa.Table) -> pa.Table:
        """Return rows with topic names as the caller knows them."""
        if not self._namespace.name or "topic" not in table.column_names:
            return table
        names = [self._namespace.unwrap(name) for name in table.column("topic").to_pylist()]
        at = table.column_names.index("topic")
        return table.set_column(at, table.schema.field(at), pa.array(names, pa.string()))

    def _own_info(self, info: TopicInfo) -> TopicInfo:
        queues = tuple(self._own_queue(queue) for queue in info.queues)
        return replace(info, name=self._namespace.unwrap(info.name), queues=queues)

    def _require_writing(self, what: str) -> None:
        if self._mode != "rw":
            raise RequestError(
                f"{self._address} was opened with mode='r', which changes nothing; open it with"
                f" mode='rw' to {what}."
            )


def _require_range(wanted: OffsetRange, low: int, high: int) -> None:
    """Raise OffsetRangeError unless a queue that holds [low, high) holds all of a range."""
    if not low <= wanted.start <= wanted.end <= high:
        raise OffsetRangeError(
            f"Queue {wanted.queue} holds messages {low} to {high - 1}, not all of {wanted.start} to"
            f" {wanted.end - 1}.",
            low,
            high,
        )
