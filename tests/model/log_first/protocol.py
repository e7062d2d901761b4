"""Events of the model: steps of writers, of a reader, and of the world around them."""

from __future__ import annotations

from collections.abc import Callable

from tests.model.log_first import reader, writers
from tests.model.log_first.files import scanned
from tests.model.log_first.state import Action, Record, Rules, State


def step(state: State, action: Action, rules: Rules) -> State:
    """Return the state after an action that the state allows."""
    return _ACTIONS[action.kind](state, action, rules)


def _stranger(state: State, action: Action, rules: Rules) -> State:
    """Start a foreign broker, which recovers, appends one message, dispatches, and stops."""
    state = scanned(_excuse(state), state.flushed)
    place = len(state.queue)
    record = Record(state.appends, 0, 1, place)
    at = len(state.log)
    return state._replace(
        log=(*state.log, record),
        queue=(*state.queue, at),
        keys=(*state.keys, at),
        appends=state.appends + 1,
        acknowledged=state.acknowledged | {record.append},
        is_believed=False,
        processes=tuple(each._replace(is_current=False) for each in state.processes),
        strangers=state.strangers + 1,
    )


def _power(state: State, action: Action, rules: Rules) -> State:
    """Lose power: what was not made durable may be gone, `how` says what is."""
    state = _excuse(state)
    log, queue, keys = state.log, state.queue, state.keys
    if "log" in action.how:
        log = log[: state.synced]
    if "last" in action.how:
        log = log[: max(state.synced, len(log) - 1)]
    if "queue" in action.how:
        queue, keys = queue[: state.synced_queue], keys[: state.synced_queue]
    return State(
        log=log,
        queue=queue,
        keys=keys,
        marker=state.marker,
        is_believed=False,
        room=state.room,
        synced=state.synced,
        synced_queue=state.synced_queue,
        flushed=state.flushed,
        appends=state.appends,
        acknowledged=state.promised,
        promised=state.promised,
        # What was promised to nobody, or failed, is held to nothing any more.
        excused=state.excused | (state.acknowledged - state.promised) | state.undone,
        seen=state.seen & state.promised,
        deaths=state.deaths,
        faults=state.faults,
        strangers=state.strangers + 1,
    )


def _excuse(state: State) -> State:
    """Let parts of appends that nobody was promised show: a scan knows of no appends."""
    there = {cell.append for cell in state.log if cell is not None}
    return state._replace(excused=state.excused | (there - state.acknowledged))


def _fill(state: State, action: Action, rules: Rules) -> State:
    """Let others fill the disk."""
    return state._replace(is_full=True)


_ACTIONS: dict[str, Callable[[State, Action, Rules], State]] = {
    "send": writers.send,
    "many": writers.turn,
    "turn": writers.turn,
    "flush": writers.turn,
    "go": writers.go,
    "die": writers.die,
    "fail": writers.fail,
    "give up": writers.give_up,
    "page": reader.begin_look,
    "look": reader.look_on,
    "stranger": _stranger,
    "power": _power,
    "fill": _fill,
}
