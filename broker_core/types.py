"""The types that every layer shares: queues, offsets, ranges, results of writes, transactions.

A LogicalOffset counts messages in one queue, a PhysicalOffset counts bytes in the commit log. Both
are *next to read*; ranges are half-open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NewType, Self

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

Mode = Literal["r", "rw"]
"""How a broker is opened: "r" changes nothing, ever; "rw" also writes."""
Conflict = Literal["refuse", "repeat", "write"]
"""What a commit does if another batch has its number, or a later one is committed."""
Flush = Literal["async", "sync"]
"""How much an acknowledged write survives: the death of every process, or also a loss of power."""

LogicalOffset = NewType("LogicalOffset", int)
PhysicalOffset = NewType("PhysicalOffset", int)

DEFAULT_BROKER_NAME = "broker-a"


@dataclass(frozen=True, order=True, slots=True)
class QueueRef:
    """One queue of one topic on one broker. Sorts by topic, broker, then queue number."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The messages [start, end) of one queue."""

    queue: QueueRef
    start: LogicalOffset
    end: LogicalOffset

    @property
    def size(self) -> int:
        """The number of logical offsets in the range; never negative."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its queues, permission bits (4 read, 2 write) and attributes.

    `queues` are the readable ones, sorted.
    """

    name: str
    read_queues: int
    write_queues: int
    perm: int
    queues: tuple[QueueRef, ...]
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def is_readable(self) -> bool:
        """True if consumers may read the topic."""
        return bool(self.perm & 4)

    @property
    def is_writable(self) -> bool:
        """True if producers may send to the topic."""
        return bool(self.perm & 2)


@dataclass(frozen=True, slots=True)
class SendResult:
    """Destination, offsets and ids of one acknowledged message."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: LogicalOffset
    msg_id: str
    offset_msg_id: str
    physical_offset: PhysicalOffset

    @property
    def queue(self) -> QueueRef:
        """The queue that holds the message."""
        return QueueRef(self.topic, self.broker_name, self.queue_id)


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Some columns of some messages, and the offset after the last message examined."""

    rows: pa.RecordBatch
    next_offset: LogicalOffset


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Offsets of an appended batch: message i is at queue_offsets[i] of queue queue_ids[i]."""

    queue_ids: NDArray[np.int32]
    queue_offsets: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    sizes: NDArray[np.int32]
    store_timestamp_ms: int

    def slice(self, start: int, stop: int) -> AppendResult:
        """Return the result for messages [start, stop) of the batch."""
        return AppendResult(
            queue_ids=self.queue_ids[start:stop],
            queue_offsets=self.queue_offsets[start:stop],
            physical_offsets=self.physical_offsets[start:stop],
            sizes=self.sizes[start:stop],
            store_timestamp_ms=self.store_timestamp_ms,
        )


@dataclass(frozen=True, order=True, slots=True)
class BatchRef:
    """A batch that is to be written exactly once.

    `owner` (a query) writes batches whose numbers only grow; `name` tells several writes of one
    batch apart.
    """

    owner: str
    name: str
    number: int

    def __str__(self) -> str:
        return f"batch {self.number} of {self.owner}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True, slots=True)
class Prepared:
    """The half messages of one `prepare_batch` call: [start, end) of the half queue."""

    start: LogicalOffset
    end: LogicalOffset


@dataclass(frozen=True, slots=True)
class Receipt:
    """All that one attempt at a part of a batch prepared; sent from task to driver to broker."""

    batch: BatchRef
    attempt: str
    prepared: tuple[Prepared, ...] = ()

    @property
    def count(self) -> int:
        """The number of half messages."""
        return sum(part.end - part.start for part in self.prepared)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The answer to a request to commit a batch.

    `is_repeat`: the batch was committed before; nothing was added. `run` is the run named by the
    request that committed it.
    """

    is_repeat: bool
    run: str


class LocalTransactionState(Enum):
    """How a local transaction ended; UNKNOWN leaves it open, to be checked again."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message: its destination, and its offsets in half queue and log while it is open."""

    topic: str
    queue_id: int
    transaction_id: str
    group: str
    half_offset: LogicalOffset
    physical_offset: PhysicalOffset


@dataclass(frozen=True, slots=True)
class CheckBackReport:
    """The result of one round of check-back, in messages; `waiting` is the number left open."""

    waiting: int = 0
    finished: int = 0
    rolled_back: int = 0
    asked: int = 0
    given_up: int = 0


class Closing:
    """A base class of what is closed at the end of a `with` block."""

    def close(self) -> None:
        """Release files, connections and threads."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
