"""Seeded bugs: a scene for each rule, in which the exploration finds that the rule is missing."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.transactions.explore import Scene
from tests.model.transactions.scenes import (
    BOTH,
    Sizes,
    check_backs,
    crashes,
    history,
    nameless,
    neighbours,
    races,
    retentions,
    stale_rounds,
)
from tests.model.transactions.state import ALICE, MALLORY, NAMELESS

# Large enough for each bug, and small: a bug is found within some hundred states.
_NEIGHBOURS = neighbours(Sizes(forgers=(MALLORY,)))
_HISTORY = history(Sizes(depth=4))
_CRASHES = crashes(Sizes(users=(ALICE,), rows=(1, 2), deaths=1, depth=4))
_RACES = races(Sizes(numbers=(1,), singles=False, depth=5))
_SINGLES = races(Sizes(numbers=(), most_rows=1, depth=4))
_STALE = stale_rounds(Sizes(numbers=(1,), deaths=1, depth=6))
_CHECKS = check_backs(Sizes(numbers=(1,), most_rows=1, depth=4))
_BATCHES = check_backs(Sizes(users=(ALICE,), numbers=(1,), singles=False, depth=5))
_RETENTIONS = retentions(Sizes(users=(ALICE,), numbers=(1,), most_rows=1, deaths=1, depth=5))
_REPLAYS = retentions(Sizes(users=(ALICE,), numbers=(1,), singles=False, deaths=1, depth=6))
_TAKEOVERS = retentions(
    Sizes(numbers=(1,), most_rows=3, attempts=1, singles=False, depth=6),
)
_OWNERS = nameless(Sizes(users=(NAMELESS, ALICE), numbers=(1,), depth=3))
_STREAMS = nameless(Sizes(users=(NAMELESS, *BOTH), depth=5))
_UNFINISHED = nameless(
    Sizes(users=(NAMELESS, *BOTH), numbers=(1,), rows=(1, 2), most_rows=3, deaths=1, depth=5),
)


class Seed(NamedTuple):
    """Where a missing rule is found, and by which invariant."""

    scene: Scene
    invariant: str
    ignoring: tuple[str, ...] = ()


SEEDS: dict[str, Seed] = {
    "streams_by_user": Seed(_NEIGHBOURS, "others_change_nothing"),
    "claims_check_user": Seed(_NEIGHBOURS, "decision_names_its_own"),
    "claims_check_batch": Seed(_NEIGHBOURS, "decision_names_its_own"),
    "claims_check_attempt": Seed(_NEIGHBOURS, "decision_names_its_own"),
    "claims_one_owner": Seed(_OWNERS, "decision_names_its_own"),
    "ranges_within_queue": Seed(_NEIGHBOURS, "decision_names_its_own"),
    "ranges_once": Seed(_NEIGHBOURS, "op_names_open_half"),
    "attempt_has_one_form": Seed(_NEIGHBOURS, "others_change_nothing"),
    "attempt_belongs_to_one": Seed(_NEIGHBOURS, "decision_names_its_own"),
    "end_checks_owner": Seed(_CHECKS, "only_decided_becomes_visible"),
    "end_refuses_batches": Seed(_CHECKS, "only_decided_becomes_visible"),
    "asks_owner_only": Seed(_CHECKS, "only_decided_becomes_visible"),
    "repeat_by_fingerprint": Seed(_HISTORY, "repeat_is_the_same_batch"),
    "lower_number_is_conflict": Seed(_HISTORY, "repeat_is_the_same_batch"),
    "own_history_counts": Seed(_STREAMS, "illegal_means_undecided"),
    "gap_is_told": Seed(_HISTORY, "gap_is_refused"),
    "abort_spares_decided": Seed(_CRASHES, "decided_becomes_visible"),
    "repeat_spares_decided": Seed(_UNFINISHED, "decided_becomes_visible"),
    "op_in_same_append": Seed(_CRASHES, "visible_once"),
    "decision_before_copies": Seed(_CRASHES, "only_decided_becomes_visible"),
    "finish_before_next": Seed(_CRASHES, "done_before_next"),
    "finish_looks_for_copies": Seed(_CRASHES, "visible_once"),
    "since_not_believed": Seed(_NEIGHBOURS, "never_after_rollback"),
    "guard_newest": Seed(_RACES, "decided_once", ("illegal_means_undecided",)),
    "guard_open": Seed(_SINGLES, "visible_once"),
    "guard_attempt": Seed(_RACES, "decision_names_its_own"),
    "newest_before_open": Seed(_RACES, "illegal_means_undecided"),
    "late_by_place": Seed(_HISTORY, "heard_lately_is_kept"),
    "count_only_if_asked": Seed(_CHECKS, "counted_if_asked"),
    "asks_once_an_interval": Seed(_CHECKS, "counted_if_asked"),
    "patience_by_store_time": Seed(_CHECKS, "heard_lately_is_kept"),
    "heard_by_batch": Seed(_BATCHES, "heard_lately_is_kept"),
    "progress_stops_at_waiting": Seed(_CHECKS, "nothing_stays_open"),
    "give_up_since_look": Seed(_STALE, "heard_lately_is_kept"),
    "drop_since_look": Seed(_STALE, "decided_becomes_visible"),
    "retention_finishes": Seed(_RETENTIONS, "decided_becomes_visible"),
    "retention_finishes_all": Seed(_RETENTIONS, "only_others_lose"),
    "retention_puts_back": Seed(_RETENTIONS, "open_survives_retention"),
    "retention_carries": Seed(_REPLAYS, "decided_once"),
    "retention_keeps_attempts": Seed(_TAKEOVERS, "decision_names_its_own"),
    "loss_is_noted": Seed(_REPLAYS, "loss_is_told_once"),
}
