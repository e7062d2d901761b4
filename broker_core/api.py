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
    from broker_core.codec.outgoing import Outgoing
    from broker_core.filter.pipeline import MessageFilter
    from broker_core.types import (
        AppendResult,
        LogicalOffset,
        OffsetRange,
        QueueRef,
        SendResult,
        TopicInfo,
    )

DEFAULT_BATCH_ROWS = 100_000
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

    def append(self, messages: Outgoing, *, flush: str | None = None) -> AppendResult:
        """Append a batch in one go, columnar; all of it or nothing. `flush`: async or sync."""

    def delete_before(self, physical_offset: int) -> int:
        """Delete whole commit-log files that end at or before an offset; the new log minimum."""
