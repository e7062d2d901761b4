"""Batch reads: ranges of queues whose ends may stay open until a task reads them.

`earliest` and `latest` are not numbers but moments: a DataFrame may be used long after it was
planned, and twice. So a range that begins or ends there carries None, and the task resolves it
against the bounds that the queue has when it reads. Numbers that the user gave are final.

On the driver: `plan_queue_ranges`, `narrow`, `split_queue_ranges`. In a task: `resolve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.errors import option_errors
from pyspark_rocketmq.plan.dataloss import Report, readable
from pyspark_rocketmq.plan.offsets import MAX_LONG, Bounds
from pyspark_rocketmq.plan.pushdown import Pushed
from pyspark_rocketmq.plan.split import split


@dataclass(frozen=True, slots=True)
class QueueRange:
    """[start, end) of a queue, open where None, and of that only [low, high).

    The user asked for [start, end): what is missing of it is data loss. [low, high) comes from
    filters and from splitting: messages missing outside it are no loss to this range.
    """

    queue: QueueRef
    start: LogicalOffset | None
    end: LogicalOffset | None
    low: LogicalOffset = LogicalOffset(0)
    high: LogicalOffset = LogicalOffset(MAX_LONG)


def plan_queue_ranges(
    starts: Mapping[QueueRef, LogicalOffset | None],
    ends: Mapping[QueueRef, LogicalOffset | None],
    bounds: Mapping[QueueRef, Bounds],
    pushed: Pushed,
) -> list[QueueRange]:
    """Return one range per queue that may hold wanted messages, in queue order."""
    ranges = []
    for queue in sorted(starts):
        _check_order(queue, starts[queue], ends[queue], bounds[queue])
        if pushed.reads(queue) and not pushed.is_empty:
            low, high = LogicalOffset(pushed.start), LogicalOffset(pushed.end)
            ranges.append(QueueRange(queue, starts[queue], ends[queue], low, high))
    return [each for each in ranges if _may_hold(each)]


def narrow(
    wanted: QueueRange, low: LogicalOffset | None = None, high: LogicalOffset | None = None
) -> QueueRange:
    """Restrict a range to [low, high) as well."""
    return replace(
        wanted,
        low=wanted.low if low is None else max(wanted.low, low),
        high=wanted.high if high is None else min(wanted.high, high),
    )


def split_queue_ranges(
    ranges: list[QueueRange],
    bounds: Mapping[QueueRef, Bounds],
    *,
    min_tasks: int | None,
    max_messages: int | None,
) -> list[QueueRange]:
    """Cut ranges by the size they have now.

    The first part of a range stays as open at its start as the range was, and the last part at its
    end: messages that come before the tasks read belong to the last. A queue that is empty now
    keeps its one range, because it may hold messages by the time the task reads.
    """
    if (min_tasks is None or min_tasks <= len(ranges)) and max_messages is None:
        return ranges
    sizes = [present(each, bounds[each.queue]) for each in ranges]
    # Cut by present sizes; only the borders between parts become numbers.
    cuts = split(sizes, min_tasks=min_tasks, max_messages=max_messages)
    parts: list[QueueRange] = []
    for each in ranges:
        borders = [cut.start for cut in cuts if cut.queue == each.queue][1:]
        lows, highs = [each.low, *borders], [*borders, each.high]
        parts += [replace(each, low=low, high=high) for low, high in zip(lows, highs, strict=True)]
    return parts


def present(wanted: QueueRange, held: Bounds) -> OffsetRange:
    """Return the part of a range that is there now; what is missing is not reported."""
    return resolve(wanted, held, lambda _loss: None)


def resolve(wanted: QueueRange, held: Bounds, report: Report) -> OffsetRange:
    """Return what a task reads of a range; missing offsets that the user gave are reported."""
    start = held.earliest if wanted.start is None else wanted.start
    end = held.latest if wanted.end is None else wanted.end
    start, end = max(start, wanted.low), min(end, wanted.high)
    return readable(OffsetRange(wanted.queue, start, LogicalOffset(max(start, end))), held, report)


def _check_order(
    queue: QueueRef, start: LogicalOffset | None, end: LogicalOffset | None, held: Bounds
) -> None:
    first = held.earliest if start is None else start
    last = held.latest if end is None else end
    if first > last:
        raise option_errors.offsets_resolved_start_after_end(queue, first, last)


def _may_hold(wanted: QueueRange) -> bool:
    """Return True if a message could be in the range, now or later."""
    start = wanted.low if wanted.start is None else max(wanted.start, wanted.low)
    end = wanted.high if wanted.end is None else min(wanted.end, wanted.high)
    return start < end
