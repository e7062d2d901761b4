"""Writers of the model: calls under the store's lock, one write at a time.

Steps are named after what they write; replay.py holds them to the failpoints of the real classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.model.log_first.files import (
    cell_at,
    clean,
    counted_end,
    cut,
    enter,
    halved,
    put,
    records_of,
    scanned,
)
from tests.model.log_first.state import (
    APPENDING,
    BOUND,
    CLEAN,
    DISPATCHING,
    PENDING,
    Action,
    Call,
    Cell,
    Marker,
    Memory,
    Process,
    Rules,
    State,
)

_RECOVER = ("recover.queue", "recover.index")
_SILENT = frozenset(["recall", "settle", "number", "flush.note"])
"""Steps that change no file: nobody can tell a process that died before from one that did after."""

Step = Callable[[State, Call, Rules], State]


# Calls


def send(state: State, action: Action, rules: Rules) -> State:
    """Begin a quick append; see log_first.LogFirst.append."""
    todo = _taking_over(state, action.who, rules)
    written = ("mark", "write") if rules.marks_before_write else ("write", "mark")
    synced = ("sync",) if action.is_sync and rules.syncs_before_acknowledging else ()
    call = Call(
        action.who,
        "send",
        (*todo, "number", "claim", *written, *synced, "acknowledge"),
        size=action.size,
        is_sync=action.is_sync,
        append=state.appends,
    )
    return go(state._replace(call=call, appends=state.appends + 1), action, rules)


def turn(state: State, action: Action, rules: Rules) -> State:
    """Begin what is no quick append: an append of many, a flush, or anything under the lock."""
    call = Call(action.who, action.kind, (), size=action.size)
    settle: tuple[str, ...] = ("settle",)
    rest: tuple[str, ...] = ("release",)
    if action.kind == "many":
        call = call._replace(append=state.appends)
        state = state._replace(appends=state.appends + 1)
        written = ("many.mark", "write", "many.dispatching")
        rest = (*written, *_dispatch(rules), "acknowledge")
    if action.kind == "flush":
        is_first = state.noted == (0, 0)
        rest = ("flush.note" if is_first else "flush.checkpoint", "release")
        settle = () if is_first and not rules.flush_dispatches else settle
    call = call._replace(todo=(*_taking_over(state, action.who, rules), *settle, *rest))
    return go(state._replace(call=call), action, rules)


def go(state: State, action: Action, rules: Rules) -> State:
    """Let the call under way take its next step, and those before it that leave no trace."""
    while (call := state.call) is not None:
        name, *todo = call.todo
        call = call._replace(todo=tuple(todo), done=name)
        state = _STEPS[name](state._replace(call=call), call, rules)
        if name not in _SILENT:
            break
    return state


def die(state: State, action: Action, rules: Rules) -> State:
    """End the process of the call under way; `how` "torn": in the middle of its next write."""
    call = _under_way(state)
    if action.how == "torn":
        state = put(state, halved(records_of(call)), call.start)
    return _forget(state, call.who)._replace(call=None, deaths=state.deaths + 1)


def fail(state: State, action: Action, rules: Rules) -> State:
    """Let the next write or fsync of a quick append fail, `how` "torn" half-way; it is undone."""
    call = _under_way(state)
    if action.how == "torn":
        state = put(state, halved(records_of(call)), call.start)
    marked = ("undo.mark",) if rules.undo_marks_first else ()
    zeroed = ("undo.log",) if rules.undo_zeroes else ()
    todo = (*marked, *zeroed, "undo.back", "refuse")
    return state._replace(
        call=call._replace(todo=todo, done="failed"),
        undone=state.undone | {call.append},
        faults=state.faults + 1,
    )


def give_up(state: State, action: Action, rules: Rules) -> State:
    """Let the next write of an undo fail, too: the sender is told all the same."""
    call = _under_way(state)
    state = _forget(state, call.who)._replace(faults=state.faults + 1)
    return _refuse(state, call, rules)


def _taking_over(state: State, who: int, rules: Rules) -> tuple[str, ...]:
    """Return the steps by which a process that takes the lock makes the store whole."""
    process = state.processes[who]
    if process.memory is not None and (process.is_current or not rules.memory_is_compared):
        return ()
    marker = state.marker
    end = counted_end(marker, state.log, rules)
    is_torn = marker.pending_end > end
    # Bytes behind the end, which the marker does not speak of: only a scan tells.
    is_closed_off = marker.kind in (CLEAN, PENDING) and not is_torn
    if not state.is_believed or (is_closed_off and cell_at(state.log, marker.end) is not None):
        return ("scan",)
    if marker.kind == CLEAN:
        return ("recall",)
    first = ("recover.remark",) if rules.recovery_marks_first else ()
    lacks = end > marker.dispatched_end
    finish = _RECOVER if lacks and rules.take_over_dispatches else ()
    zero = ("recover.log",) if is_torn and rules.torn_rest_is_zeroed else ()
    return (*first, *finish, *zero, "recover.mark")


def _dispatch(rules: Rules) -> tuple[str, ...]:
    """Return the steps of a dispatch."""
    written = ("dispatch.queue", "dispatch.index")
    marked = ("dispatch.mark",)
    return (*written, *marked) if rules.queue_before_mark else (*marked, *written)


# Steps of taking over


def _recall(state: State, call: Call, rules: Rules) -> State:
    return _remember(state, call.who, Memory(state.marker))


def _scan(state: State, call: Call, rules: Rules) -> State:
    """Recover without a marker; from the log's start, if more of the queue is missing."""
    after = scanned(state, state.flushed)
    if len(after.queue) < len(after.log):
        after = scanned(state, 0)
    return _mark(after, call, clean(len(after.log)))


def _recover_remark(state: State, call: Call, rules: Rules) -> State:
    """Write the marker as it is: nobody else may take it for its own from here on."""
    return _mark(state, call, state.marker)


def _recover_queue(state: State, call: Call, rules: Rules) -> State:
    return enter(state, state.marker.dispatched_end, counted_end(state.marker, state.log, rules))


def _recover_index(state: State, call: Call, rules: Rules) -> State:
    start, end = state.marker.dispatched_end, counted_end(state.marker, state.log, rules)
    kept = state.keys[:start] if rules.index_is_rewound else state.keys
    return state._replace(keys=(*kept, *range(start, end)))


def _recover_log(state: State, call: Call, rules: Rules) -> State:
    return cut(state, counted_end(state.marker, state.log, rules))


def _recover_mark(state: State, call: Call, rules: Rules) -> State:
    end = counted_end(state.marker, state.log, rules)
    if rules.take_over_dispatches:
        return _mark(state, call, clean(end))
    left = state.marker._replace(kind=PENDING, log_end=end, pending_end=end, crc=())
    return _mark(state, call, left)


# Steps of a dispatch


def _settle(state: State, call: Call, rules: Rules) -> State:
    """Have what is pending dispatched, if there is any."""
    if not _memory(state, call).marker.has_pending or not rules.turn_dispatches:
        return state
    return state._replace(call=call._replace(todo=(*_dispatch(rules), *call.todo)))


def _dispatch_queue(state: State, call: Call, rules: Rules) -> State:
    return enter(state, *_undispatched(state, call, rules))


def _dispatch_index(state: State, call: Call, rules: Rules) -> State:
    return state._replace(keys=(*state.keys, *range(*_undispatched(state, call, rules))))


def _dispatch_mark(state: State, call: Call, rules: Rules) -> State:
    return _mark(state, call, clean(_undispatched(state, call, rules)[1]))


def _undispatched(state: State, call: Call, rules: Rules) -> tuple[int, int]:
    """Return from where to where queue and index lack the log's records."""
    marker = _memory(state, call).marker
    end = marker.pending_end if marker.kind == DISPATCHING else marker.end
    return marker.dispatched_end if rules.queue_before_mark else len(state.keys), end


# Steps of a quick append


def _number(state: State, call: Call, rules: Rules) -> State:
    """Number the records; dispatch first if with them too much were pending."""
    marker, end = _memory(state, call)
    pending = marker.end - marker.dispatched_end
    is_too_much = rules.bounds_tail and pending + call.size > BOUND
    is_new = end is None and rules.take_over_dispatches
    if pending and (is_too_much or is_new):
        return state._replace(call=call._replace(todo=(*_dispatch(rules), "number", *call.todo)))
    place = len(state.queue) if end is None else end
    return state._replace(call=call._replace(start=marker.end, place=place, before=marker))


def _claim(state: State, call: Call, rules: Rules) -> State:
    room = call.place + call.size
    if not rules.claims_room or room <= state.room:
        return state
    return _refuse(state, call, rules) if state.is_full else state._replace(room=room)


def _mark_pending(state: State, call: Call, rules: Rules) -> State:
    pending_end = call.start + call.size
    crc = records_of(call)
    return _mark_append(state, call, kind=PENDING, pending_end=pending_end, crc=crc)


def _write(state: State, call: Call, rules: Rules) -> State:
    return put(state, records_of(call), call.start)


def _sync(state: State, call: Call, rules: Rules) -> State:
    return state._replace(synced=call.start + call.size)


def _acknowledge(state: State, call: Call, rules: Rules) -> State:
    memory = _memory(state, call)._replace(end=call.place + call.size)
    promised = {call.append} if call.is_sync else set()
    return _remember(state, call.who, memory)._replace(
        call=None,
        acknowledged=state.acknowledged | {call.append},
        promised=state.promised | promised,
    )


def _undo_mark(state: State, call: Call, rules: Rules) -> State:
    return _mark_append(state, call, kind=APPENDING, pending_end=call.start + call.size)


def _undo_log(state: State, call: Call, rules: Rules) -> State:
    return cut(state, call.start)


def _undo_back(state: State, call: Call, rules: Rules) -> State:
    assert call.before is not None
    kind = PENDING if call.before.has_pending else CLEAN
    return _mark_append(state, call, kind=kind, pending_end=call.start)


def _refuse(state: State, call: Call, rules: Rules) -> State:
    return state._replace(call=None, failed=state.failed | {call.append})


def _mark_append(
    state: State, call: Call, *, kind: str, pending_end: int, crc: tuple[Cell, ...] = ()
) -> State:
    """Write the marker of an append, or of its undo: as it was before, but for these fields."""
    before = call.before
    assert before is not None
    marker = before._replace(kind=kind, log_end=call.start, pending_end=pending_end, crc=crc)
    return _mark(state, call, marker)


# Steps of other calls


def _many_mark(state: State, call: Call, rules: Rules) -> State:
    marker = _memory(state, call).marker
    start, place = marker.end, len(state.queue)
    state = state._replace(call=call._replace(start=start, place=place))
    kept = clean(start) if rules.turn_dispatches else marker._replace(log_end=start)
    return _mark(state, call, kept._replace(kind=APPENDING, pending_end=start + call.size, crc=()))


def _many_dispatching(state: State, call: Call, rules: Rules) -> State:
    return _mark(state, call, _memory(state, call).marker._replace(kind=DISPATCHING))


def _flush_note(state: State, call: Call, rules: Rules) -> State:
    return state._replace(noted=(_memory(state, call).marker.end, len(state.queue)))


def _flush_checkpoint(state: State, call: Call, rules: Rules) -> State:
    end, entries = state.noted
    on_disk = {cell.append for cell in state.log[:end] if cell is not None}
    return state._replace(
        synced=max(state.synced, end),
        synced_queue=max(state.synced_queue, entries),
        flushed=max(state.flushed, end),
        noted=(0, 0),
        promised=state.promised | (on_disk & state.acknowledged),
    )


def _release(state: State, call: Call, rules: Rules) -> State:
    return state._replace(call=None)


_STEPS: dict[str, Step] = {
    "recall": _recall,
    "scan": _scan,
    "recover.remark": _recover_remark,
    "recover.queue": _recover_queue,
    "recover.index": _recover_index,
    "recover.log": _recover_log,
    "recover.mark": _recover_mark,
    "settle": _settle,
    "dispatch.queue": _dispatch_queue,
    "dispatch.index": _dispatch_index,
    "dispatch.mark": _dispatch_mark,
    "number": _number,
    "claim": _claim,
    "mark": _mark_pending,
    "write": _write,
    "sync": _sync,
    "acknowledge": _acknowledge,
    "undo.mark": _undo_mark,
    "undo.log": _undo_log,
    "undo.back": _undo_back,
    "refuse": _refuse,
    "many.mark": _many_mark,
    "many.dispatching": _many_dispatching,
    "flush.note": _flush_note,
    "flush.checkpoint": _flush_checkpoint,
    "release": _release,
}


# Memory


def _mark(state: State, call: Call, marker: Marker) -> State:
    """Write the marker: nobody else's memory is current any more."""
    before = state.processes[call.who].memory
    is_kept = before is not None and call.done in ("mark", "dispatch.mark")
    memory = Memory(marker, before.end if before is not None and is_kept else None)
    others = tuple(each._replace(is_current=False) for each in state.processes)
    state = state._replace(marker=marker, is_believed=True, processes=others)
    return _remember(state, call.who, memory)


def _remember(state: State, who: int, memory: Memory) -> State:
    return _with(state, who, Process(memory, is_current=True))


def _forget(state: State, who: int) -> State:
    return _with(state, who, Process())


def _with(state: State, who: int, process: Process) -> State:
    processes = state.processes
    return state._replace(processes=(*processes[:who], process, *processes[who + 1 :]))


def _memory(state: State, call: Call) -> Memory:
    memory = state.processes[call.who].memory
    assert memory is not None
    return memory


def _under_way(state: State) -> Call:
    assert state.call is not None
    return state.call


# The end


class Finished(NamedTuple):
    """A store after the next writer has taken it over: its log, queue and index."""

    log: tuple[Cell, ...]
    queue: tuple[int, ...]
    keys: tuple[int, ...]


def finished(state: State, rules: Rules) -> Finished:
    """Return the store as a new process leaves it that takes the lock and dispatches."""
    fresh = state._replace(call=None, processes=(Process(), Process()))
    after = turn(fresh, Action("turn"), rules)
    while after.call is not None:
        after = go(after, Action("go"), rules)
    return Finished(after.log, after.queue, after.keys)
