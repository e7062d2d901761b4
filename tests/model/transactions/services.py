"""Services of the model: rounds of check-back, time, retention; and one step of the whole model.

Follows check_back.py, check_back_plan.py and api.Transactions.keep_decisions. A round looks, pauses
perhaps, and then acts; what it does to each half message is one append.
"""

from __future__ import annotations

from tests.model.transactions.calls import begin, finishing, next_append, run, run_mortal
from tests.model.transactions.state import (
    MAX_CHECKS,
    NO_ATTEMPT,
    OLDEST,
    OPEN,
    PATIENCE,
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
    attempt_at,
    attempt_of,
    decision_at,
    is_closed,
    newest_of,
    open_halves,
)

WAIT, FINISH, ROLL_BACK, ASK, GIVE_UP = range(5)
UNKNOWN, UNDECIDED, COMMITTED, DROPPED = range(4)
Steps = tuple[tuple[int, int], ...]
"""Half messages and what a round does with each."""


def step(state: State, action: Action, rules: Rules) -> tuple[State, str]:
    """Return the state after an action, and the answer to whoever acted."""
    service = _SERVICES.get(action.kind)
    if service is not None:
        return service(state, action, rules)
    if action.dies >= 0:
        return run_mortal(state, action, rules)
    outcome = begin(state, action, rules)
    if action.is_paused and isinstance(outcome, Paused):
        return state._replace(paused=outcome), "paused"
    return run(state, outcome, rules)


def _resume(state: State, action: Action, rules: Rules) -> tuple[State, str]:
    """Let the paused process make its next append."""
    del action
    paused = state.paused
    assert paused is not None
    state = state._replace(paused=None)
    if paused.kind == "round":
        return _act(state, paused, rules)
    records, outcome = next_append(state, paused, rules)
    state = apply(state, records)
    while isinstance(outcome, Paused) and outcome.kind in ("finish", "finish_own"):
        records, after = next_append(state, outcome, rules)
        if records:
            break
        outcome = after  # it is finished, here or elsewhere: no append is left to pause before
    if isinstance(outcome, Paused):
        return state._replace(paused=outcome), "paused"
    return state, outcome


def _die(state: State, action: Action, rules: Rules) -> tuple[State, str]:
    del action, rules
    return state._replace(paused=None), "died"


def _tick(state: State, action: Action, rules: Rules) -> tuple[State, str]:
    """Let time pass: less than the patience with a batch, more than an interval of check-back."""
    del action, rules
    halves = tuple(
        half if half.settled != OPEN else half._replace(age=min(half.age + 1, OLDEST))
        for half in state.halves
    )
    return (state._replace(halves=halves) if halves != state.halves else state), "ok"


# Check-back


def _round(state: State, action: Action, rules: Rules) -> tuple[State, str]:
    paused = Paused(
        "round",
        action,
        steps=plan(state, action, rules),
        end=len(state.halves),
    )
    if action.is_paused:
        return state._replace(paused=paused), "paused"
    return _act(state, paused, rules)


def plan(state: State, action: Action, rules: Rules) -> Steps:
    """Return what a round does with each half message that is open."""
    looked = [half for half in open_halves(state) if half >= state.progress]
    verdicts = {half: verdict(state, half, rules) for half in looked}
    steps = []
    for number in looked:
        match verdicts[number]:
            case 0:
                chosen = _step_single(state, number, action, rules)
            case 1:
                silent = _silence(state, number, looked, rules)
                chosen = GIVE_UP if silent >= PATIENCE else WAIT
            case 2:
                chosen = FINISH
            case _:
                chosen = ROLL_BACK
        steps.append((number, chosen))
    return tuple(steps)


def verdict(state: State, number: int, rules: Rules) -> int:
    """Return what the journal says of an open half message, by its attempt."""
    attempt = attempt_of(state, state.halves[number].attempt)
    if attempt is None:
        return UNKNOWN
    found_at = newest_of(state, attempt.user)
    found = decision_at(state, found_at)
    if found is None:
        return UNDECIDED
    if number in found.named:
        return COMMITTED
    is_before = attempt_at(state, attempt.id) < found_at or not rules.late_by_place
    return DROPPED if found.number >= attempt.number and is_before else UNDECIDED


def _age(half: Half, rules: Rules) -> int:
    return half.age if rules.patience_by_store_time else min(half.age + half.behind, OLDEST)


def _step_single(state: State, number: int, action: Action, rules: Rules) -> int:
    half = state.halves[number]
    age = _age(half, rules)
    if age >= OLDEST:
        return GIVE_UP
    if age == 0 and (half.checks == 0 or rules.asks_once_an_interval):
        return WAIT
    if half.checks >= MAX_CHECKS:
        return GIVE_UP
    return ASK if can_ask(half, action, rules) or not rules.count_only_if_asked else WAIT


def can_ask(half: Half, action: Action, rules: Rules) -> bool:
    """Tell whether the producer of a half message listens."""
    if half.attempt != NO_ATTEMPT:
        return False
    return half.user in action.listening or (bool(action.listening) and not rules.asks_owner_only)


def _silence(state: State, number: int, looked: list[int], rules: Rules) -> int:
    """Return for how long nothing was prepared for the batch of a half message."""
    own = attempt_of(state, state.halves[number].attempt)
    assert own is not None
    same = [number]
    if rules.heard_by_batch:
        for other in looked:
            found = attempt_of(state, state.halves[other].attempt)
            if found and (found.user, found.number) == (own.user, own.number):
                same.append(other)
    return min(_age(state.halves[each], rules) for each in same)


def _act(state: State, paused: Paused, rules: Rules) -> tuple[State, str]:
    """Do what a round planned, one kind of step after the other."""
    waiting = [half for half, chosen in paused.steps if chosen == WAIT]
    counts = [0] * 5
    for chosen in (FINISH, ROLL_BACK, ASK, GIVE_UP):
        todo = [half for half, each in paused.steps if each == chosen]
        if not todo:
            continue
        if chosen == FINISH:
            state, left = finish_all(state, todo, rules)
            waiting += left
            counts[chosen] = len(todo) - len(left)
            continue
        state, done = _settle_each(state, paused, chosen, todo, rules)
        counts[chosen] = done
        waiting += todo[done:]
    reached = min(waiting, default=paused.end) if rules.progress_stops_at_waiting else paused.end
    if reached > state.progress:
        state = state._replace(progress=reached)
    return state, "/".join(map(str, (len(waiting), *counts[1:])))


def finish_all(state: State, halves: list[int], rules: Rules) -> tuple[State, list[int]]:
    """Finish the decisions that name half messages; those of which rows were lost are left."""
    left = []
    for half in halves:
        attempt = attempt_of(state, state.halves[half].attempt)
        found = decision_at(state, newest_of(state, attempt.user)) if attempt else None
        if found and not found.is_done:
            state, is_lost = finish(state, found, rules, is_owner=False)
            left += [half] * is_lost
    return state, left


def finish_for(state: State, before: int, rules: Rules, *, is_owner: bool = False) -> State:
    """Finish the users' newest decisions that lie before a segment, as far as they can be."""
    for user in sorted({half.user for half in state.halves}):
        found = decision_at(state, newest_of(state, user))
        if found and not found.is_done and found.segment < before:
            state, _ = finish(state, found, rules, is_owner=is_owner)
    return state


def finish(state: State, decision: Decision, rules: Rules, *, is_owner: bool) -> tuple[State, bool]:
    """Finish a decision, append after append; whether rows were lost."""
    while True:
        records, is_lost = finishing(state, decision, rules, is_owner=is_owner)
        state = apply(state, records)
        if is_lost or not records:
            return state, is_lost


def _settle_each(
    state: State, paused: Paused, chosen: int, halves: list[int], rules: Rules
) -> tuple[State, int]:
    """Settle half messages one after the other, until one is settled already; return how many."""
    looks_again = {ROLL_BACK: rules.drop_since_look, GIVE_UP: rules.give_up_since_look}
    for done, half in enumerate(halves):
        if looks_again.get(chosen) and (half, chosen) not in plan(state, paused.action, rules):
            return state, done
        if rules.guard_open and is_closed(state, half):
            return state, done
        state = _settle_one(state, paused.action, chosen, half, rules)
    return state, len(halves)


def _settle_one(state: State, action: Action, chosen: int, number: int, rules: Rules) -> State:
    half = state.halves[number]
    if chosen != ASK:
        return apply(state, (Op((number,)),))
    checks = half.checks + 1
    copy = len(state.halves)
    state = apply(state, (_put_back(half, checks), Op((number,))))
    if not can_ask(half, action, rules):
        return state
    answers: dict[str, tuple[Record, ...]] = {
        "commit": (Copy(copy), Op((copy,))),
        "rollback": (Op((copy,)),),
    }
    return apply(state, answers.get(action.how, ()))


def _put_back(half: Half, checks: int) -> Half:
    return half._replace(age=0, behind=0, checks=checks, settled=OPEN)


# Retention


def _roll(state: State, action: Action, rules: Rules) -> tuple[State, str]:
    """Begin another file of the log."""
    del action, rules
    return state._replace(segment=state.segment + 1), "ok"


def _retain(state: State, action: Action, rules: Rules) -> tuple[State, str]:
    """Delete all files of the log but the newest; `how` "foreign": another broker does it."""
    if action.how != "foreign":
        state = _rescue(state, rules)
        # Asked for before decisions are finished, which settles some of them.
        needed = {
            state.halves[half].attempt
            for half in open_halves(state)
            if state.halves[half].segment == state.segment
        }
        if rules.retention_finishes and rules.retention_finishes_all:
            # Their ops may go: then nobody could tell any more what is visible.
            state = finish_for(state, state.segment, rules)
        state = apply(state, _carried(state, needed, rules))
    kept = tuple(record for record in state.journal if record.segment >= state.segment)
    start = sum(half.segment < state.segment for half in state.halves)
    # An op may be deleted with its half message, or be left behind.
    gone = tuple(
        half._replace(
            settled=half.settled if half.settled >= state.segment else OPEN, age=0, behind=0
        )
        for half in state.halves[:start]
    )
    return state._replace(
        journal=kept,
        forgotten=state.forgotten + len(state.journal) - len(kept),
        start=start,
        halves=gone + state.halves[start:],
        is_cut=state.is_cut or action.how == "foreign",
        # A decision that another broker deletes was never made, as far as anybody can tell.
        decided=state.decided & {each.key for each in kept if isinstance(each, Decision)}
        if action.how == "foreign"
        else state.decided,
    ), "ok"


def _rescue(state: State, rules: Rules) -> State:
    """Save what is open of files that are about to be deleted."""
    old = [
        half
        for half in open_halves(state)
        if half >= state.progress and state.halves[half].segment < state.segment
    ]
    verdicts = {half: verdict(state, half, rules) for half in old}
    if rules.retention_finishes:
        committed = [half for half in old if verdicts[half] == COMMITTED]
        state, _ = finish_all(state, committed, rules)
    if rules.retention_puts_back:
        for half in old:
            if verdicts[half] == UNKNOWN:
                copy = _put_back(state.halves[half], state.halves[half].checks)
                state = apply(state, (copy, Op((half,))))
    return state


def _carried(state: State, needed: set[int], rules: Rules) -> tuple[Record, ...]:
    """Return the records of old files that must stay: newest decisions, and attempts as needed."""
    newest: dict[tuple[str, int], int] = {}
    for index, record in enumerate(state.journal):
        if isinstance(record, Decision) and rules.retention_carries:
            newest["decision", record.user] = index
        if isinstance(record, Attempt) and rules.retention_keeps_attempts and record.id in needed:
            newest["attempt", record.id] = index
    return tuple(
        state.journal[index]
        for index in sorted(newest.values())
        if state.journal[index].segment < state.segment
    )


_SERVICES = {
    "resume": _resume,
    "die": _die,
    "tick": _tick,
    "round": _round,
    "roll": _roll,
    "retain": _retain,
}
