"""startingOffsets and endingOffsets: what the user means, and how it becomes numbers.

An OffsetSpec is the user's intent. Resolution takes plain values only: the bounds of every queue,
the broker's answers to the timestamps that `times_needed` lists, and the group's offsets. A
timestamp means the first message stored at or after it; the broker answers with a queue's end when
there is none.

A stream resolves its start once, to numbers (`resolve_start`), which Spark's offset log then keeps.
A batch read leaves earliest and latest open until a task reads (`late_bound_start`,
`late_bound_end`): see bounded.py.
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
    """An offset per queue, with -2 for earliest and -1 for latest."""

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
    """The committed offsets of a consumer group; earliest for queues that it never read."""

    group: str


OffsetSpec = Earliest | Latest | AtOffsets | AtTime | AtTimes | AtGroup


@dataclass(frozen=True)
class Answers:
    """The broker's answers that resolving an OffsetSpec needs."""

    by_time: Mapping[QueueRef, LogicalOffset] = field(default_factory=dict)
    of_group: Mapping[QueueRef, LogicalOffset] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """The resolved start of a stream.

    `is_movable`: a second resolution could jump over unread messages. `given`: the queues whose
    number the user wrote, which no resolution can change.
    """

    offsets: dict[QueueRef, LogicalOffset]
    is_movable: bool
    given: frozenset[QueueRef] = frozenset()


def times_needed(spec: OffsetSpec, queues: Collection[QueueRef]) -> dict[QueueRef, int]:
    """Return the timestamps (ms) that the broker must turn into offsets before resolution."""
    if isinstance(spec, AtTime):
        return dict.fromkeys(queues, spec.timestamp_ms)
    if isinstance(spec, AtTimes):
        return spec.numbers.on(queues)
    return {}


def resolve_start(
    spec: OffsetSpec,
    bounds: Mapping[QueueRef, Bounds],
    answers: Answers,
    *,
    late_is_latest: bool = False,
) -> Start:
    """Return the offsets to begin at, for exactly the queues in `bounds`.

    `late_is_latest` decides what happens to a queue without a message as young as the timestamp:
    begin at its end, or refuse.
    """
    symbolic = _symbolic(spec, bounds, answers, late_is_latest=late_is_latest)
    # LATEST and a group's offsets move with time; earliest only moves over expired messages.
    return Start(
        {queue: _number(value, bounds[queue]) for queue, value in symbolic.items()},
        isinstance(spec, AtGroup) or LATEST in symbolic.values(),
        frozenset(symbolic if isinstance(spec, AtOffsets) else ())
        - {queue for queue, value in symbolic.items() if value < 0},
    )


def late_bound_start(
    spec: OffsetSpec,
    bounds: Mapping[QueueRef, Bounds],
    answers: Answers,
    *,
    late_is_latest: bool = False,
) -> dict[QueueRef, LogicalOffset | None]:
    """Return the offsets to begin at; earliest stays open (None) until a task reads."""
    symbolic = _symbolic(spec, bounds, answers, late_is_latest=late_is_latest)
    return {
        queue: None if value == EARLIEST else _number(value, bounds[queue])
        for queue, value in symbolic.items()
    }


def late_bound_end(
    spec: OffsetSpec, bounds: Mapping[QueueRef, Bounds], answers: Answers
) -> dict[QueueRef, LogicalOffset | None]:
    """Return the offsets to end before; open (None) for latest or a timestamp without a match."""
    symbolic = _symbolic(spec, bounds, answers, late_is_latest=True)
    return {
        queue: None if value == LATEST else _number(value, bounds[queue])
        for queue, value in symbolic.items()
    }


def _symbolic(
    spec: OffsetSpec,
    bounds: Mapping[QueueRef, Bounds],
    answers: Answers,
    *,
    late_is_latest: bool,
) -> dict[QueueRef, int]:
    """Return an offset, EARLIEST or LATEST per queue, in queue order."""
    queues = sorted(bounds)
    match spec:
        case Earliest():
            return dict.fromkeys(queues, EARLIEST)
        case Latest():
            return dict.fromkeys(queues, LATEST)
        case AtOffsets(numbers):
            offsets = numbers.on(queues)
            return {queue: offsets[queue] for queue in queues}
        case AtGroup():
            return {queue: answers.of_group.get(queue, EARLIEST) for queue in queues}
        case AtTime() | AtTimes():
            times = times_needed(spec, queues)
            found = {queue: answers.by_time[queue] for queue in queues}
    # A broker answers a timestamp after the last message with the queue's end.
    late = [queue for queue in queues if found[queue] >= bounds[queue].latest]
    if late and not late_is_latest:
        raise option_errors.offsets_timestamp_not_found(late[0], times[late[0]])
    return found | dict.fromkeys(late, LATEST)


def _number(value: int, held: Bounds) -> LogicalOffset:
    edges = {EARLIEST: held.earliest, LATEST: held.latest}
    return edges.get(value, LogicalOffset(value))
