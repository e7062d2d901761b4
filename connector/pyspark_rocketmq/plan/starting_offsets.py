"""Where to start and where to end: what the user means, and how it becomes numbers.

A Position is the user's intent. Resolution takes plain values only: the bounds of every queue, the
broker's answers to the timestamps that `times_needed` lists, and the group's offsets. A timestamp
means the first message stored at or after it; the broker answers with a queue's end when there is
none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.errors import option_errors
from pyspark_rocketmq.plan.offsets import EARLIEST, LATEST, Bounds, QueueNumbers


@dataclass(frozen=True)
class Earliest:
    """The first message that is still there."""


@dataclass(frozen=True)
class Latest:
    """After the last message."""


@dataclass(frozen=True)
class AtOffsets:
    """Given offsets, with -2 and -1 for earliest and latest."""

    numbers: QueueNumbers


@dataclass(frozen=True)
class AtTime:
    """One store time for every queue, in milliseconds since 1970."""

    option: str
    timestamp_ms: int


@dataclass(frozen=True)
class AtTimes:
    """A store time per queue."""

    numbers: QueueNumbers


@dataclass(frozen=True)
class AtGroup:
    """Where a consumer group stands; earliest for queues that it never read."""

    group: str


OffsetSpec = Earliest | Latest | AtOffsets | AtTime | AtTimes | AtGroup


@dataclass(frozen=True)
class Answers:
    """What the broker was asked on behalf of a position."""

    by_time: Mapping[QueueRef, LogicalOffset] = field(default_factory=dict)
    of_group: Mapping[QueueRef, LogicalOffset] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """Resolved starts.

    `is_movable` when a second resolution could jump over unread messages; `given` are the queues
    whose number the user wrote, so that no resolution can change it.
    """

    offsets: dict[QueueRef, LogicalOffset]
    is_movable: bool
    given: frozenset[QueueRef] = frozenset()


def times_needed(position: OffsetSpec, queues: Collection[QueueRef]) -> dict[QueueRef, int]:
    """The timestamps (ms) that the broker must turn into offsets before resolution."""
    if isinstance(position, AtTime):
        return dict.fromkeys(queues, position.timestamp_ms)
    if isinstance(position, AtTimes):
        return position.numbers.on(queues)
    return {}


def resolve_start(
    position: OffsetSpec,
    bounds: Mapping[QueueRef, Bounds],
    answers: Answers,
    *,
    late_is_latest: bool = False,
) -> Start:
    """Offsets to begin at, for exactly the queues in `bounds`.

    `late_is_latest` decides what happens to a queue without a message as young as the timestamp:
    begin at its end, or refuse.
    """
    symbolic = _symbolic(position, bounds, answers, late_is_latest=late_is_latest)
    return Start(
        {queue: _number(value, bounds[queue]) for queue, value in symbolic.items()},
        isinstance(position, AtGroup) or LATEST in symbolic.values(),
        frozenset(symbolic if isinstance(position, AtOffsets) else ())
        - {queue for queue, value in symbolic.items() if value < 0},
    )


def late_bound_start(
    position: OffsetSpec,
    bounds: Mapping[QueueRef, Bounds],
    answers: Answers,
    *,
    late_is_latest: bool = False,
) -> dict[QueueRef, LogicalOffset | None]:
    """As resolve_start, but earliest stays open (None), to be found out when reading."""
    symbolic = _symbolic(position, bounds, answers, late_is_latest=late_is_latest)
    return {
        queue: None if value == EARLIEST else _number(value, bounds[queue])
        for queue, value in symbolic.items()
    }


def late_bound_end(
    position: OffsetSpec, bounds: Mapping[QueueRef, Bounds], answers: Answers
) -> dict[QueueRef, LogicalOffset | None]:
    """Offsets to end before; latest stays open (None), as does a timestamp without a match."""
    symbolic = _symbolic(position, bounds, answers, late_is_latest=True)
    return {
        queue: None if value == LATEST else _number(value, bounds[queue])
        for queue, value in symbolic.items()
    }


def _symbolic(
    position: OffsetSpec,
    bounds: Mapping[QueueRef, Bounds],
    answers: Answers,
    *,
    late_is_latest: bool,
) -> dict[QueueRef, int]:
    """Per queue, in order: an offset, or EARLIEST or LATEST."""
    queues = sorted(bounds)
    match position:
        case Earliest():
            return dict.fromkeys(queues, EARLIEST)
        case Latest():
            return dict.fromkeys(queues, LATEST)
        case AtOffsets(numbers):
            given = numbers.on(queues)
            return {queue: given[queue] for queue in queues}
        case AtGroup():
            return {queue: answers.of_group.get(queue, EARLIEST) for queue in queues}
        case AtTime() | AtTimes():
            times = times_needed(position, queues)
            found = {queue: answers.by_time[queue] for queue in queues}
    late = [queue for queue in queues if found[queue] >= bounds[queue].latest]
    if late and not late_is_latest:
        raise option_errors.offsets_timestamp_not_found(late[0], times[late[0]])
    return found | dict.fromkeys(late, LATEST)


def _number(value: int, held: Bounds) -> LogicalOffset:
    edges = {EARLIEST: held.earliest, LATEST: held.latest}
    return edges.get(value, LogicalOffset(value))
