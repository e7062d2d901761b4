"""History: whether a batch fits what the log says of its stream: a repeat, the next, or neither.

A stream of batches (an owner and a name) is committed in the order of its numbers. What writes it,
a Spark query with its checkpoint, repeats its last batch after a crash, and nothing else:

    newest decision        this batch          it is
    n, same fingerprint    n                   a repeat: nothing is added
    n - 1 or less          n                   the next one
    n, other fingerprint   n                   another batch: a restored or copied checkpoint, or a
                                               plan that gives other rows each time
    n + 1 or more          n                   an older checkpoint against a newer store
    forgotten, n or more   n                   one of these three, or a repeat: it can't be told
    before `previous`      n                   an older store against a newer checkpoint

The last four are refused with the numbers; the caller can have the first three of them taken for a
repeat or written (`conflict`), and the last one written by leaving `previous` out. A forgotten
stream (forgotten.py) goes on with the number after its newest, as if nothing had been forgotten.
Decisions of versions that knew no fingerprint, and callers that give none, are told by the number
alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from broker_core.errors import BatchConflictError, BatchGapError, RequestError
from broker_core.types import Conflict

if TYPE_CHECKING:
    from broker_core.broker.transactions.decision_lookup import LoggedDecision
    from broker_core.broker.transactions.decision_records import Decision
    from broker_core.types import BatchRef

log = logging.getLogger(__name__)
CONFLICTS = get_args(Conflict)
MAX_TEXT_CHARS = 1024


@dataclass(frozen=True)
class CommitRequest:
    """What a driver says of the batch that it commits, beside its receipts.

    `fingerprint` tells the batch from another one with its number. `conflict` says what becomes of
    it if another one was committed under its number, or a later one: it is refused, taken for a
    repeat, or written all the same. `previous` is the number of a batch that must have been
    committed before this one; None if the driver can't know.
    """

    run: str = ""
    keep: bool = True
    fingerprint: str = ""
    conflict: str = "refuse"
    previous: int | None = None

    def __post_init__(self) -> None:
        if self.conflict not in CONFLICTS:
            message = f"{self.conflict!r} is no answer to a conflict; choose from {CONFLICTS}."
            raise RequestError(message)
        longest = max(len(self.run), len(self.fingerprint))
        if longest > MAX_TEXT_CHARS:
            # Retention carries both along for as long as the stream lives.
            message = (
                f"A run or fingerprint of {longest} characters is too long, {MAX_TEXT_CHARS} is "
                "the limit. Nothing was written."
            )
            raise RequestError(message)


def is_repeat(newest: Decision, batch: BatchRef, request: CommitRequest) -> bool:
    """Tell whether a commit asks again for what the newest decision of its stream decided."""
    if newest.is_of(batch, request.fingerprint) and not newest.is_forgotten:
        if bool(newest.fingerprint) != bool(request.fingerprint):
            log.warning("event=repeat_by_number_alone batch=%r run=%s", str(batch), newest.run)
        return True
    return request.conflict == "repeat" and newest.supersedes(batch)


def require_history(newest: LoggedDecision | None, batch: BatchRef, request: CommitRequest) -> None:
    """Raise unless a batch that is no repeat may follow the newest decision of its stream."""
    require_no_conflict(newest, batch, request)
    known = None if newest is None else newest.decision
    # A version that wrote no fingerprints left no trace of empty batches: it tells of no gap.
    is_told = known is None or bool(known.fingerprint) or known.is_forgotten
    is_gap = known is None or known.batch.number < min(request.previous or 0, batch.number)
    if request.previous is not None and is_told and is_gap:
        found = (
            "no batch of this stream"
            if known is None
            else f"batch {known.batch.number} as the newest one"
        )
        message = (
            f"{batch} is refused: batch {request.previous} comes before it, but the store has "
            f"{found}. The store is older than the checkpoint: it was restored, replaced or lost "
            "its end, and what was committed since is missing. Nothing was written. Accept the gap "
            "to go on without it."
        )
        raise BatchGapError(message)


def require_no_conflict(
    found: LoggedDecision | None, batch: BatchRef, request: CommitRequest
) -> None:
    """Raise if a decision has the number of a batch that is no repeat of it, or a later one."""
    if found is None or found.decision.batch.number < batch.number or request.conflict == "write":
        return
    last = found.decision.batch.number
    if found.decision.is_forgotten:
        raise _forgotten(batch, last)
    run = f" by run {found.decision.run}" if found.decision.run else ""
    what = (
        f"another batch was committed under this number{run}"
        if last == batch.number
        else f"batch {last} is committed already{run}"
    )
    message = (
        f"{batch} is refused: {what}. The checkpoint is older than the store, a copy of another "
        "query's, or two runs overlap. Nothing was written. If it is the same batch, commit it as "
        "a repeat; if its rows are new, commit it to be written."
    )
    raise BatchConflictError(message)


def _forgotten(batch: BatchRef, last: int) -> BatchConflictError:
    """Return the error for a batch that was committed so long ago that no more is known of it."""
    message = (
        f"{batch} is refused: batch {last} is committed already, and that is all that is still "
        "known of this stream. Its decision was forgotten after batchDecisionReservedTime, or "
        "because there were more than batchDecisionCarryMax; so it can't be told whether this is "
        "the same batch. Nothing was written. If it is the same batch, commit it as a repeat; if "
        "its rows are new, commit it to be written, or under another name."
    )
    return BatchConflictError(message)
