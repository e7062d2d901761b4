"""State of the model of transactions: the log's records, and what the broker looks up in them.

A state is an immutable value: the journal (attempts and decisions, in their order), the half queue
with the op that settles each half message, the rows that became visible, how far check-back came,
and perhaps one process that is paused before its next append. Numbers stand for names: users are 0
(nameless: a caller of an embedded broker), 1 and 2, attempts and rows are counted. All batches are
of one stream, so that users always meet.

What a broker knows is in the log. Other fields are for the invariants: `promised` and `decided`
remember what was ever decided, `odd_ops` counts ops that named no open half message, `is_cut`
says that another broker deleted files. `deaths` bounds an exploration.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.telling import described

NAMELESS, ALICE, MALLORY = 0, 1, 2
NO_ATTEMPT = -1
TAG_ATTEMPT = -2
"""An attempt id that is none: it looks like the tag by which the stream's decisions are found."""
SINGLE = 0
"""The batch number of half messages that are of no batch; batches count from 1."""
OPEN = -1

OLDEST = 3
"""Ages count ticks, of which the first makes a half message due and the second ends the patience
with a batch; the third is longer than messages are kept, and more than that is not told apart."""
PATIENCE = 2
MAX_CHECKS = 2


class Attempt(NamedTuple):
    """A journal record: an attempt's id belongs to a user and a batch."""

    id: int
    user: int
    number: int
    segment: int = 0


class Decision(NamedTuple):
    """A journal record: a batch is committed; `is_done`, all of it is visible."""

    user: int
    number: int
    fingerprint: str
    named: tuple[int, ...] = ()
    is_done: bool = False
    segment: int = 0

    @property
    def key(self) -> tuple[int, int, str]:
        """What tells one decided batch from another."""
        return self.user, self.number, self.fingerprint


class Half(NamedTuple):
    """A half message, whose place in the half queue is its number; it holds one row.

    `settled` is the segment of the op that settles it, or OPEN. `behind` is by how many ticks its
    sender's clock is behind the broker's. User and number are the truth, whatever records say.
    """

    user: int
    number: int
    attempt: int
    row: int
    age: int = 0
    checks: int = 0
    segment: int = 0
    behind: int = 0
    settled: int = OPEN


class Copy(NamedTuple):
    """A log record that makes the row of a half message visible."""

    half: int


class Op(NamedTuple):
    """A log record that settles half messages."""

    halves: tuple[int, ...]


Record = Attempt | Decision | Half | Copy | Op

ReceiptText = tuple[int, tuple[int, ...]]
"""An attempt's id and half messages, as a client sends them: true or forged."""


class Action(NamedTuple):
    """One thing that happens: a call of a user, a round of check-back, time, death, retention.

    `dies` is after how many appends the process of a call dies, -1 if it does not; then `cut`
    records of its next append are in the log all the same, as losing power may leave it.
    `is_paused` stops a call before its first append, or a round before it acts on what it saw.
    """

    kind: str
    user: int = 0
    number: int = 0
    attempt: int = NO_ATTEMPT
    is_first: bool = False
    rows: int = 1
    behind: int = 0
    receipts: tuple[ReceiptText, ...] = ()
    fingerprint: str = ""
    conflict: str = "refuse"
    previous: int = 0
    half: int = -1
    how: str = ""
    listening: tuple[int, ...] = ()
    dies: int = -1
    cut: int = 0
    is_paused: bool = False

    def __str__(self) -> str:
        return described(self)


class Paused(NamedTuple):
    """A process before its next append: what it is about to do, and what it knew when it looked."""

    kind: str
    action: Action
    decision: Decision | None = None
    left: tuple[int, ...] = ()
    known: tuple[int, int] | None = None
    steps: tuple[tuple[int, int], ...] = ()
    end: int = 0


class State(NamedTuple):
    """Everything; see the module."""

    journal: tuple[Attempt | Decision, ...] = ()
    halves: tuple[Half, ...] = ()
    visible: tuple[int, ...] = ()
    progress: int = 0
    segment: int = 0
    start: int = 0
    forgotten: int = 0
    paused: Paused | None = None
    early: frozenset[int] = frozenset()
    odd_ops: int = 0
    is_cut: bool = False
    deaths: int = 0
    promised: frozenset[int] = frozenset()
    decided: frozenset[tuple[int, int, str]] = frozenset()


class Rules(NamedTuple):
    """The rules of the protocol; without one of them an exploration must find what goes wrong."""

    # ownership.py, decision_lookup.py: whose is it?
    streams_by_user: bool = True
    claims_check_user: bool = True
    claims_check_batch: bool = True
    claims_check_attempt: bool = True
    claims_one_owner: bool = True
    ranges_within_queue: bool = True
    ranges_once: bool = True
    attempt_has_one_form: bool = True
    attempt_belongs_to_one: bool = True
    end_checks_owner: bool = True
    end_refuses_batches: bool = True
    asks_owner_only: bool = True
    # history.py: is it a repeat?
    repeat_by_fingerprint: bool = True
    lower_number_is_conflict: bool = True
    own_history_counts: bool = True
    gap_is_told: bool = True
    abort_spares_decided: bool = True
    repeat_spares_decided: bool = True
    # commit.py, settle.py, op.py: what is in one append, what is looked at under the lock
    op_in_same_append: bool = True
    decision_before_copies: bool = True
    finish_before_next: bool = True
    finish_looks_for_copies: bool = True
    since_not_believed: bool = True
    guard_newest: bool = True
    guard_open: bool = True
    guard_attempt: bool = True
    newest_before_open: bool = True
    # check_back.py, check_back_plan.py
    late_by_place: bool = True
    count_only_if_asked: bool = True
    asks_once_an_interval: bool = True
    patience_by_store_time: bool = True
    heard_by_batch: bool = True
    progress_stops_at_waiting: bool = True
    give_up_since_look: bool = True
    drop_since_look: bool = True
    # api.Transactions.keep_decisions, CheckBack.rescue
    retention_finishes: bool = True
    retention_finishes_all: bool = True
    retention_puts_back: bool = True
    retention_carries: bool = True
    retention_keeps_attempts: bool = True
    loss_is_noted: bool = True


INTENDED = Rules()


# Writing


def apply(state: State, records: tuple[Record, ...]) -> State:
    """Append records, in their order."""
    for record in records:
        state = _apply(state, record)
    return state


def _apply(state: State, record: Record) -> State:
    if isinstance(record, Op):
        for number in record.halves:
            state = _settle(state, number)
        return state
    if isinstance(record, Copy):
        row = state.halves[record.half].row if record.half < len(state.halves) else -1
        return state._replace(visible=tuple(sorted((*state.visible, row))))
    if isinstance(record, Half):
        settled = state.segment if len(state.halves) in state.early else OPEN
        half = record._replace(segment=state.segment, settled=settled)
        return state._replace(halves=(*state.halves, half))
    record = record._replace(segment=state.segment)
    state = state._replace(journal=(*state.journal, record))
    if isinstance(record, Decision):
        rows = {state.halves[half].row for half in record.named if half < len(state.halves)}
        # A driver that insists on an older number has its stream go on from there.
        before = {
            each for each in state.decided if each[:2] < record.key[:2] or each[0] > record.user
        }
        decided = frozenset(before | {record.key})
        return state._replace(promised=state.promised | rows, decided=decided)
    return state


def _settle(state: State, number: int) -> State:
    if number >= len(state.halves):
        return state._replace(early=state.early | {number}, odd_ops=state.odd_ops + 1)
    if not is_open(state, number):
        return state._replace(odd_ops=state.odd_ops + 1)
    half = state.halves[number]._replace(settled=state.segment, age=0, behind=0)
    return state._replace(halves=(*state.halves[:number], half, *state.halves[number + 1 :]))


# Looking up


def attempt_at(state: State, attempt: int) -> int:
    """Return the position of an attempt's newest record, -1 if there is none."""
    for index in range(len(state.journal) - 1, -1, -1):
        record = state.journal[index]
        if isinstance(record, Attempt) and record.id == attempt:
            return state.forgotten + index
    return -1


def attempt_of(state: State, attempt: int) -> Attempt | None:
    """Return an attempt's newest record."""
    at = attempt_at(state, attempt)
    if at < 0:
        return None
    record = state.journal[at - state.forgotten]
    assert isinstance(record, Attempt)
    return record


def newest_of(state: State, user: int) -> int:
    """Return the position of the newest decision that is a user's, -1 if there is none."""
    for index in range(len(state.journal) - 1, -1, -1):
        record = state.journal[index]
        if isinstance(record, Decision) and record.user == user:
            return state.forgotten + index
    return -1


def newest_for(state: State, user: int, rules: Rules) -> int:
    """Return the position of the newest decision that answers a caller, -1 if there is none."""
    everybodys = not user or not rules.streams_by_user
    for index in range(len(state.journal) - 1, -1, -1):
        record = state.journal[index]
        if isinstance(record, Decision):
            if everybodys or record.user in (NAMELESS, user):
                return state.forgotten + index
        elif record.id == TAG_ATTEMPT:
            # Only without `attempt_has_one_form`: the newest record with the tag is no decision.
            return -1
    return -1


def decision_at(state: State, position: int) -> Decision | None:
    """Return the decision at a position; None for -1."""
    if position < 0:
        return None
    record = state.journal[position - state.forgotten]
    assert isinstance(record, Decision)
    return record


def is_closed(state: State, number: int) -> bool:
    """Tell whether a half message is settled: by an op, or passed by check-back."""
    if number >= len(state.halves):
        return number in state.early
    return state.halves[number].settled != OPEN or number < state.progress


def is_open(state: State, number: int) -> bool:
    """Tell whether a half message is there and no op settles it."""
    return state.start <= number < len(state.halves) and state.halves[number].settled == OPEN


def open_halves(state: State) -> list[int]:
    """Return the half messages that are there and that no op settles."""
    return [
        number
        for number in range(state.start, len(state.halves))
        if state.halves[number].settled == OPEN
    ]


def lost_rows(state: State) -> set[int]:
    """Return rows that can't become visible any more: settled or deleted, and not visible."""
    living = {state.halves[number].row for number in open_halves(state)}
    return {half.row for half in state.halves} - living - set(state.visible)
