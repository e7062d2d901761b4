"""Rate limits: where the next micro-batch ends (maxOffsetsPerTrigger, maxBytesPerTrigger).

All functions take the bounds of the queues and the offset at which the batch starts. The arithmetic
of `limit_messages` is that of the Kafka source, rounding of doubles included, so that a limit
chosen there cuts batches alike here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.plan.offsets import MAX_LONG, Bounds


@dataclass(frozen=True)
class TriggerLimits:
    """The limits of one micro-batch that the options set; None where they set none."""

    max_messages: int | None = None
    min_messages: int | None = None
    max_delay_ms: int = 15 * 60 * 1000
    max_bytes: int | None = None

    def __bool__(self) -> bool:
        return any(
            limit is not None for limit in (self.max_messages, self.min_messages, self.max_bytes)
        )


def backlog(
    start: Mapping[QueueRef, LogicalOffset],
    end: Mapping[QueueRef, LogicalOffset],
    bounds: Mapping[QueueRef, Bounds],
) -> dict[QueueRef, OffsetRange]:
    """Return the range to read up to `end`, per queue; new queues are read from their earliest.

    Queues with nothing to read are left out, and so are new ones whose earliest is unknown.
    """
    begins = {queue: start.get(queue, _earliest(queue, bounds)) for queue in sorted(end)}
    return {
        queue: OffsetRange(queue, begin, end[queue])
        for queue, begin in begins.items()
        if begin is not None and end[queue] > begin
    }


def limit_messages(
    waiting: Mapping[QueueRef, OffsetRange], end: Mapping[QueueRef, LogicalOffset], limit: int
) -> dict[QueueRef, LogicalOffset]:
    """Share `limit` messages between queues in proportion to their backlog.

    Every queue that has messages moves by at least one, so that none starves; hence many queues can
    exceed a small limit, by at most one message each. Queues without backlog keep `end`.
    """
    total = float(sum(each.size for each in waiting.values()))
    limited = dict(end)
    for queue, each in waiting.items():
        # Kafka's formula: doubles, rounded up below 1 and down above.
        share = limit * (each.size / total)
        step = math.ceil(share) if share < 1 else math.floor(share)
        reached = min(each.start + step, MAX_LONG)
        limited[queue] = LogicalOffset(min(each.end, reached))
    return limited


def byte_shares(waiting: Mapping[QueueRef, OffsetRange], limit: int) -> dict[QueueRef, int]:
    """Share `limit` bytes between queues in proportion to their backlog of messages, at least 1."""
    total = float(sum(each.size for each in waiting.values()))
    return {queue: max(int(limit * (each.size / total)), 1) for queue, each in waiting.items()}


def is_worth_a_batch(
    start: Mapping[QueueRef, LogicalOffset],
    end: Mapping[QueueRef, LogicalOffset],
    limits: TriggerLimits,
    waited_ms: int,
) -> bool:
    """Return True if enough messages have come, or enough time has passed, to run a batch.

    A queue new to the query counts from 0. Without minOffsetsPerTrigger the answer is always True.
    """
    if limits.min_messages is None or waited_ms >= limits.max_delay_ms:
        return True
    return sum(end[queue] - start.get(queue, 0) for queue in end) >= limits.min_messages


def batch_end(
    start: Mapping[QueueRef, LogicalOffset],
    available: Mapping[QueueRef, LogicalOffset],
    bounds: Mapping[QueueRef, Bounds],
    limits: TriggerLimits,
    measure: Callable[[OffsetRange, int], LogicalOffset],
) -> dict[QueueRef, LogicalOffset]:
    """Return where a batch ends that begins at `start` and may go up to `available`.

    `measure(range, size_bytes)` returns the offset up to which the range holds at most that many
    bytes, or one message; it is only called when there is a limit in bytes.
    """
    end = dict(available)
    if limits.max_messages is not None:
        end = limit_messages(backlog(start, end, bounds), end, limits.max_messages)
    if limits.max_bytes is not None:
        # After the limit on messages, so that only what that leaves is measured.
        waiting = backlog(start, end, bounds)
        for queue, share in byte_shares(waiting, limits.max_bytes).items():
            end[queue] = measure(waiting[queue], share)
    return end


def _earliest(queue: QueueRef, bounds: Mapping[QueueRef, Bounds]) -> LogicalOffset | None:
    return bounds[queue].earliest if queue in bounds else None
