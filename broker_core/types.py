"""The vocabulary shared by every layer: which queue, which offset, which range.

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
Flush = Literal["async", "sync"]
"""What an acknowledged write survives: the death of every process, or also a loss of power."""

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
        """How many logical offsets the range spans; never negative."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What a broker knows of a topic. `queues` are the readable ones, sorted."""

    name: str
    read_queues: int
    write_queues: int
    perm: int
    queues: tuple[QueueRef, ...]
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def is_readable(self) -> bool:
        """Whether consumers may read it."""
        return bool(self.perm & 4)

    @property
    def is_writable(self) -> bool:
        """Whether producers may send to it."""
        return bool(self.perm & 2)


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where one acknowledged message lies."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: LogicalOffset
    msg_id: str
    offset_msg_id: str
    physical_offset: PhysicalOffset

    @property
    def queue(self) -> QueueRef:
        """The queue that it lies in."""
        return QueueRef(self.topic, self.broker_name, self.queue_id)


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Some columns of some messages, and the LogicalOffset after the last that was examined."""

    rows: pa.RecordBatch
    next_offset: LogicalOffset


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where an appended batch lies: message i is at queue_offsets[i] of queue_ids[i]."""

    queue_ids: NDArray[np.int32]
    queue_offsets: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    sizes: NDArray[np.int32]
    store_timestamp_ms: int

    def slice(self, start: int, stop: int) -> AppendResult:
        """Messages start..stop of the batch."""
        return AppendResult(
            queue_ids=self.queue_ids[start:stop],
            queue_offsets=self.queue_offsets[start:stop],
            physical_offsets=self.physical_offsets[start:stop],
            sizes=self.sizes[start:stop],
            store_timestamp_ms=self.store_timestamp_ms,
        )


@dataclass(frozen=True, order=True, slots=True)
class BatchRef:
    """One batch that is to be written exactly once.

    `owner` writes batches whose numbers only grow; `name` keeps several writes of one batch apart.
    """

    owner: str
    name: str
    number: int

    def __str__(self) -> str:
        return f"batch {self.number} of {self.owner}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Half messages that one call prepared: [start, end) of the half queue.

    `since` is an offset of the op queue: what decides them can't lie before it.
    """

    start: LogicalOffset
    end: LogicalOffset
    since: LogicalOffset


@dataclass(frozen=True, slots=True)
class Receipt:
    """All that one attempt at a part of a batch prepared. Small and plain: it travels."""

    batch: BatchRef
    attempt: str
    prepared: tuple[Prepared, ...] = ()

    @property
    def count(self) -> int:
        """How many half messages it stands for."""
        return sum(part.end - part.start for part in self.prepared)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What became of a request to commit a batch.

    `is_repeat`: the batch, or a later one, had been committed before, and nothing was added.
    `run` is what the deciding request called its run.
    """

    is_repeat: bool
    run: str


class LocalTransactionState(Enum):
    """How a transaction ends; UNKNOWN leaves it open, to be asked about again."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """One prepared message: where it would go, and where it lies until its fate is decided."""

    topic: str
    queue_id: int
    transaction_id: str
    group: str
    half_offset: LogicalOffset
    physical_offset: PhysicalOffset
    since: LogicalOffset


@dataclass(frozen=True, slots=True)
class CheckBackReport:
    """What one round of check-back did, in messages; `waiting` is what it left open."""

    waiting: int = 0
    finished: int = 0
    rolled_back: int = 0
    asked: int = 0
    given_up: int = 0


class Closing:
    """Something that is closed at the end of a `with` block."""

    def close(self) -> None:
        """Give everything back."""
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
