"""Calls of the model: prepare, commit, abort, end, as processes that go from append to append.

`begin` does what a call does before its first append: it reads, and is answered or pauses.
`next_append` gives the records of a paused process's next append, after what it checks under the
store's lock, and how it goes on. In between others may act. This follows commit.py, ownership.py,
history.py and api.py function by function; `Rules` takes single checks out.
"""

from __future__ import annotations

from tests.model.transactions.state import (
    NAMELESS,
    NO_ATTEMPT,
    OPEN,
    TAG_ATTEMPT,
    Action,
    Attempt,
    Copy,
    Decision,
    Half,
    Op,
    Paused,
    Record,
    Rules,
    State,
    apply,
    attempt_of,
    decision_at,
    is_closed,
    newest_for,
    newest_of,
)

Outcome = str | Paused
Append = tuple[tuple[Record, ...], Outcome]
"""The records of one append, and how the process goes on after it."""


def begin(state: State, action: Action, rules: Rules) -> Outcome:
    """Return how a call goes on before it has appended anything."""
    return _BEGIN[action.kind](state, action, rules)


def next_append(state: State, paused: Paused, rules: Rules) -> Append:
    """Return a paused process's next append, empty if it looks again instead."""
    return _APPEND[paused.kind](state, paused, rules)


def run(state: State, outcome: Outcome, rules: Rules) -> tuple[State, str]:
    """Run a process to its end."""
    while isinstance(outcome, Paused):
        records, outcome = next_append(state, outcome, rules)
        state = apply(state, records)
    return state, outcome


def run_mortal(state: State, action: Action, rules: Rules) -> tuple[State, str]:
    """Run a call whose process dies after `dies` appends, with `cut` records of the next one.

    It may come to its end before.
    """
    outcome = begin(state, action, rules)
    appends = 0
    while isinstance(outcome, Paused):
        records, after = next_append(state, outcome, rules)
        if records and appends == action.dies:
            died = apply(state, records[: action.cut])
            return died._replace(deaths=state.deaths + 1), "died"
        appends += bool(records)
        state, outcome = apply(state, records), after
    return state, outcome


# Prepare


def _prepare(state: State, action: Action, rules: Rules) -> Outcome:
    if action.attempt == TAG_ATTEMPT and rules.attempt_has_one_form:
        return "request"
    if not _is_own_attempt(state, action, rules):
        return "unknown"
    return Paused("prepare", action)


def _is_own_attempt(state: State, action: Action, rules: Rules) -> bool:
    """Tell whether an attempt's id is free, or this user's and batch's."""
    known = attempt_of(state, action.attempt)
    if known is None:
        return action.is_first
    same = (known.user, known.number) == (action.user, action.number)
    return same or not rules.attempt_belongs_to_one


def _append_prepared(state: State, paused: Paused, rules: Rules) -> Append:
    action = paused.action
    if rules.guard_attempt and not _is_own_attempt(state, action, rules):
        return (), "unknown"
    first = len(state.halves)
    halves = tuple(
        Half(action.user, action.number, action.attempt, row, behind=action.behind)
        for row in range(first, first + action.rows)
    )
    if action.is_first:
        return (Attempt(action.attempt, action.user, action.number), *halves), "ok"
    return halves, "ok"


def _single(state: State, action: Action, rules: Rules) -> Outcome:
    del state, rules
    return Paused("single", action)


def _append_single(state: State, paused: Paused, rules: Rules) -> Append:
    del rules
    action = paused.action
    return (Half(action.user, 0, NO_ATTEMPT, len(state.halves), behind=action.behind),), "ok"


# What receipts name


def claim(state: State, action: Action, rules: Rules) -> tuple[tuple[int, ...], int] | None:
    """Return what receipts name, and whose it is; None if it is not the caller's to decide."""
    named = tuple(half for _, halves in action.receipts for half in halves)
    if rules.ranges_within_queue and any(
        not state.start <= half < len(state.halves) for half in named
    ):
        return None
    if rules.ranges_once and len(set(named)) < len(named):
        return None
    owners = set()
    for attempt, halves in action.receipts:
        owner = _owner(state, action, attempt, rules)
        if owner is None or (rules.claims_check_attempt and not _are_of(state, attempt, halves)):
            return None
        owners.add(owner)
    if len(owners) > 1 and rules.claims_one_owner:
        return None
    return named, min(owners, default=action.user)


def _owner(state: State, action: Action, attempt: int, rules: Rules) -> int | None:
    """Return who prepared an attempt, if it is of the batch and the caller may decide it."""
    found = attempt_of(state, attempt)
    if found is None or (rules.claims_check_batch and found.number != action.number):
        return None
    may_settle = not action.user or found.user in (NAMELESS, action.user)
    return found.user if may_settle or not rules.claims_check_user else None


def _are_of(state: State, attempt: int, halves: tuple[int, ...]) -> bool:
    """Tell whether the keys of half messages begin with an attempt's id."""
    return all(state.halves[half].attempt == attempt for half in halves if half < len(state.halves))


# Commit


def _commit(state: State, action: Action, rules: Rules) -> Outcome:
    newest_at = newest_for(state, action.user, rules)
    newest = decision_at(state, newest_at)
    if newest and is_repeat(newest, action, rules):
        return _repeat(state, action, newest, rules)
    refusal = _history(newest, action, rules)
    if refusal:
        return refusal
    claimed = claim(state, action, rules)
    if claimed is None:
        return "unknown"
    named, owner = claimed
    own_at = newest_of(state, owner)
    own = decision_at(state, own_at)
    if own and rules.own_history_counts:
        # `newest` may be another's, if the caller or the other has no name: this one counts too.
        if is_repeat(own, action, rules):
            return _repeat(state, action, own, rules)
        if own.number >= action.number and action.conflict != "write":
            return "conflict"
    if own and not own.is_done and rules.finish_before_next:
        return Paused("finish", action, own)
    return _decision(state, action, rules, named, owner, (newest_at, own_at))


def _decision(
    state: State,
    action: Action,
    rules: Rules,
    named: tuple[int, ...],
    owner: int,
    known: tuple[int, int],
) -> Outcome:
    """Return how a batch is decided that fits its stream's history."""
    wanted = Decision(owner, action.number, action.fingerprint, named)
    if not named:
        return Paused("note", action, wanted, (), known) if action.fingerprint else "written"
    if _is_some_closed(state, named, rules):
        return "illegal"
    return Paused("decide", action, wanted, named, known)


def is_repeat(newest: Decision, action: Action, rules: Rules) -> bool:
    """Tell whether a commit asks again for what the newest decision decided (history.py)."""
    differ = newest.fingerprint and action.fingerprint and newest.fingerprint != action.fingerprint
    if newest.number == action.number and not (differ and rules.repeat_by_fingerprint):
        return True
    is_lower = newest.number > action.number
    if is_lower and not rules.lower_number_is_conflict:
        return True
    return action.conflict == "repeat" and newest.number >= action.number


def _history(newest: Decision | None, action: Action, rules: Rules) -> str:
    """Return why a batch that is no repeat may not follow the newest decision, "" if it may."""
    if newest and newest.number >= action.number:
        return "" if action.conflict == "write" else "conflict"
    is_told = newest is None or bool(newest.fingerprint)
    is_gap = newest is None or newest.number < action.previous
    if action.previous and is_told and is_gap and rules.gap_is_told:
        return "gap"
    return ""


def _is_some_closed(state: State, named: tuple[int, ...], rules: Rules) -> bool:
    # Without `since_not_believed` a client says from where on ops are read: behind them all.
    return rules.since_not_believed and any(is_closed(state, half) for half in named)


def _append_decision(state: State, paused: Paused, rules: Rules) -> Append:
    """The first append of a commit: decision, copy and op of the first half message."""
    action, decision = paused.action, paused.decision
    assert decision is not None
    is_known = _is_known(state, paused, decision.user, rules)
    if rules.guard_newest and rules.newest_before_open and not is_known:
        return (), begin(state, action, rules)
    if rules.guard_open and _is_some_closed(state, paused.left, rules):
        return (), "illegal"
    if rules.guard_newest and not is_known:
        return (), begin(state, action, rules)
    first, *rest = paused.left
    if not rules.decision_before_copies:
        if rest:
            return (Copy(first), Op((first,))), paused._replace(left=tuple(rest), known=None)
        return (Copy(first), Op((first,)), decision, _done(decision)), "written"
    records: tuple[Record, ...] = (decision, *_copied(first))
    if rest:
        return records, Paused("complete", action, decision, tuple(rest))
    return (*records, _done(decision)), "written"


def _is_known(state: State, paused: Paused, owner: int, rules: Rules) -> bool:
    """Tell whether no decision came since a process looked."""
    found = newest_for(state, paused.action.user, rules), newest_of(state, owner)
    return paused.known is None or found == paused.known


def _copied(half: int) -> tuple[Record, ...]:
    return Copy(half), Op((half,))


def _done(decision: Decision) -> Decision:
    return decision._replace(named=(), is_done=True)


def _append_more(state: State, paused: Paused, rules: Rules) -> Append:
    """A later append of a commit: copy and op of the next half message, at last `done`."""
    decision = paused.decision
    assert decision is not None
    first, *rest = paused.left
    if rules.guard_open and is_closed(state, first):
        return (), paused._replace(kind="finish_own")
    if rest:
        return _copied(first), paused._replace(left=tuple(rest))
    return (*_copied(first), _done(decision)), "written"


def _append_note(state: State, paused: Paused, rules: Rules) -> Append:
    """The only append of an empty batch."""
    assert paused.decision is not None
    if rules.guard_newest and not _is_known(state, paused, paused.decision.user, rules):
        return (), begin(state, paused.action, rules)
    return (_done(paused.decision),), "written"


# Finish


def _append_finishing(state: State, paused: Paused, rules: Rules) -> Append:
    assert paused.decision is not None
    # Whoever aborts is not told of a loss: Spark drops what is raised then.
    is_owner = paused.action.kind != "abort"
    records, is_lost = finishing(state, paused.decision, rules, is_owner=is_owner)
    if is_lost:
        return records, "lost" if is_owner else "ok"
    if records:
        return records, paused
    return (), "written" if paused.kind == "finish_own" else begin(state, paused.action, rules)


def finishing(
    state: State, decision: Decision, rules: Rules, *, is_owner: bool = True
) -> tuple[tuple[Record, ...], bool]:
    """Return the next append that finishes a decision, empty if it is done; whether rows are lost.

    One half message an append; after a loss, what is left at once. Only the owner is told of a
    loss, so only then it is done.
    """
    newest = decision_at(state, newest_of(state, decision.user))
    if newest and (newest.is_done or newest.named != decision.named):
        return (), False
    there = [half for half in decision.named if half < len(state.halves)]
    left = [half for half in there if state.halves[half].settled == OPEN]
    gone = [half for half in left if half < state.start]
    if gone:
        rest = [each for half in left if half not in gone for each in _missing(state, half, rules)]
        is_noted = rules.loss_is_noted and is_owner
        return ((*rest, _done(decision)) if is_noted else tuple(rest)), True
    if not left:
        return (_done(decision),), False
    records = _missing(state, left[0], rules)
    return ((*records, _done(decision)) if len(left) == 1 else records), False


def _missing(state: State, half: int, rules: Rules) -> tuple[Record, ...]:
    """Return what a decided half message lacks: losing power may leave its copy without an op."""
    is_there = state.halves[half].row in state.visible
    return (Op((half,)),) if is_there and rules.finish_looks_for_copies else _copied(half)


# Repeat and roll back


def _repeat(state: State, action: Action, found: Decision, rules: Rules) -> Outcome:
    """Finish a batch that is decided already, and roll back what is not of it."""
    if not found.is_done:
        return Paused("finish", action, found)
    brought = claim(state, action, rules)
    if brought is None:
        return _answer(action)
    if rules.repeat_spares_decided:
        own = decision_at(state, newest_of(state, brought[1]))
        if own and not own.is_done:
            return Paused("finish", action, own)
    return _rollback(state, action, brought[0], None)


def _rollback(
    state: State, action: Action, halves: tuple[int, ...], known: tuple[int, int] | None
) -> Outcome:
    left = tuple(half for half in halves if not is_closed(state, half))
    return Paused("rollback", action, None, left, known) if left else _answer(action)


def _answer(action: Action) -> str:
    return "repeat" if action.kind == "commit" else "ok"


def _append_rollback(state: State, paused: Paused, rules: Rules) -> Append:
    claimed = claim(state, paused.action, rules)
    owner = claimed[1] if claimed else paused.action.user
    is_known = _is_known(state, paused, owner, rules)
    if rules.guard_newest and not is_known:
        return (), begin(state, paused.action, rules)
    if rules.guard_open and any(is_closed(state, half) for half in paused.left):
        return (), begin(state, paused.action, rules)
    own = decision_at(state, newest_of(state, owner))
    is_named = own is not None and not own.is_done and not set(own.named).isdisjoint(paused.left)
    if rules.repeat_spares_decided and rules.abort_spares_decided and is_named:
        return (), begin(state, paused.action, rules)
    return (Op(paused.left),), _answer(paused.action)


def _abort(state: State, action: Action, rules: Rules) -> Outcome:
    newest_at = newest_for(state, action.user, rules)
    newest = decision_at(state, newest_at)
    if newest and newest.number >= action.number and rules.abort_spares_decided:
        return _repeat(state, action, newest, rules)
    claimed = claim(state, action, rules)
    if claimed is None:
        return "unknown"
    named, owner = claimed
    own_at = newest_of(state, owner)
    own = decision_at(state, own_at)
    asks_owner = rules.own_history_counts and rules.abort_spares_decided
    if own and own.number >= action.number and asks_owner:
        return _repeat(state, action, own, rules)
    return _rollback(state, action, named, (newest_at, own_at))


# Ask, end


def _ask(state: State, action: Action, rules: Rules) -> Outcome:
    newest = decision_at(state, newest_for(state, action.user, rules))
    return "yes" if newest and newest.number >= action.number else "no"


def _end(state: State, action: Action, rules: Rules) -> Outcome:
    if not state.start <= action.half < len(state.halves):
        return "unknown"
    half = state.halves[action.half]
    may_settle = not action.user or half.user in (NAMELESS, action.user)
    if not may_settle and rules.end_checks_owner:
        return "unknown"
    if half.attempt != NO_ATTEMPT and rules.end_refuses_batches:
        return "unknown"
    return Paused("end", action, None, (action.half,))


def _append_end(state: State, paused: Paused, rules: Rules) -> Append:
    [half] = paused.left
    is_second = paused.known is not None
    if rules.guard_open and not is_second and _is_some_closed(state, paused.left, rules):
        return (), "illegal"
    if paused.action.how == "rollback" or is_second:
        return (Op((half,)),), "ok"
    if not rules.op_in_same_append:
        return (Copy(half),), paused._replace(known=(-1, -1))
    return _copied(half), "ok"


_BEGIN = {
    "prepare": _prepare,
    "single": _single,
    "commit": _commit,
    "abort": _abort,
    "ask": _ask,
    "end": _end,
}
_APPEND = {
    "prepare": _append_prepared,
    "single": _append_single,
    "decide": _append_decision,
    "complete": _append_more,
    "note": _append_note,
    "finish": _append_finishing,
    "finish_own": _append_finishing,
    "rollback": _append_rollback,
    "end": _append_end,
}
