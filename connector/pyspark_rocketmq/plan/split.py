"""minPartitions and maxRecordsPerPartition: ranges cut into tasks as the Kafka source cuts them.

`min_tasks` is a hint: it decides into how many parts large ranges are cut, in proportion to their
size; `max_messages` is a promise: no task gets more. Whatever the numbers, the parts of a range are
contiguous, never overlap and cover it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from broker_core.types import LogicalOffset, OffsetRange


def split(
    ranges: Sequence[OffsetRange],
    *,
    min_tasks: int | None = None,
    max_messages: int | None = None,
) -> list[OffsetRange]:
    """Cut ranges into at most `max_messages` each and about `min_tasks` altogether.

    Empty ranges are dropped and order is kept. May return fewer parts than `min_tasks` when there
    are fewer messages than tasks, and a few more because of rounding.

    >>> from broker_core.types import QueueRef
    >>> queue = QueueRef("t", "b", 0)
    >>> [(r.start, r.end) for r in split([OffsetRange(queue, 1, 11)], min_tasks=3)]
    [(1, 4), (4, 7), (7, 11)]
    """
    parts = [each for each in ranges if each.size > 0]
    if max_messages is not None:
        parts = [part for each in parts for part in _cut(each, -(-each.size // max_messages))]
    if min_tasks is not None and min_tasks > len(parts):
        parts = _spread(parts, min_tasks)
    return parts


def _spread(ranges: Sequence[OffsetRange], min_tasks: int) -> list[OffsetRange]:
    """Give each range its share of `min_tasks`; ranges worth one task or less stay whole.

    Small ranges are counted first, because each of them costs a task whatever its size; only what
    remains is shared by the large ones.
    """
    total = sum(each.size for each in ranges)
    small = [each for each in ranges if _share(each.size, total, min_tasks) == 1]
    whole = {each.queue for each in small}
    rest = total - sum(each.size for each in small)
    tasks = max(min_tasks - len(small), 1)
    return [
        part
        for each in ranges
        for part in ([each] if each.queue in whole else _cut(each, _share(each.size, rest, tasks)))
    ]


def _share(size: int, total: int, tasks: int) -> int:
    # Half up on doubles, not Python's half to even: these must be the numbers Kafka users know.
    return max(math.floor(size / total * tasks + 0.5), 1)


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Cut into even, contiguous parts; the remainder goes to the later ones."""
    parts: list[OffsetRange] = []
    start = whole.start
    for index in range(count):
        size = (whole.end - start) // (count - index)
        end = LogicalOffset(start + size)
        if size > 0:
            parts.append(OffsetRange(whole.queue, start, end))
        start = end
    return parts
