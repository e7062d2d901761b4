"""Invariants of transactions: what no step may do, and what must come of every state.

A check is given a step, and its name is what a seeded bug is found by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.model.transactions.services import finish_for, step
from tests.model.transactions.state import (
    MAX_CHECKS,
    NAMELESS,
    OLDEST,
    OPEN,
    PATIENCE,
    Action,
    Decision,
    Half,
    Rules,
    State,
    decision_at,
    is_open,
    lost_rows,
    newest_of,
    open_halves,
)


class Change(NamedTuple):
    """A step: the states before and after it, and what it did.

    `rows` became visible, as often as they are listed; `lost` can't any more; `decisions` were
    made, not counting those that were noted as done or carried along.
    """

    before: State
    action: Action
    answer: str
    after: State
    rows: list[int]
    lost: set[int]
    decisions: list[Decision]


Check = Callable[[Change], bool]
"""Returns True if a step is in order."""

_QUIET = Action("round")
_NOTHING: list[int] = []
_NO_DECISIONS: list[Decision] = []


def broken(before: State, action: Action, answer: str, after: State, lost: set[int]) -> str | None:
    """Return the name of the first invariant that a step breaks, None if it keeps all.

    `lost` are the rows that it made impossible to become visible.
    """
    if action.kind in ("resume", "die") and before.paused is not None:
        action = before.paused.action
    checks, rows, decisions = ANSWERS, _NOTHING, _NO_DECISIONS
    if after is not before:
        checks = CHECKS
        rows = _new_rows(before, after)
        decisions = _decisions(before, action, after)
    change = Change(before, action, answer, after, rows, lost, decisions)
    for check in checks:
        if not check(change):
            return check.__name__
    return None


def broken_in_the_end(state: State, rules: Rules) -> str | None:
    """Return the name of the invariant that a state breaks if nobody acts and time passes.

    The state has no paused process.
    """
    if not open_halves(state) and state.promised.issubset(state.visible):
        return None
    due = state.promised - lost_rows(state)
    later = state
    for _ in range(3):  # a round that tells of a loss ends early
        later, answer = step(later, _QUIET, rules)
        if answer != "lost":
            break
    if state.is_cut:
        # The record of an attempt may be gone: then the stream's next commit finishes.
        later = finish_for(later, later.segment + 1, rules, is_owner=True)
    if not due.issubset(later.visible):
        return decided_becomes_visible.__name__
    old = tuple(
        half if half.settled != OPEN else half._replace(age=OLDEST) for half in later.halves
    )
    later, _ = step(later._replace(halves=old), _QUIET, rules)
    if open_halves(later):
        return "nothing_stays_open"
    if len(set(later.visible)) < len(later.visible):
        return visible_once.__name__
    if not due.issuperset(set(later.visible) - set(state.visible)):
        return only_decided_becomes_visible.__name__
    return None


# What becomes visible


def visible_once(change: Change) -> bool:
    """A row becomes visible at most once."""
    return len(set(change.after.visible)) == len(change.after.visible)


def never_after_rollback(change: Change) -> bool:
    """A row that was rolled back, given up or deleted never becomes visible."""
    return not change.rows or lost_rows(change.before).isdisjoint(change.rows)


def only_decided_becomes_visible(change: Change) -> bool:
    """A batch's row becomes visible by a decision, a single one by its owner's word."""
    return all(_is_meant(change, row) for row in change.rows)


def decided_becomes_visible(change: Change) -> bool:
    """A row that a decision names is not lost, but to another broker's retention."""
    is_foreign = change.action.kind == "retain" and change.action.how == "foreign"
    return is_foreign or change.after.promised.isdisjoint(change.lost)


# Decisions


def decision_names_its_own(change: Change) -> bool:
    """A decision names half messages of its batch and user, under the attempts of its receipts."""
    said = {half: attempt for attempt, halves in change.action.receipts for half in halves}
    halves = change.before.halves
    return all(
        _may_settle(change.action.user, decision.user)
        and all(
            number < len(halves)
            and halves[number][:2] == (decision.user, decision.number)
            and halves[number].attempt == said.get(number)
            for number in decision.named
        )
        for decision in change.decisions
    )


def decided_once(change: Change) -> bool:
    """Batches are decided once, in order, unless a driver insists (`conflict` "write")."""
    return change.action.conflict == "write" or not any(
        user == decision.user and number >= decision.number
        for decision in change.decisions
        for user, number, _ in change.before.decided
    )


def done_before_next(change: Change) -> bool:
    """A user's decision is done before their next one is made."""
    for decision in change.decisions:
        own = decision_at(change.before, newest_of(change.before, decision.user))
        # A call may finish it on its way: then all that it names is visible.
        if own and not own.is_done and not _rows(change.before, own) <= {*change.after.visible}:
            return False
    return True


def repeat_changes_nothing(change: Change) -> bool:
    """A repeat makes visible only what was decided before."""
    if change.answer != "repeat":
        return True
    is_same = change.after.decided == change.before.decided
    return is_same and change.before.promised.issuperset(change.rows)


def repeat_is_the_same_batch(change: Change) -> bool:
    """What is taken for a repeat was decided: this number, this fingerprint, for this caller."""
    action = change.action
    if change.answer != "repeat" or action.conflict == "repeat":
        return True
    return any(
        number == action.number
        and (not action.user or user in (NAMELESS, action.user))
        and (not fingerprint or not action.fingerprint or fingerprint == action.fingerprint)
        for user, number, fingerprint in change.before.decided
    )


def gap_is_refused(change: Change) -> bool:
    """A batch whose driver says what comes before it is not written without that."""
    action = change.action
    if change.answer != "written" or not action.previous:
        return True
    return any(
        number >= action.previous or not fingerprint
        for user, number, fingerprint in change.before.decided
        if not action.user or user in (NAMELESS, action.user)
    )


def illegal_means_undecided(change: Change) -> bool:
    """Whoever is told to prepare a batch again has not committed it."""
    action = change.action
    if change.answer != "illegal" or action.kind != "commit" or action.conflict == "write":
        return True
    return (action.user, action.number, action.fingerprint) not in change.after.decided


# Ops and check-back


def op_names_open_half(change: Change) -> bool:
    """An op names half messages that exist and are open."""
    return not change.after.odd_ops


def heard_lately_is_kept(change: Change) -> bool:
    """Half messages of a batch that was heard of lately, and is not decided, are not given up."""
    if change.action.kind != "round":
        return True
    before = change.before
    return not any(
        before.halves[row].number
        and not _is_late(before, row)
        and _silence(before, before.halves[row]) < PATIENCE
        for row in change.lost
    )


def given_up_after_asking(change: Change) -> bool:
    """A single message is given up only after all its checks, or longer than messages are kept."""
    action = change.action
    if action.kind != "round":
        return True
    for row in change.lost:
        half = _living(change.before, row)
        if half is None or half.number:
            continue
        was_told = half.user in action.listening and action.how == "rollback"
        if half.checks < MAX_CHECKS and half.age < OLDEST and not was_told:
            return False
    return True


def counted_if_asked(change: Change) -> bool:
    """A check is counted only if the producer was asked, at most one an interval."""
    for half in change.after.halves[len(change.before.halves) :]:
        last = _living(change.before, half.row)
        if last is None or half.checks == last.checks:
            continue
        if last.user not in change.action.listening or last.age == 0:
            return False
    return True


# Retention


def open_survives_retention(change: Change) -> bool:
    """An open single message is not lost with the file that it lies in."""
    if change.action.kind != "retain" or change.action.how == "foreign":
        return True
    return all(change.before.halves[row].number for row in change.lost)


def loss_is_told_once(change: Change) -> bool:
    """Once a loss was told, the stream goes on."""
    if change.answer != "lost":
        return True
    after = change.after
    found = (decision_at(after, newest_of(after, user)) for user in range(3))
    left = [half for each in found if each and not each.is_done for half in each.named]
    return not any(half < after.start and after.halves[half].settled == OPEN for half in left)


def only_others_lose(change: Change) -> bool:
    """A loss is told only if another broker deleted files."""
    return change.answer != "lost" or change.before.is_cut


ANSWERS: tuple[Check, ...] = (
    repeat_is_the_same_batch,
    illegal_means_undecided,
    loss_is_told_once,
    only_others_lose,
)
CHECKS: tuple[Check, ...] = (
    visible_once,
    never_after_rollback,
    decision_names_its_own,
    decided_once,
    done_before_next,
    only_decided_becomes_visible,
    heard_lately_is_kept,
    given_up_after_asking,
    counted_if_asked,
    open_survives_retention,
    decided_becomes_visible,
    op_names_open_half,
    repeat_changes_nothing,
    gap_is_refused,
    *ANSWERS,
)


def _may_settle(caller: int, owner: int) -> bool:
    return not caller or owner in (NAMELESS, caller)


def _is_meant(change: Change, row: int) -> bool:
    """Tell whether a row that became visible was decided, or ended by its owner's word."""
    half, action = change.after.halves[row], change.action
    if half.number:
        return row in change.after.promised
    if action.kind == "end":
        return _may_settle(action.user, half.user)
    return half.user in action.listening and action.how == "commit"


def _new_rows(before: State, after: State) -> list[int]:
    left, found = list(before.visible), []
    for row in after.visible if after.visible is not before.visible else ():
        if row in left:
            left.remove(row)
        else:
            found.append(row)
    return found


def _decisions(before: State, action: Action, after: State) -> list[Decision]:
    if action.kind != "commit" or after.journal is before.journal:
        return []
    new = [each for each in after.journal[len(before.journal) :] if isinstance(each, Decision)]
    return [each for each in new if not each.is_done or each.key not in before.decided]


def _rows(state: State, decision: Decision) -> set[int]:
    return {state.halves[half].row for half in decision.named if half < len(state.halves)}


def _living(state: State, row: int) -> Half | None:
    """Return the half message that a row lives in."""
    for number in range(len(state.halves) - 1, -1, -1):
        if state.halves[number].row == row:
            return state.halves[number] if is_open(state, number) else None
    return None


def _silence(state: State, half: Half) -> int:
    """Return for how long a half message's batch was silent."""
    ages = [
        state.halves[number].age
        for number in open_halves(state)
        if state.halves[number][:2] == half[:2]
    ]
    return min(ages, default=OLDEST)


def _is_late(state: State, row: int) -> bool:
    """Tell whether a decision of its user came after the attempt that a batch's row is of."""
    half = state.halves[row]
    is_prepared = False
    for record in state.journal:
        if isinstance(record, Decision):
            if record.user == half.user and record.number >= half.number and is_prepared:
                return True
        elif record.id == half.attempt:
            is_prepared = True
    return False
