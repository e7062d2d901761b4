"""Exploration: every state that a scene's actions reach, breadth first, each step checked.

A scene is a small world: who is there, what they may do, how much of it. Names are used in the
order of their first use (the first user to act is Alice, attempts and fingerprints are counted), so
that states which differ in names only are one state.

What one user does must not change what another sees. For each user a state has a view: their own
records, with their own numbering. A step of somebody else must leave the view as it is; and the
answer to a user, and the next view, must follow from the view and the action alone, over all states
that were ever met. So by induction every trace gives a user the answers of the trace without the
others: the world without the attacker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.transactions.invariants import broken, broken_in_the_end
from tests.model.transactions.services import step
from tests.model.transactions.state import (
    NAMELESS,
    TAG_ATTEMPT,
    Action,
    Attempt,
    Decision,
    Rules,
    State,
    attempt_of,
    lost_rows,
)

Menu = Callable[[State], Iterable[Action]]
View = tuple[object, ...]
Kind = tuple[object, ...]
ENVIRONMENT = frozenset(["tick", "round", "roll", "retain", "resume", "die"])
_FOREIGN = -9
OTHERS_CHANGE_NOTHING = "others_change_nothing"


@dataclass(frozen=True)
class Scene:
    """What may happen: the actions of each state, and how deep to go (None: until all is seen)."""

    name: str
    menu: Menu
    depth: int | None = None
    users: tuple[int, ...] = ()
    """Those whose views must not depend on each other; none where a nameless caller acts for all,
    or processes pause."""


class Step(NamedTuple):
    """An action, its answer, and the state that it led to."""

    action: Action
    answer: str
    after: State


class Exploration:
    """The states of a scene, each with the step that first led to it; and what was broken."""

    def __init__(self, users: tuple[int, ...]) -> None:
        self.states = [State()]
        self._lost = [lost_rows(State())]
        self.numbers = {State(): 0}
        self.came: list[tuple[int, Step] | None] = [None]
        self.steps = 0
        self.depth = 0
        self.broken: str | None = None
        self._users = users
        self._views: dict[View, int] = {}
        self._seen = [self._views_of(State())]
        self._laws: dict[tuple[int, Action], tuple[str, int]] = {}
        self._ends: dict[State, str | None] = {}
        self.examples: dict[Kind, tuple[int, Step]] = {}
        """The first step of each kind, with the state that it leaves."""

    def note(self, number: int, taken: Step, rules: Rules) -> int | None:
        """Take note of a step from a state, and check it; return the number of a new state."""
        before, after = self.states[number], taken.after
        self.steps += 1
        found = number if after is before else self.numbers.get(after)
        is_new = found is None
        if found is None:
            found = self.numbers[after] = len(self.states)
            self.states.append(after)
            self._lost.append(lost_rows(after))
            self.came.append((number, taken))
            self._seen.append(self._views_of(after))
        self.examples.setdefault(kind_of(before, taken), (number, taken))
        lost = self._lost[found] - self._lost[number]
        self.broken = (
            broken(before, taken.action, taken.answer, after, lost)
            or (self._broken_in_the_end(after, rules) if is_new else None)
            or self._broken_views(number, taken, found)
        )
        if self.broken and not is_new:
            # So that the trace ends with this step.
            self.came.append((number, taken))
        return found if is_new else None

    def trace(self, number: int = -1) -> list[Step]:
        """Return the shortest way to a state, or to what was broken."""
        return [taken for _, taken in self.path(number)]

    def path(self, number: int = -1) -> list[tuple[int, Step]]:
        """Return the shortest way to a state with the number of each state that it leaves."""
        found: list[tuple[int, Step]] = []
        came = self.came[number]
        while came is not None:
            found.append(came)
            came = self.came[came[0]]
        return found[::-1]

    def _views_of(self, state: State) -> tuple[int, ...]:
        return tuple(
            self._views.setdefault(view(state, user), len(self._views)) for user in self._users
        )

    def _broken_in_the_end(self, state: State, rules: Rules) -> str | None:
        # Whoever is paused dies, and nothing else depends on who died before.
        state = state._replace(paused=None, deaths=0)
        if state not in self._ends:
            self._ends[state] = broken_in_the_end(state, rules)
        return self._ends[state]

    def _broken_views(self, before: int, taken: Step, after: int) -> str | None:
        """Return what a step breaks between users."""
        action = taken.action
        for place, user in enumerate(self._users):
            seen, later = self._seen[before][place], self._seen[after][place]
            if action.kind in ENVIRONMENT:
                law = "", later
            elif action.user == user:
                law = taken.answer, later
            elif seen != later:
                return OTHERS_CHANGE_NOTHING
            else:
                continue
            asked = seen, _as_seen(self.states[before], action, user)
            if self._laws.setdefault(asked, law) != law:
                return OTHERS_CHANGE_NOTHING
        return None


def kind_of(before: State, taken: Step) -> Kind:
    """Return what tells one step from another, but for who, when and how much."""
    action, answer, after = taken
    if action.kind == "resume":
        assert before.paused is not None
        return action.kind, answer, before.paused.kind, after.paused and after.paused.kind
    said = action.kind, action.conflict, action.how, action.is_paused
    died = action.dies >= 0, action.cut
    shape = tuple(_shape(before, action)) if answer in ("unknown", "request") else ()
    # After retention, and for a caller without a name, calls look at other things.
    return said, answer, died, shape, before.start > 0, action.user == NAMELESS


def _shape(state: State, action: Action) -> Iterator[tuple[bool, ...]]:
    """Yield of each receipt what is true of it and what is forged."""
    for attempt, halves in action.receipts:
        found = attempt_of(state, attempt)
        yield (
            found is not None and found.user == action.user,
            found is not None and found.number == action.number,
            len(set(halves)) == len(halves),
            all(
                number < len(state.halves) and state.halves[number].attempt == attempt
                for number in halves
            ),
        )


def explore(scene: Scene, rules: Rules, ignoring: Collection[str] = ()) -> Exploration:
    """Visit every state of a scene; stop at the first step that breaks an invariant."""
    found = Exploration(scene.users)
    frontier = [0]
    while frontier and (scene.depth is None or found.depth < scene.depth):
        found.depth += 1
        reached: list[int] = []
        for number in frontier:
            state = found.states[number]
            for action in scene.menu(state):
                after, answer = step(state, action, rules)
                new = found.note(number, Step(action, answer, after), rules)
                if found.broken and found.broken not in ignoring:
                    return found
                if new is not None:
                    reached.append(new)
        frontier = reached
    found.broken = None
    return found


def kinds_of(trace: Iterable[Step]) -> Iterator[Kind]:
    """Yield the kinds of a trace's steps."""
    state = State()
    for taken in trace:
        yield kind_of(state, taken)
        state = taken.after


def cover(found: Exploration, covered: set[Kind]) -> list[list[Action]]:
    """Return traces that have a step of every kind that is not covered, and add those to it.

    Refusals are asked for on the way.
    """
    refusals: dict[int, dict[Kind, Action]] = {}
    for kind, (number, taken) in found.examples.items():
        if taken.after is found.states[number]:
            refusals.setdefault(number, {})[kind] = taken.action
    traces: list[list[Action]] = []
    # The longest first: what lies on their way needs no trace of its own.
    for kind, (number, last) in sorted(
        found.examples.items(), key=lambda each: -len(found.trace(each[1][0]))
    ):
        if kind in covered:
            continue
        traces.append([])
        for at, taken in (*found.path(number), (number, last)):
            for refusal, action in refusals.get(at, {}).items():
                if refusal not in covered:
                    covered.add(refusal)
                    traces[-1].append(action)
            if taken.after is not found.states[at]:
                covered.add(kind_of(found.states[at], taken))
                traces[-1].append(taken.action)
    return traces


def view(state: State, user: int) -> View:
    """Return a user's own part of a state, with a numbering of its own."""
    numbers = _numbers(state, user)
    ids = _ids(state, user)
    rows = [state.halves[number].row for number in numbers]
    halves = tuple(
        (
            state.halves[number]._replace(attempt=ids.get(state.halves[number].attempt, -1), row=0),
            number < state.start,
            state.halves[number].row in state.visible,
        )
        for number in numbers
    )
    journal = tuple(
        record._replace(named=tuple(numbers.get(half, _FOREIGN) for half in record.named))
        if isinstance(record, Decision)
        else record._replace(id=ids[record.id])
        for record in state.journal
        if record.user == user
    )
    lineage = tuple(rows.index(row) for row in rows)
    return user, halves, lineage, journal, state.segment


def _numbers(state: State, user: int) -> dict[int, int]:
    """Return a user's half messages, numbered by themselves."""
    own = (number for number, half in enumerate(state.halves) if half.user == user)
    return {number: index for index, number in enumerate(own)}


def _ids(state: State, user: int) -> dict[int, int]:
    """Return a user's attempts, numbered by themselves."""
    own = [half.attempt for half in state.halves if half.user == user and half.attempt >= 0]
    own += [each.id for each in state.journal if isinstance(each, Attempt) and each.user == user]
    return {attempt: index for index, attempt in enumerate(dict.fromkeys(own))}


def _as_seen(state: State, action: Action, user: int) -> Action:
    """Return an action with what is not the user's own called foreign, whether it exists or not."""
    if action.kind in ENVIRONMENT:
        return action
    numbers, ids = _numbers(state, user), _ids(state, user)
    attempt = ids.get(action.attempt, action.attempt)
    if action.kind == "prepare" and action.attempt != TAG_ATTEMPT and action.attempt not in ids:
        # Ids are random: that another's is met is no part of the world without the other.
        is_taken = attempt_of(state, action.attempt) is not None
        attempt = _FOREIGN if is_taken else len(ids)
    return action._replace(
        attempt=attempt,
        half=numbers.get(action.half, _FOREIGN),
        receipts=tuple(
            (ids.get(said, _FOREIGN), tuple(numbers.get(half, _FOREIGN) for half in halves))
            for said, halves in action.receipts
        ),
    )
