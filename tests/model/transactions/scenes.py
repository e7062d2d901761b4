"""Scenes: small worlds to explore, each with its actors, its actions and its sizes.

One world with everything in it would be too large to see to its end, so each scene has the actions
that may meet in one class of faults. All share the transition function and the invariants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from tests.model.transactions.explore import Scene
from tests.model.transactions.state import (
    ALICE,
    MALLORY,
    NAMELESS,
    NO_ATTEMPT,
    OLDEST,
    PATIENCE,
    TAG_ATTEMPT,
    Action,
    ReceiptText,
    State,
)

Receipts = tuple[ReceiptText, ...]
BOTH = (ALICE, MALLORY)
FINGERPRINTS = "fg"


@dataclass(frozen=True)
class Sizes:
    """How much may happen: who is there, batch numbers, rows a call and in all, attempts, deaths.

    `depth` is how many steps a trace has at most; None sees a scene to its end. `singles` lets
    users prepare messages that are of no batch, where a scene has them.
    """

    users: tuple[int, ...] = BOTH
    numbers: tuple[int, ...] = (1, 2)
    rows: tuple[int, ...] = (1,)
    most_rows: int = 2
    attempts: int = 2
    deaths: int = 0
    singles: bool = True
    depth: int | None = None
    forgers: tuple[int, ...] = ()


# What a state gives actors to say


def attempts(state: State) -> dict[int, tuple[int, int]]:
    """Return the attempts that half messages are of, and whose and which batch's they are."""
    return {
        half.attempt: (half.user, half.number)
        for half in state.halves
        if half.attempt != NO_ATTEMPT
    }


def has_room(state: State, sizes: Sizes, rows: int = 1) -> bool:
    """Tell whether so many rows more may be prepared."""
    return len({half.row for half in state.halves}) + rows <= sizes.most_rows


def of_attempt(state: State, attempt: int, first: int = 0) -> ReceiptText:
    """Return the true receipt of an attempt, of what it prepared from `first` on."""
    numbers = (
        number
        for number, half in enumerate(state.halves)
        if half.attempt == attempt and half.row == number >= first
    )
    return attempt, tuple(numbers)


def honest(state: State, users: tuple[int, ...], number: int) -> Iterator[Receipts]:
    """Yield the receipts of a batch that its driver may hold: of one attempt, or of all."""
    own = [
        of_attempt(state, attempt)
        for attempt, (user, of_batch) in attempts(state).items()
        if user in users and of_batch == number
    ]
    for receipt in own:
        yield (receipt,)
        left = of_attempt(state, receipt[0], state.start)
        if () != left[1] != receipt[1]:
            yield (left,)
    if len(own) > 1:
        yield tuple(own)


def forged(state: State) -> Iterator[Receipts]:
    """Yield receipts that a client could send: true ones of anybody, and wrong ones."""
    end = len(state.halves)
    known = attempts(state)
    for attempt in known:
        _, own = of_attempt(state, attempt)
        yield ((attempt, own),)
        yield ((attempt, (*own, own[0])),)
        yield ((attempt, (*own, end)),)
        for number, half in enumerate(state.halves):
            if half.attempt != attempt:
                yield ((attempt, (number,)),)
    for one, other in combinations(known, 2):
        yield of_attempt(state, one), of_attempt(state, other)
    if end:
        yield ((len(known), (0,)),)


def callers(state: State, users: tuple[int, ...]) -> tuple[int, ...]:
    """Return who may act: Mallory is not the first, for the two could be exchanged."""
    if state.halves or MALLORY not in users:
        return users
    return tuple(user for user in users if user != MALLORY)


def fingerprints(state: State) -> str:
    """Return the fingerprints that are used, and one that is not."""
    used = len({text for _, _, text in state.decided if text})
    return FINGERPRINTS[: used + 1]


# What actors do


def preparing(state: State, user: int, sizes: Sizes) -> Iterator[Action]:
    """Yield the honest ways to prepare: a new attempt, or more of one's own."""
    known = attempts(state)
    for rows in sizes.rows:
        if not has_room(state, sizes, rows):
            continue
        for number in sizes.numbers:
            if len(known) < sizes.attempts:
                yield Action("prepare", user, number, len(known), True, rows=rows)
            for attempt, whose in known.items():
                if whose == (user, number):
                    yield Action("prepare", user, number, attempt, rows=rows)


def single(state: State, user: int, sizes: Sizes) -> Iterator[Action]:
    """Yield the preparation of a message that is of no batch."""
    if sizes.singles and has_room(state, sizes):
        yield Action("single", user)


def deciding(
    state: State, user: int, sizes: Sizes, whose: tuple[int, ...], texts: str = "f"
) -> Iterator[Action]:
    """Yield commits and aborts of what some users prepared; commits may die."""
    for number in sizes.numbers:
        for receipts in honest(state, whose, number):
            for text in texts:
                commit = Action("commit", user, number, receipts=receipts, fingerprint=text)
                yield commit
                # The first death is one of whoever decides; a later one may be of a repeat.
                is_new = (user, number, text) not in state.decided
                if state.deaths < sizes.deaths and (is_new or state.deaths):
                    yield from dying(commit)
            yield Action("abort", user, number, receipts=receipts)


def dying(commit: Action) -> Iterator[Action]:
    """Yield a commit that dies between any two appends, or with a part of one in the log.

    An append has the decision first, copy and op of one half message, and `done` last.
    """
    count = sum(len(halves) for _, halves in commit.receipts)
    for appends in range(count):
        records = 2 + (appends == 0) + (appends == count - 1)
        for cut in range(0 if appends else 1, records):
            yield commit._replace(dies=appends, cut=cut)


def ending(state: State, user: int, *, dies: bool = False) -> Iterator[Action]:
    """Yield ends of half messages, whatever they are and whosever."""
    for number, half in enumerate(state.halves):
        commit = Action("end", user, half=number, how="commit")
        yield commit
        if half.attempt == NO_ATTEMPT:
            yield commit._replace(how="rollback")
            if dies:
                yield commit._replace(dies=1)


# The scenes


def neighbours(sizes: Sizes) -> Scene:
    """Two users of one stream, of whom the forgers send whatever they like."""
    return Scene("neighbours", partial(_neighbours, sizes), sizes.depth, BOTH)


def _neighbours(sizes: Sizes, state: State) -> Iterator[Action]:
    for user in callers(state, sizes.users):
        yield from preparing(state, user, sizes)
        for number in sizes.numbers:
            yield Action("ask", user, number)
        yield from deciding(state, user, sizes, (user,), fingerprints(state))
        if user in sizes.forgers:
            yield from _forging(sizes, state, user)


def _forging(sizes: Sizes, state: State, user: int) -> Iterator[Action]:
    if has_room(state, sizes):
        yield Action("prepare", user, sizes.numbers[0], TAG_ATTEMPT, True)
    for number in sizes.numbers:
        if has_room(state, sizes):
            for attempt in attempts(state):
                yield Action("prepare", user, number, attempt, True)
        for receipts in forged(state):
            yield Action("commit", user, number, receipts=receipts, fingerprint="f")
            yield Action("abort", user, number, receipts=receipts)


def history(sizes: Sizes) -> Scene:
    """One user's driver that replays, skips, goes back and insists."""
    return Scene("history", partial(_history, sizes), sizes.depth)


def _history(sizes: Sizes, state: State) -> Iterator[Action]:
    yield from preparing(state, ALICE, sizes)
    for number in sizes.numbers:
        yield Action("ask", ALICE, number)
        for receipts in (*honest(state, (ALICE,), number), ()):
            commit = Action("commit", ALICE, number, receipts=receipts)
            yield commit._replace(kind="abort")
            for text in ("", *fingerprints(state)):
                for previous in range(number):
                    told = commit._replace(fingerprint=text, previous=previous)
                    yield told
                    yield told._replace(conflict="repeat")
                    if receipts:  # an empty one could be insisted on without end
                        yield told._replace(conflict="write")
    yield Action("round")


def crashes(sizes: Sizes) -> Scene:
    """Commits in several appends whose processes die, or lose power in one of them."""
    return Scene("crashes", partial(_crashes, sizes), sizes.depth, sizes.users)


def _crashes(sizes: Sizes, state: State) -> Iterator[Action]:
    for user in callers(state, sizes.users):
        yield from preparing(state, user, sizes)
        yield from single(state, user, sizes)
        yield from deciding(state, user, sizes, (user,))
        yield from ending(state, user, dies=state.deaths < sizes.deaths)
    yield Action("round")


def races(sizes: Sizes) -> Scene:
    """A process that pauses before any of its appends, while others of the same user act."""
    return Scene("races", partial(_races, sizes), sizes.depth)


def _races(sizes: Sizes, state: State) -> Iterator[Action]:
    calls = list(_racing(sizes, state))
    yield from calls
    if state.paused is None:
        for call in calls:
            if call.kind not in ("single", "tick"):
                yield call._replace(is_paused=True)
    else:
        yield Action("resume")
        yield Action("die")


def _racing(sizes: Sizes, state: State) -> Iterator[Action]:
    yield from preparing(state, ALICE, sizes)
    yield from single(state, ALICE, sizes)
    if has_room(state, sizes):
        # Another user's process that chose the same id.
        yield Action("prepare", MALLORY, 1, len(attempts(state)), True)
    for call in deciding(state, ALICE, sizes, (ALICE,), fingerprints(state)):
        yield call
        if state.decided and call.kind == "commit":
            yield call._replace(conflict="write")
    yield from ending(state, ALICE)
    yield Action("tick")
    yield Action("round")


def stale_rounds(sizes: Sizes) -> Scene:
    """A round of check-back that looked, and acts after another process did."""
    return Scene("stale rounds", partial(_stale_rounds, sizes), sizes.depth)


def _stale_rounds(sizes: Sizes, state: State) -> Iterator[Action]:
    is_looking = state.paused is not None
    yield from preparing(state, ALICE, replace(sizes, most_rows=sizes.most_rows + is_looking))
    yield Action("tick")
    if not state.decided:
        yield Action("commit", ALICE, 1, fingerprint="f")
    for receipts in honest(state, (ALICE,), 1):
        # In either order: a round settles half messages in the order of the queue.
        for order in dict.fromkeys([receipts, receipts[::-1]]):
            commit = Action("commit", ALICE, 1, receipts=order, fingerprint="g")
            for conflict in ("refuse", "write"):
                yield commit._replace(conflict=conflict)
                if is_looking and state.deaths < sizes.deaths:
                    yield commit._replace(conflict=conflict, dies=1)
    if is_looking:
        yield Action("resume")
        yield Action("die")
    else:
        yield Action("round", is_paused=True)


def check_backs(sizes: Sizes) -> Scene:
    """Open half messages, listeners that come and go, clocks that are behind, and time."""
    return Scene("check-backs", partial(_check_backs, sizes), sizes.depth, sizes.users)


def _check_backs(sizes: Sizes, state: State) -> Iterator[Action]:
    for user in callers(state, sizes.users):
        for call in preparing(state, user, sizes):
            yield call
            if call.is_first:
                yield call._replace(behind=PATIENCE)
        for call in single(state, user, sizes):
            yield call
            yield call._replace(behind=OLDEST)
        yield from deciding(state, user, sizes, (user,))
        yield from ending(state, user)
    yield Action("tick")
    yield Action("round")
    if any(half.attempt == NO_ATTEMPT for half in state.halves):
        for user in sizes.users:
            for how in ("commit", "rollback", "unknown"):
                yield Action("round", listening=(user,), how=how)


def retentions(sizes: Sizes) -> Scene:
    """Files of the log that are deleted, by our own retention or another broker's."""
    apart = sizes.users if len(sizes.users) > 1 else ()
    return Scene("retentions", partial(_retentions, sizes), sizes.depth, apart)


def _retentions(sizes: Sizes, state: State) -> Iterator[Action]:
    for user in callers(state, sizes.users):
        yield from preparing(state, user, sizes)
        yield from single(state, user, sizes)
        if has_room(state, sizes):
            for attempt, (owner, _) in attempts(state).items():
                if owner != user:
                    yield Action("prepare", user, 1, attempt, True)
        yield from deciding(state, user, sizes, sizes.users)
    if state.segment == 0:
        yield Action("roll")
    elif state.start < len(state.halves) and state.halves[state.start].segment == 0:
        yield Action("retain")
        yield Action("retain", how="foreign")
    yield Action("round")


def nameless(sizes: Sizes) -> Scene:
    """A caller without a name beside users, one of whom may die in a commit."""
    return Scene("nameless", partial(_nameless, sizes), sizes.depth)


def _nameless(sizes: Sizes, state: State) -> Iterator[Action]:
    for user in callers(state, sizes.users):
        yield from preparing(state, user, sizes)
        heard = sizes.users if user == NAMELESS else (NAMELESS, user)
        for call in deciding(state, user, replace(sizes, deaths=0), heard):
            yield call
            is_long = sum(len(halves) for _, halves in call.receipts) > 1
            if call.kind == "commit" and is_long and state.deaths < sizes.deaths:
                yield call._replace(dies=1)
    yield Action("round")
