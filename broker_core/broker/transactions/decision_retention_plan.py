"""Plan of decision retention: which decisions are carried along, and which streams are forgotten.

The pure half of decision_retention.py. A stream is an owner, a name and a user; its newest decision
is all that must be known of it. Streams with one owner and name are told apart by their order too:
a caller without a name, and one whose stream began without one, is answered by the newest of
several (DecisionLookup.decision_for). So such streams are carried along together, in their order,
or forgotten together.

Carried along is what lies in the part of the log that goes, and

- was decided since `oldest_ms`, and is among the `most` newest. If there are more, users take
  turns, each with their newest streams first: nobody's streams are forgotten because somebody
  else has many;
- or can't be forgotten: a decision that is not done, how far delayed messages are delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class State(IntEnum):
    """What the newest record of a stream says."""

    OVER = 0
    """Done, and nobody asks for the batch again: nothing need be known of it."""
    DONE = 1
    LASTING = 2
    """Not done, or no decision of a batch: never forgotten."""


@dataclass(frozen=True)
class NewestDecisions:
    """The newest decision of each stream, in columns.

    `groups` numbers owners with names, `users` users. `places` are physical offsets, `born_ms` the
    times of the decisions; a copy has the time of its original.
    """

    groups: NDArray[np.int64]
    users: NDArray[np.int64]
    places: NDArray[np.int64]
    born_ms: NDArray[np.int64]
    states: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True)
class RetentionPlan:
    """Rows of NewestDecisions: those whose records are copied, and those that are forgotten."""

    carried: NDArray[np.intp]
    forgotten: NDArray[np.intp]


def plan(newest: NewestDecisions, before: int, oldest_ms: int, most: int) -> RetentionPlan:
    """Return what becomes of streams when the log before a physical offset goes."""
    groups = newest.groups
    is_leaving = (newest.places < before) & (newest.states != State.OVER)
    concerned = _any_of_group(groups, is_leaving) & (newest.states != State.OVER)
    is_recent = newest.born_ms >= oldest_ms
    candidates = np.flatnonzero(concerned & is_recent & (newest.states == State.DONE))
    is_kept = concerned & ~(is_leaving & (newest.states == State.DONE))
    is_kept[candidates[_by_turns(newest, candidates)[:most]]] = True
    stays = _any_of_group(groups, is_kept)
    carried = np.flatnonzero(concerned & stays)
    return RetentionPlan(
        carried[np.argsort(newest.places[carried])], np.flatnonzero(concerned & ~stays)
    )


def _any_of_group(groups: NDArray[np.int64], rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which rows are in a group with one of `rows`."""
    found = np.zeros(int(groups.max(initial=-1)) + 1, dtype=np.bool_)
    found[groups[rows]] = True
    return found[groups]


def _by_turns(newest: NewestDecisions, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return an order of some rows: the newest of each user, then the second of each, and so on."""
    users, born_ms, places = newest.users[rows], newest.born_ms[rows], newest.places[rows]
    order = np.lexsort((-places, -born_ms, users))
    at = np.arange(len(rows))
    firsts = np.searchsorted(users[order], users[order])
    turns = np.empty(len(rows), dtype=np.int64)
    turns[order] = at - firsts
    return np.lexsort((-places, -born_ms, turns))
