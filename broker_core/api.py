"""The Broker protocol: what every kind of broker offers, and what holds for all of them.

Three implementations share it and one contract suite: the embedded core (`file:`), the remote core
(`grpc://`) and an Apache RocketMQ cluster (`rocketmq://`). The unit that travels is the commit-log
record, in frame batches (broker_core.codec.frames); rows appear only at the very end.

What holds everywhere:

- Offsets are next-to-read and ranges half-open. A queue's max never goes down while its topic
  lives; if it does, the topic was created anew and callers must treat it as data loss.
- `pull` yields frame batches in queue order. Their `next_offset` counts *examined* messages, so a
  filter that drops everything still advances. A message inside the range that is gone raises
  OffsetRangeError; it is never skipped silently.
- A send that returned is durable against the death of any process; with flush="sync" also against
  loss of power.
- Only errors of broker_core.errors are raised on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.filter.pipeline import FilterCount, MessageFilter
    from broker_core.types import (
        AppendResult,
        BatchOutcome,
        BatchRef,
        CheckBackReport,
        ColumnBatch,
        HalfMessage,
        LocalTransactionState,
        LogicalOffset,
        OffsetRange,
        Prepared,
        QueueRef,
        Receipt,
        SendResult,
        TopicInfo,
    )

DEFAULT_BATCH_ROWS = 16_384
"""About as many small records as stay in a core's cache while they are decoded."""
DEFAULT_BATCH_BYTES = 64 << 20


@runtime_checkable
class Broker(Protocol):
    """A place that holds topics. Use as a context manager; not thread-safe unless it says so."""

    @property
    def address(self) -> str:
        """The address it was opened with."""

    def close(self) -> None:
        """Release files and connections; embedded writers flush first."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    # Topics

    def topics(self) -> list[str]:
        """Names of all topics, system topics included, sorted."""

    def describe(self, topic: str) -> TopicInfo:
        """Queues and permissions of a topic; TopicNotFoundError if there is none."""

    def create_topic(self, topic: str, queues: int = 4, *, exist_ok: bool = False) -> TopicInfo:
        """Make a topic; TopicExistsError unless `exist_ok`."""

    def add_queues(self, topic: str, total: int) -> TopicInfo:
        """Let a topic have `total` queues; only growth is allowed."""

    def delete_topic(self, topic: str) -> None:
        """Forget a topic and its queues; its records stay in the log until files expire."""

    # Offsets

    def offsets(self, topic: str) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        """(min, max) of every readable queue of a topic; (0, 0) for one that never held any."""

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, *, broker_name: str | None = None
    ) -> LogicalOffset:
        """First offset whose store time is at or after `timestamp_ms`, else max."""

    def consumer_offsets(self, group: str, topic: str) -> dict[QueueRef, LogicalOffset]:
        """Where a consumer group will read next; queues it never read are absent."""

    def commit_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        broker_name: str | None = None,
    ) -> None:
        """Record where a consumer group will read next."""

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
        """The messages of a range as frame batches, filtered where the data is.

        A batch holds at most `batch_rows` records and about `batch_bytes` bytes (one record at
        least). `verify` checks body checksums; None lets the broker decide (embedded: yes where
        the store was not closed cleanly). OffsetRangeError if part of the range is not there.
        """

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
        """A range of one queue as a table; None means earliest, latest, the default columns."""

    def query(self, topic: str, key: str, limit: int = 64) -> pa.Table:
        """Messages with a key or unique key, all columns, by physical offset."""

    def message(self, message_id: str) -> pa.Table:
        """The message with a unique or offset id, one row; MessageNotFoundError if gone."""

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
        """Append one message and return where it lies."""

    def append(
        self, messages: MessageBatch, *, flush: str | None = None, wants_places: bool = True
    ) -> AppendResult:
        """Append a batch in one go, columnar; all of it or nothing. `flush`: async or sync.

        Who does not want to know where each message lies may get an empty result: places travel.
        """

    def delete_before(self, physical_offset: int) -> int:
        """Delete whole commit-log files that end at or before an offset; the new log minimum."""


@runtime_checkable
class WaitingBroker(Protocol):
    """A broker that tells when messages come, so that nobody needs to look again and again."""

    def wait(
        self, known: Mapping[QueueRef, LogicalOffset], timeout_ms: int
    ) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        """What a topic's queues hold, as soon as one has more than is known, or time is over."""


@runtime_checkable
class LocalBroker(Protocol):
    """A broker over files of this machine, which someone may take away."""

    @property
    def is_in_place(self) -> bool:
        """Whether the store is still the one at its path, not deleted nor replaced by another."""


@runtime_checkable
class ProjectingBroker(Protocol):
    """A broker that sends only the columns that are asked for."""

    def pull_columns(
        self,
        wanted: OffsetRange,
        columns: Sequence[str],
        *,
        message_filter: MessageFilter | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> Iterator[ColumnBatch]:
        """The same as decoding what `Broker.pull` gives."""


@runtime_checkable
class CountingBroker(Protocol):
    """A broker that filters in this process, and so can tell what each stage of a filter did."""

    @property
    def filter_count(self) -> FilterCount:
        """What all its filters have done since it was opened; counts go on, so subtract."""


class TransactionListener(Protocol):
    """A producer's side of a transaction: what it executes, and what it answers when asked."""

    def execute_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        """Do the local transaction that goes with a prepared message, and say how it ended."""

    def check_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        """Say how the local transaction of a message that is still open ended."""


class BrokerTransactions(Protocol):
    """Messages that are durable before they are visible, singly and by the batch.

    A batch is committed at most once, whatever repeats, dies or races: once `commit_batch` has
    returned, everything its receipts stand for is visible, and nothing else of that batch ever is.
    If it was interrupted, the batch is committed entirely or not at all.
    """

    def is_batch_decided(self, batch: BatchRef) -> bool:
        """Whether a batch, or a later one of its owner, is committed: it need not be prepared."""

    def prepare_batch(
        self,
        batch: BatchRef,
        attempt: str,
        messages: MessageBatch,
        *,
        is_first: bool,
        flush: str | None = None,
    ) -> Prepared:
        """Store messages of one attempt at a part of a batch, invisibly."""

    def commit_batch(
        self,
        batch: BatchRef,
        receipts: Sequence[Receipt],
        *,
        run: str = "",
        keep: bool = True,
        flush: str | None = None,
    ) -> BatchOutcome:
        """Commit what some attempts prepared; once, however often it is asked for."""

    def abort_batch(
        self, batch: BatchRef, receipts: Sequence[Receipt], *, flush: str | None = None
    ) -> None:
        """Roll back what some attempts prepared; a batch that is committed stays committed."""

    def prepare(
        self,
        topic: str,
        body: bytes,
        *,
        group: str,
        tags: str | None = None,
        keys: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
    ) -> HalfMessage:
        """Append one half message for a producer group; `end` decides it."""

    def end(self, half: HalfMessage, state: LocalTransactionState) -> None:
        """Commit a half message or roll it back; UNKNOWN leaves it to check-back."""

    def listen(self, group: str, listener: TransactionListener) -> None:
        """Let a listener answer for a producer group's half messages when they are checked."""

    def check_back(self) -> CheckBackReport:
        """Look after all half messages that are open: one round, now."""


@runtime_checkable
class TransactionalBroker(Protocol):
    """A broker that can prepare messages and decide on them later, exactly once."""

    @property
    def transactions(self) -> BrokerTransactions:
        """Its transactions."""
