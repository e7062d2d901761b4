"""The Broker protocol: the calls that every kind of broker has, and the rules that hold for all.

Three implementations share it and one contract suite (tests/contract): the embedded core (`file:`),
the remote core (`grpc://`) and an Apache RocketMQ cluster (`rocketmq://`). The unit that travels is
the commit-log record, in frame batches (codec/frames.py); rows appear only at the very end.

The rules:

- Offsets are next-to-read and ranges half-open. A queue's max never goes down, on our own brokers
  also not when its topic is deleted and made again. On a cluster it does then, and callers must
  treat it as data loss.
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

from broker_core.errors import RequestError

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
        Conflict,
        Flush,
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
"""About the number of small records that stay in a core's cache while they are decoded."""
DEFAULT_BATCH_BYTES = 64 << 20
DEFAULT_QUERY_LIMIT = 64
"""The most messages that a query of an Apache broker returns (`maxMsgsNumBatch`)."""


def require_batch_limits(batch_rows: int, batch_bytes: int) -> None:
    """Raise RequestError if batches with these limits could hold nothing."""
    for name, limit in (("batch_rows", batch_rows), ("batch_bytes", batch_bytes)):
        if limit < 1:
            raise RequestError(f"Batches can't be made with {name}={limit}; 1 is the least.")


@runtime_checkable
class Broker(Protocol):
    """Topics, and messages in them. A context manager; not thread-safe unless it says so."""

    @property
    def address(self) -> str:
        """The address that the broker was opened with."""

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
        """Return the names of all topics, system topics included, sorted."""

    def describe(self, topic: str) -> TopicInfo:
        """Return queues and permissions of a topic; TopicNotFoundError if there is none."""

    def create_topic(self, topic: str, queues: int = 4, *, exist_ok: bool = False) -> TopicInfo:
        """Create a topic; TopicExistsError if it exists, unless `exist_ok`."""

    def add_queues(self, topic: str, total: int) -> TopicInfo:
        """Grow a topic to `total` queues; RequestError for fewer than it has."""

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its queues; its records stay in the log until their files expire."""

    # Offsets

    def offsets(self, topic: str) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        """Return (min, max) of every readable queue; (0, 0) for one that never held a message."""

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, *, broker_name: str | None = None
    ) -> LogicalOffset:
        """Return the first offset whose store time is at or after `timestamp_ms`, else max."""

    def consumer_offsets(self, group: str, topic: str) -> dict[QueueRef, LogicalOffset]:
        """Return a consumer group's next offsets; queues that it never read are absent."""

    def commit_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        broker_name: str | None = None,
    ) -> None:
        """Store the offset that a consumer group reads next from a queue."""

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
        """Yield the messages of a range as frame batches, filtered where the data is.

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
        """Return a range of one queue as a table.

        None means from the earliest message, to the latest one, and the default columns.
        """

    def query(self, topic: str, key: str, limit: int = DEFAULT_QUERY_LIMIT) -> pa.Table:
        """Return messages with a key or unique key: all columns, sorted by physical offset."""

    def message(self, message_id: str) -> pa.Table:
        """Return the message with a unique or offset id; MessageNotFoundError if there is none."""

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
        """Append one message and return its offsets and ids."""

    def append(
        self, messages: MessageBatch, *, flush: Flush | None = None, wants_places: bool = True
    ) -> AppendResult:
        """Append a batch, all of it or nothing; `flush` overrides the broker's setting.

        `wants_places=False` lets a remote broker skip returning offsets: the result may be empty.
        """

    def delete_before(self, physical_offset: int) -> int:
        """Delete commit-log files that end at or before an offset; return the new log minimum."""


@runtime_checkable
class WaitingBroker(Protocol):
    """A broker that can be waited on for new messages, so that callers need not poll."""

    def wait(
        self, known: Mapping[QueueRef, LogicalOffset], timeout_ms: int
    ) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        """Return (min, max) of a topic's queues once one has more than is known, or at timeout."""


@runtime_checkable
class LocalBroker(Protocol):
    """A broker over files of this machine, which may be deleted or replaced under it."""

    @property
    def is_in_place(self) -> bool:
        """True while the store that was opened is the one at its path."""


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
        """Yield some columns of the messages that `Broker.pull` yields."""


@runtime_checkable
class CountingBroker(Protocol):
    """A broker that filters in this process and counts the work of each stage of a filter."""

    @property
    def filter_count(self) -> FilterCount:
        """Counts of all filters since the broker was opened; they only grow."""


class TransactionListener(Protocol):
    """A producer's half of a transaction: it executes, and it answers checks."""

    def execute_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        """Execute the local transaction of a half message; return how it ended."""

    def check_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        """Return how the local transaction of a half message that is still open ended."""


class BrokerTransactions(Protocol):
    """Transactions: messages that are durable before they are visible, singly or by the batch.

    A batch is committed at most once, whatever repeats, dies or races: once `commit_batch` has
    returned, everything that its receipts name is visible, and nothing else of that batch ever is.
    If it was interrupted, the batch is committed entirely or not at all.
    """

    def is_batch_decided(self, batch: BatchRef) -> bool:
        """Return True if the batch, or a later one of its owner, is committed already."""

    def prepare_batch(
        self,
        batch: BatchRef,
        attempt: str,
        messages: MessageBatch,
        *,
        is_first: bool,
        flush: Flush | None = None,
    ) -> Prepared:
        """Store messages of one attempt at a part of a batch as half messages.

        Their unique keys begin with `attempt`, which no other attempt ever uses, and their
        properties say that they are transactional. `is_first` is True in an attempt's first call.
        """

    def commit_batch(
        self,
        batch: BatchRef,
        receipts: Sequence[Receipt],
        *,
        run: str = "",
        keep: bool = True,
        flush: Flush | None = None,
        fingerprint: str = "",
        conflict: Conflict = "refuse",
        previous: int | None = None,
    ) -> BatchOutcome:
        """Commit the half messages of some attempts; a batch committed before stays as it is.

        `run` names the run that commits. `keep=False` promises that nobody asks for this batch
        again. `fingerprint` tells the batch from another one with its number. If another one was
        committed under it, or one with a later number, `conflict` decides: BatchConflictError, a
        repeat, or a commit. `previous` is the number of a batch that must be committed already:
        BatchGapError if the store has none as new. IllegalTransitionError if part of the batch was
        rolled back.
        """

    def abort_batch(
        self, batch: BatchRef, receipts: Sequence[Receipt], *, flush: Flush | None = None
    ) -> None:
        """Roll back the half messages of some attempts; a committed batch stays committed."""

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
        """Append one half message for a producer group; `end` commits it or rolls it back."""

    def end(self, half: HalfMessage, state: LocalTransactionState) -> None:
        """Commit a half message or roll it back; UNKNOWN leaves it to check-back."""

    def listen(self, group: str, listener: TransactionListener) -> None:
        """Register the listener that check-back asks about a producer group's half messages."""

    def check_back(self) -> CheckBackReport:
        """Check all open half messages once, now."""


@runtime_checkable
class TransactionalBroker(Protocol):
    """A broker that has transactions."""

    @property
    def transactions(self) -> BrokerTransactions:
        """The broker's transactions."""
