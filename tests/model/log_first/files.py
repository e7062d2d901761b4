"""Effects of the model's steps on the files of a store: log, queue and index."""

from __future__ import annotations

from tests.model.log_first.state import (
    CLEAN,
    DISPATCHING,
    PENDING,
    TORN,
    Call,
    Cell,
    Marker,
    Record,
    Rules,
    State,
)


class UnroomedError(Exception):
    """A dispatch found no room on a full disk."""


def cell_at(log: tuple[Cell, ...], at: int) -> Cell:
    """Return what the log holds at a place."""
    return log[at] if 0 <= at < len(log) else None


def records_of(call: Call) -> tuple[Record, ...]:
    """Return the records that an append writes."""
    return tuple(
        Record(call.append, part, call.size, call.place + part) for part in range(call.size)
    )


def halved(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """Return what is in the log once half of the bytes of some records are."""
    return (TORN,) if len(records) == 1 else records[:1]


def put(state: State, records: tuple[Record, ...], at: int) -> State:
    """Write records to the log."""
    log = list(state.log)
    log[at : at + len(records)] = records
    return state._replace(log=tuple(log))


def cut(state: State, end: int) -> State:
    """Zero the log from a place on."""
    return state._replace(log=state.log[:end])


def enter(state: State, start: int, end: int) -> State:
    """Write the queue entries of the log's records in [start, end), each at its place."""
    queue = list(state.queue)
    for at in range(start, end):
        cell = cell_at(state.log, at)
        if cell is None:
            continue
        if state.is_full and cell.place >= state.room:
            raise UnroomedError
        if cell.place == len(queue):
            queue.append(at)
        elif 0 <= cell.place < len(queue):
            queue[cell.place] = at
    return state._replace(queue=tuple(queue))


def scanned(state: State, start: int) -> State:
    """Return the files as a scan of the log leaves them, ours or a foreign broker's."""
    end = start
    while cell_at(state.log, end) not in (None, TORN):
        end += 1
    state = state._replace(queue=tuple(at for at in state.queue if at < end))
    state = enter(cut(state, end), start, end)
    kept = tuple(key for key in state.keys if key < start)
    return state._replace(keys=(*kept, *range(start, end)))


def clean(end: int) -> Marker:
    """Return the marker of a store without anything pending."""
    return Marker(CLEAN, end, end, end)


def counted_end(marker: Marker, log: tuple[Cell, ...], rules: Rules) -> int:
    """Return where a marker's log ends for the next writer; see scan.counted_end."""
    if marker.kind == DISPATCHING:
        return marker.pending_end
    if marker.kind != PENDING:
        return marker.log_end
    is_whole = not rules.crc_decides or log[marker.log_end : marker.pending_end] == marker.crc
    return marker.pending_end if is_whole else marker.log_end
