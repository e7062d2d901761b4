"""A reader of the model, without the lock: a look is four steps; see store/pending_tail.py."""

from __future__ import annotations

from tests.model.log_first.files import cell_at, counted_end
from tests.model.log_first.state import TORN, Action, Look, Rules, State, Tail


def begin_look(state: State, action: Action, rules: Rules) -> State:
    """Begin a look: read the marker's page."""
    look = Look("crc", state.marker, state.acknowledged, state.failed, state.seen)
    if not rules.page_before_queue:
        look = look._replace(entries=state.queue)
    return state._replace(look=look, result=None)


def look_on(state: State, action: Action, rules: Rules) -> State:
    """Go on with a look."""
    look = state.look
    assert look is not None
    if look.step == "crc":
        return _look_at_crc(state, look, rules)
    if look.step == "records":
        return _look_at_records(state, look)
    return _look_at_queue(state, look, rules)


def _look_at_crc(state: State, look: Look, rules: Rules) -> State:
    """Tell how far the tail goes; see pending_tail.PendingTail."""
    page, tail = look.page, state.tail
    behind = look._replace(step="queue")
    if page == tail.page and tail.is_whole:
        return state._replace(look=behind)
    if not page.has_pending or not state.is_believed:
        at = page.log_end
        return state._replace(look=behind, tail=Tail(page, start=at, end=at, last_start=at))
    seen_by = rules._replace(crc_decides=rules.reader_checks_crc)
    end = counted_end(page, state.log, seen_by)
    is_last_there = (
        not rules.reader_checks_last or state.log[tail.last_start : tail.end] == tail.last_crc
    )
    if page.dispatched_end != tail.start or end < tail.end or not is_last_there:
        at = page.dispatched_end
        tail = Tail(start=at, end=at, last_start=at)
    tail = tail._replace(is_whole=end == page.end)
    if end == tail.end:
        return state._replace(look=behind, tail=tail._replace(page=page))
    return state._replace(look=look._replace(step="records", end=end), tail=tail)


def _look_at_records(state: State, look: Look) -> State:
    """Lay the records of the log behind those that are known."""
    tail, page, end = state.tail, look.page, look.end
    cells = state.log[tail.end : end]
    found = tuple(cell for cell in cells if cell is not None and cell != TORN)
    if len(found) < end - tail.end:
        # They are not there any more, or not yet: look again.
        return state._replace(look=look._replace(step="crc", page=state.marker))
    is_last = end > page.log_end
    tail = tail._replace(
        page=page,
        end=end,
        records=(*tail.records, *found),
        last_start=page.log_end if is_last else end,
        last_crc=page.crc if is_last else (),
    )
    return state._replace(look=look._replace(step="queue"), tail=tail)


def _look_at_queue(state: State, look: Look, rules: Rules) -> State:
    """Read the queue, with the tail laid over it; see queue/view.py."""
    tail = state.tail
    entries = list(state.queue if look.entries is None else look.entries)
    while entries and not _counts(state, len(entries) - 1, entries[-1]):
        entries.pop()
    found = tuple(cell_at(state.log, at) for at in entries)
    if tail.records:
        start = tail.records[0].place
        is_longer = len(entries) > start + len(tail.records)
        if not (is_longer and rules.files_win_if_longer):
            found = (*found[:start], *tail.records)
    appends = {cell.append for cell in found if cell is not None}
    return state._replace(
        look=None,
        result=found,
        told=(look.due | (look.seen - state.undone), look.gone),
        seen=state.seen | (appends - state.failed),
    )


def _counts(state: State, number: int, at: int) -> bool:
    cell = cell_at(state.log, at)
    return cell is not None and cell.place == number
