"""The plan of check-back: what to do with each open half message. Pure: values in, steps out.

check_back.py reads the values and carries the steps out.

RocketMQ asks the producer of a half message that stays open: after `transactionTimeOut`, then every
`transactionCheckInterval`, at most `transactionCheckMax` times; then the message is given up. Each
time it is asked about, it is put back as a new half message that carries the count. Unlike there,
a check that could reach nobody is not made and does not count: such a message waits until its
group has a listener, or as long as messages are kept (`fileReservedTime`).

Half messages of a batch (decision_records.py) are different: the log itself knows what becomes of
them. As long as their batch is not decided they may be part of one that is still being prepared, so
they are given `batch_patience_ms` since anything was last prepared for that batch, and as many
checks after that as any other; then they are given up too, without having been put back.

All times are the broker's own: when it stored a message, not when the sender says it was born.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.property_names import (
    PREPARED_BY,
    PRODUCER_GROUP,
    PROPERTY_SEPARATOR,
    REAL_TOPIC,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.transactions.asking import Producer
    from broker_core.broker.transactions.decision_records import BatchAttempt
    from broker_core.types import BatchRef

NOT_IMMUNE = -1


class Verdict(IntEnum):
    """The log's word on a half message that no op message settles."""

    UNKNOWN = 0  # not of a batch: only its producer can say
    UNDECIDED = 1  # of a batch that is not decided
    COMMITTED = 2  # named by a decision that is not finished
    DROPPED = 3  # of a batch that was decided without it, or a copy of one that is settled


class Step(IntEnum):
    """A thing to do with a half message."""

    WAIT = 0
    FINISH = 1  # finish the decision that names it
    ROLL_BACK = 2
    ASK = 3  # put it back, counted, and ask its producer
    GIVE_UP = 4  # copy it to the discard topic


@dataclass(frozen=True, slots=True)
class CheckPolicy:
    """The patience of check-back; RocketMQ's names and defaults where it has them."""

    timeout_ms: int = 6_000
    interval_ms: int = 30_000
    max_checks: int = 15
    reserved_ms: int = 72 * 3_600_000
    batch_patience_ms: int = 72 * 3_600_000


@dataclass(frozen=True)
class OpenHalves:
    """Open half messages in the order of their offsets; one element each.

    `immunity_ms` is the message's own time before the first check, NOT_IMMUNE if it has none.
    `batches` and `producers` number the batches they are of, and those who can be asked about
    them; -1 for none.
    """

    offsets: NDArray[np.int64]
    stored_ms: NDArray[np.int64]
    checks: NDArray[np.int64]
    immunity_ms: NDArray[np.int64]
    verdicts: NDArray[np.int64]
    batches: NDArray[np.int64]
    producers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)


def plan(
    halves: OpenHalves, now_ms: int, policy: CheckPolicy, room: Sequence[int]
) -> NDArray[np.int8]:
    """Return the step to take with each half message.

    `room` has, for each producer, how many questions it can be asked now.
    """
    age = now_ms - halves.stored_ms
    steps = np.full(len(halves), Step.WAIT, dtype=np.int8)
    unknown = halves.verdicts == Verdict.UNKNOWN
    undecided = halves.verdicts == Verdict.UNDECIDED

    # Put back by the last round: its producer has an interval to answer.
    is_asked = (halves.checks > 0) & (age >= 0) & (age < policy.interval_ms)
    has_immunity = halves.immunity_ms != NOT_IMMUNE
    patience = np.where(has_immunity, halves.immunity_ms, policy.timeout_ms)
    # Stored in the future: the clock was set back since. RocketMQ asks at once.
    is_young = (halves.checks == 0) & (age >= 0) & (age <= patience)
    is_due = unknown & ~is_young & ~is_asked
    steps[_first_of_each(np.flatnonzero(is_due), halves.producers, room)] = Step.ASK
    steps[is_due & (halves.checks >= policy.max_checks)] = Step.GIVE_UP

    # Counted in time, since half messages of a batch are not put back and carry no count.
    limit = policy.batch_patience_ms + policy.max_checks * policy.interval_ms
    silent = now_ms - heard_ms(halves)
    steps[undecided & (silent > limit)] = Step.GIVE_UP
    steps[unknown & (age > policy.reserved_ms)] = Step.GIVE_UP

    steps[halves.verdicts == Verdict.COMMITTED] = Step.FINISH
    steps[halves.verdicts == Verdict.DROPPED] = Step.ROLL_BACK
    return steps


def _first_of_each(
    rows: NDArray[np.intp], producers: NDArray[np.int64], room: Sequence[int]
) -> NDArray[np.intp]:
    """Return, of each producer's rows, the first ones, as many as it has room for."""
    ordered = rows[np.argsort(producers[rows], kind="stable")]
    numbers = producers[ordered]
    rank = np.arange(len(ordered)) - np.searchsorted(numbers, numbers)
    # Of no producer, -1, is the last element.
    limits = np.array([*room, 0], dtype=np.int64)
    return ordered[rank < limits[numbers]]


def heard_ms(halves: OpenHalves) -> NDArray[np.int64]:
    """Return when anything was last stored for the batch of each half message."""
    if not (halves.batches >= 0).any():
        return halves.stored_ms
    latest = np.full(int(halves.batches.max()) + 2, np.iinfo(np.int64).min, dtype=np.int64)
    # -1, of no batch, is the last element; nobody looks at it.
    np.maximum.at(latest, halves.batches, halves.stored_ms)
    return np.where(halves.batches >= 0, latest[halves.batches], halves.stored_ms)


@dataclass(frozen=True, slots=True)
class CheckBackProgress:
    """The offsets that the next round begins with, of the half queue and of the op queue.

    Half messages before `half_offset` are settled.
    """

    half_offset: int
    op_offset: int


def open_offsets(start: int, end: int, settled: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the half messages of [start, end) that are not settled, in order.

    >>> open_offsets(3, 8, np.array([1, 4, 5, 9])).tolist()
    [3, 6, 7]
    """
    is_open = np.ones(max(0, end - start), dtype=np.bool_)
    inside = settled[(settled >= start) & (settled < end)]
    is_open[inside - start] = False
    return np.flatnonzero(is_open) + start


def advance(
    end: int,
    op_end: int,
    waiting: NDArray[np.int64],
    listed: NDArray[np.int64],
    listing: NDArray[np.int64],
) -> CheckBackProgress:
    """Return how far a round came: to the first half message that still waits.

    Op messages are needed as long as they list a half message at or behind that one: `listed` are
    half messages and `listing` the op messages that list them.
    """
    half_offset = int(waiting.min(initial=end))
    needed = listing[listed >= half_offset]
    return CheckBackProgress(half_offset, int(needed.min(initial=op_end)))


class Names:
    """Batches and producers that a round met, numbered in the order of their first mention."""

    def __init__(self) -> None:
        self._batches: dict[tuple[BatchRef, str], int] = {}
        self._producers: dict[Producer, int] = {}

    @property
    def producers(self) -> list[Producer]:
        """All producers: group, user and topic."""
        return list(self._producers)

    def batch(self, attempt: BatchAttempt) -> int:
        """Return the number of an attempt's batch."""
        return self._batches.setdefault((attempt.batch, attempt.user), len(self._batches))

    def producers_of(self, texts: Mapping[str, pa.Array]) -> NDArray[np.int64]:
        """Return the number of each half message's producer."""
        columns = [texts[name].fill_null("") for name in (PRODUCER_GROUP, PREPARED_BY, REAL_TOPIC)]
        # A property's value never holds this separator, so the three can be told apart again.
        coded = pc.dictionary_encode(pc.binary_join_element_wise(*columns, PROPERTY_SEPARATOR))
        numbers = np.array([self._producer(text) for text in coded.dictionary.to_pylist()])
        found: NDArray[np.int64] = numbers.astype(np.int64)[coded.indices.to_numpy()]
        return found

    def _producer(self, text: str) -> int:
        group, user, topic = text.split(PROPERTY_SEPARATOR)
        return self._producers.setdefault((group, user, topic), len(self._producers))
