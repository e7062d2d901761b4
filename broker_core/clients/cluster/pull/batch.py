"""Batches of pulled records: the records of many replies as one frame batch.

A reply holds few records, and a batch is worth its overhead only with many. The replies' bytes are
joined, so that the codec sees one buffer; only then its records are looked for, and the offsets
that the replies claim to cover are checked against those in the records themselves. A reply of
4,096 records or more is a batch by itself: joining would copy it, and out of the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker_core.clients.cluster.pull.records import broken_records, record_heads
from broker_core.codec import layout
from broker_core.codec.frames import FrameBatch
from broker_core.errors import OffsetRangeError, UnsupportedError
from broker_core.types import QueueRef
from broker_core.wire.remoting.command import Body
from broker_core.wire.remoting.frame import RemotingProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MANY_ROWS = 4096
_INNER_BATCH = int(layout.SysFlag.NEED_UNWRAP | layout.SysFlag.INNER_BATCH)


class PullReply(NamedTuple):
    """The records of one answer, which covers offsets [start, end) and claims `rows` records."""

    start: int
    end: int
    rows: int
    body: Body


def cut_behind(reply: PullReply, end: int) -> PullReply:
    """Return a reply without records at or behind `end`: filtered pulls may look further."""
    heads = record_heads(reply.body)
    kept = int(np.searchsorted(heads.offsets, end))
    size = int(heads.starts[kept]) if kept < len(heads.starts) else len(reply.body)
    return PullReply(reply.start, min(reply.end, end), kept, reply.body[:size])


@dataclass
class BatchBuilder:
    """Replies in the order of offsets, on their way to batches within both limits.

    `peer` names the broker in messages. With `is_dense` nothing is filtered: every offset must be
    there.
    """

    queue: QueueRef
    peer: str
    is_dense: bool
    batch_rows: int
    batch_bytes: int
    verify: bool = False

    def __post_init__(self) -> None:
        self._replies: list[PullReply] = []
        self._rows = 0
        self._size_bytes = 0

    def add(self, reply: PullReply) -> Iterator[FrameBatch]:
        """Take the next reply, and yield the batches that are full before it is in."""
        rows, size_bytes = self._rows + reply.rows, self._size_bytes + len(reply.body)
        is_large = reply.rows >= _MANY_ROWS
        # `batch_rows` and `batch_bytes` are kept before the reply is in, so that a batch is cut
        # between replies and its bytes need not be sliced.
        if self._rows and (is_large or rows > self.batch_rows or size_bytes > self.batch_bytes):
            yield from self.flush()
            rows, size_bytes = reply.rows, len(reply.body)
        self._replies.append(reply)
        self._rows, self._size_bytes = rows, size_bytes
        if is_large:
            yield from self.flush()

    def flush(self) -> Iterator[FrameBatch]:
        """Yield the collected replies; more than one batch only if one reply is over a limit."""
        replies, self._replies = self._replies, []
        self._rows = self._size_bytes = 0
        if replies:
            yield from self._within_limits(self._frames(replies))

    def _frames(self, replies: list[PullReply]) -> FrameBatch:
        joined = replies[0].body if len(replies) == 1 else b"".join(r.body for r in replies)
        try:
            heads = record_heads(joined)
        except ValueError as error:
            raise broken_records(self.peer, error) from error
        if heads.flags & _INNER_BATCH:
            raise UnsupportedError(
                f"Queue {self.queue} holds batches as single records (queue.type=BatchCQ), which"
                f" rocketmq:// brokers do not read."
            )
        frames = FrameBatch(
            buffer=np.frombuffer(joined, dtype=np.uint8),
            starts=heads.starts,
            sizes=heads.sizes,
            offsets=heads.offsets,
            queue=self.queue,
            next_offset=replies[-1].end,
            name=self.peer,
            verify=self.verify,
        )
        self._check(frames, replies[0].start)
        return frames

    def _check(self, frames: FrameBatch, first: int) -> None:
        """Raise unless records are the ones asked for, and, where nothing filters, all of them."""
        offsets = frames.offsets
        # An answer may begin behind the offset asked for, with SUCCESS, when messages expire while
        # they are read. Only the offsets inside of the records tell.
        if self.is_dense:
            expected = np.arange(first, frames.next_offset, dtype=np.int64)
            if not np.array_equal(offsets, expected):
                raise _hole(frames, expected)
        elif len(frames):
            low, high = int(offsets[0]), int(offsets[-1])
            if low < first or high >= frames.next_offset or bool((np.diff(offsets) <= 0).any()):
                raise RemotingProtocolError(
                    f"{self.peer} sent messages {low} to {high} of queue {frames.queue} when asked"
                    f" for {first} to {frames.next_offset - 1}."
                )

    def _within_limits(self, frames: FrameBatch) -> Iterator[FrameBatch]:
        filled = np.cumsum(frames.sizes, dtype=np.int64)
        at = 0
        while len(frames) - at > self.batch_rows or (
            len(frames) - at > 1 and self._left(filled, at) > self.batch_bytes
        ):
            before = int(filled[at - 1]) if at else 0
            stop = at + int(np.searchsorted(filled[at:], before + self.batch_bytes, side="right"))
            stop = max(at + 1, min(stop, at + self.batch_rows))
            yield replace(frames.slice(at, stop), next_offset=int(frames.offsets[stop]))
            at = stop
        yield frames.slice(at, len(frames)) if at else frames

    @staticmethod
    def _left(filled: NDArray[np.int64], at: int) -> int:
        return int(filled[-1]) - (int(filled[at - 1]) if at else 0)


def _hole(frames: FrameBatch, wanted: NDArray[np.int64]) -> Exception:
    both = min(len(frames), len(wanted))
    # The appended True stands for the first row that only one of the two has.
    is_wrong = np.append(frames.offsets[:both] != wanted[:both], True)
    row = int(is_wrong.argmax())
    expected = int(wanted[row]) if row < len(wanted) else frames.next_offset
    found = int(frames.offsets[row]) if row < len(frames) else frames.next_offset
    if found > expected:
        return OffsetRangeError(
            f"Messages {expected} to {found - 1} of queue {frames.queue} are gone: they expired"
            f" while they were being read. Start at {found}.",
            found,
            max(found, frames.next_offset),
        )
    return RemotingProtocolError(
        f"{frames.name} sent message {found} of queue {frames.queue} where {expected} is next."
    )
