"""Exploration of the model: scenes, invariants, and every state that is reached, breadth first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.log_first.files import UnroomedError
from tests.model.log_first.protocol import step
from tests.model.log_first.state import BOUND, TORN, Action, Call, Cell, Rules, State
from tests.model.log_first.writers import Finished, finished


class Scene(NamedTuple):
    """A small world: what may happen in it, and how often.

    `sizes` are the records of an append, `others` what is done but quick appends. A scene that
    `looks` has a reader, which is never idle for long: it is what makes a world large.
    """

    name: str
    appends: int
    sizes: tuple[int, ...] = (1, 2)
    writers: int = 2
    others: tuple[str, ...] = ()
    syncs: bool = False
    looks: bool = False
    deaths: int = 0
    faults: int = 0
    strangers: int = 0


LOSSES = ("", "queue", "log", "log queue", "last")
"""The parts of what is not durable that a loss of power takes."""


class Step(NamedTuple):
    """An action and the state that it led to."""

    action: Action
    after: State


def menu(scene: Scene, state: State) -> Iterator[Action]:
    """Yield what may happen in a state."""
    call = state.call
    # A write that failed is followed at once by what undoes it.
    if scene.looks and not (call and call.done == "failed"):
        yield Action("page" if state.look is None else "look")
    if call is not None:
        yield from _under_way(scene, state, call)
        return
    # Until one has written, the two could be exchanged.
    for who in range(1 if state.appends == 1 else scene.writers):
        if state.appends <= scene.appends:
            yield from _appending(scene, state, who)
        yield from (Action(kind, who) for kind in ("turn", "flush") if kind in scene.others)
    yield from _around(scene, state)


def _around(scene: Scene, state: State) -> Iterator[Action]:
    if state.strangers < scene.strangers:
        if "stranger" in scene.others:
            yield Action("stranger")
        if "power" in scene.others:
            yield from (Action("power", how=how) for how in LOSSES)
    if "fill" in scene.others and not state.is_full:
        yield Action("fill")


def _appending(scene: Scene, state: State, who: int) -> Iterator[Action]:
    for size in scene.sizes:
        yield Action("send", who, size)
        if scene.syncs:
            yield Action("send", who, size, is_sync=True)
    if "many" in scene.others and not state.is_full:
        yield Action("many", who)


def _under_way(scene: Scene, state: State, call: Call) -> Iterator[Action]:
    yield Action("go")
    following = call.todo[0]
    # An undo that fails before it is marked leaves an append that is there or not.
    has_bytes = len(state.log) > call.start
    if following == "undo.log" and has_bytes and state.faults < scene.faults:
        yield Action("give up")
    if call.done == "failed":
        return
    hows = ("", "torn") if following == "write" else ("",)
    if state.deaths < scene.deaths:
        yield from (Action("die", how=how) for how in hows)
    if state.faults < scene.faults and following in ("write", "sync") and call.kind == "send":
        yield from (Action("fail", how=how) for how in hows)


# Invariants


def broken(state: State, rules: Rules, ends: dict[State, Finished]) -> str | None:
    """Return the name of the first invariant that a state breaks, None if it keeps all."""
    if state.result is not None and (name := _broken_result(state, state.result)):
        return name
    marker = state.marker
    if state.call is None and marker.end - marker.dispatched_end > BOUND:
        return "tail_is_bounded"
    return _broken_end(state, rules, ends)


def _broken_result(state: State, result: tuple[Cell, ...]) -> str | None:
    """Return what is wrong with what a look saw."""
    due, gone = state.told
    whole, has_parts = _whole_appends(result, state.excused)
    if not has_parts:
        return "append_is_whole"
    if not due <= whole:
        return "acknowledged_is_seen"
    if gone & {cell.append for cell in result if cell is not None} - state.excused:
        return "failed_is_not_seen"
    return None


def _broken_end(state: State, rules: Rules, ends: dict[State, Finished]) -> str | None:
    """Return what is wrong with the store once the next writer has taken it over."""
    files = State(
        log=state.log,
        queue=state.queue,
        keys=state.keys,
        marker=state.marker,
        is_believed=state.is_believed,
        flushed=state.flushed,
        is_full=state.is_full,
        room=state.room if state.is_full else 1,
    )
    if files not in ends:
        try:
            ends[files] = finished(files, rules)
        except UnroomedError:
            return "acknowledged_can_be_dispatched"
    end = ends[files]
    found = tuple(end.log[at] if at < len(end.log) else None for at in end.queue)
    whole, has_parts = _whole_appends(found, state.excused)
    if not has_parts or tuple(found) != end.log:
        return "append_is_whole"
    if not state.acknowledged <= whole:
        return "acknowledged_is_kept"
    if not state.seen - state.undone - state.excused <= whole:
        return "seen_is_kept"
    if state.failed & whole - state.excused:
        return "failed_is_not_seen"
    if list(end.keys) != sorted(set(end.keys)) or len(end.keys) != len(end.log):
        return "index_has_each_once"
    return None


def _whole_appends(found: tuple[Cell, ...], excused: frozenset[int]) -> tuple[frozenset[int], bool]:
    """Return the appends of which all is there; and whether nothing else is, in its place."""
    parts: dict[int, list[int]] = {}
    for place, cell in enumerate(found):
        if cell is None or cell == TORN or cell.place != place:
            return frozenset(), False
        parts.setdefault(cell.append, []).append(cell.part)
    sizes = {cell.append: cell.parts for cell in found if cell is not None}
    whole = frozenset(each for each, seen in parts.items() if seen == list(range(sizes[each])))
    return whole, parts.keys() <= whole | excused


# Exploration


class Exploration:
    """The states of a scene, each with the step that first led to it; and what was broken."""

    def __init__(self) -> None:
        self.numbers = {State(): 0}
        self.states = [State()]
        self.came: list[tuple[int, Action] | None] = [None]
        self.broken: str | None = None

    def trace(self, number: int = -1) -> list[Step]:
        """Return the shortest way to a state, or to what was broken."""
        found: list[Step] = []
        at = number % len(self.states)
        while (came := self.came[at]) is not None:
            found.append(Step(came[1], self.states[at]))
            at = came[0]
        return found[::-1]


def explore(scene: Scene, rules: Rules) -> Exploration:
    """Visit every state of a scene; stop at the first that breaks an invariant."""
    found = Exploration()
    frontier = [0]
    ends: dict[State, Finished] = {}
    while frontier:
        reached: list[int] = []
        for number in frontier:
            for action in menu(scene, found.states[number]):
                try:
                    after = step(found.states[number], action, rules)
                except UnroomedError:
                    found.broken = "acknowledged_can_be_dispatched"
                    return found
                if after in found.numbers:
                    continue
                found.numbers[after] = len(found.states)
                reached.append(len(found.states))
                found.states.append(after)
                found.came.append((number, action))
                found.broken = broken(after, rules, ends)
                if found.broken:
                    return found
        frontier = reached
    return found
