"""Batch reads: pieces of queues whose ends may stay open until a task reads them.

`earliest` and `latest` are not numbers but moments: a DataFrame may be used long after it was
planned, and twice. So pieces that begin or end there carry None, and the task resolves it against
the bounds of its own moment. Numbers that the user gave are final.
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


@dataclass(frozen=True)
class QueueRange:
    """[start, end) of a queue, open where None, and of that only [low, high).

    The user asked for [start, end): what is missing of it is data loss. [low, high) comes from
    filters: nobody expects messages there.
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
    """One piece per queue that may hold wanted messages, in order."""
    pieces = []
    for queue in sorted(starts):
        _check_order(queue, starts[queue], ends[queue], bounds[queue])
        if pushed.reads(queue) and not pushed.is_empty:
            low, high = LogicalOffset(pushed.start), LogicalOffset(pushed.end)
            pieces.append(QueueRange(queue, starts[queue], ends[queue], low, high))
    return [piece for piece in pieces if _may_hold(piece)]


def narrow(
    piece: QueueRange, low: LogicalOffset | None = None, high: LogicalOffset | None = None
) -> QueueRange:
    """The piece, further restricted by a filter."""
    return replace(
        piece,
        low=piece.low if low is None else max(piece.low, low),
        high=piece.high if high is None else min(piece.high, high),
    )


def split_queue_ranges(
    pieces: list[QueueRange],
    bounds: Mapping[QueueRef, Bounds],
    *,
    min_tasks: int | None,
    max_messages: int | None,
) -> list[QueueRange]:
    """Cut pieces by their size as of now; the first stays as open as it was, and so does the last.

    A queue that is empty now keeps its one piece, for it may not be when the task reads.
    """
    if (min_tasks is None or min_tasks <= len(pieces)) and max_messages is None:
        return pieces
    ranges = [present(piece, bounds[piece.queue]) for piece in pieces]
    cuts = split(ranges, min_tasks=min_tasks, max_messages=max_messages)
    found: list[QueueRange] = []
    for piece in pieces:
        borders = [cut.start for cut in cuts if cut.queue == piece.queue][1:]
        lows, highs = [piece.low, *borders], [*borders, piece.high]
        found += [replace(piece, low=low, high=high) for low, high in zip(lows, highs, strict=True)]
    return found


def present(piece: QueueRange, held: Bounds) -> OffsetRange:
    """The part of a piece that is there now, without a word about what is missing."""
    return resolve(piece, held, lambda _loss: None)


def resolve(piece: QueueRange, held: Bounds, report: Report) -> OffsetRange:
    """What a task reads of a piece; what the user gave as a number and is gone is reported."""
    start = held.earliest if piece.start is None else piece.start
    end = held.latest if piece.end is None else piece.end
    start, end = max(start, piece.low), min(end, piece.high)
    return readable(OffsetRange(piece.queue, start, LogicalOffset(max(start, end))), held, report)


def _check_order(
    queue: QueueRef, start: LogicalOffset | None, end: LogicalOffset | None, held: Bounds
) -> None:
    first = held.earliest if start is None else start
    last = held.latest if end is None else end
    if first > last:
        raise option_errors.offsets_resolved_start_after_end(queue, first, last)


def _may_hold(piece: QueueRange) -> bool:
    """Whether a message could be in the piece, now or later."""
    start = piece.low if piece.start is None else max(piece.start, piece.low)
    end = piece.high if piece.end is None else min(piece.end, piece.high)
    return start < end
