"""Batches, committed exactly once: prepare, decide, repeat, roll back (finish.py finishes).

The package's docstring tells the whole story; this file is its spine. Tasks prepare half messages
(`prepare`, half_blocks.py). One decision (decision_records.py) makes those it names a committed
batch. The visible copies (unpack.py) and the op messages that settle their half messages
(settle.py, op.py) follow in as many appends as are needed, each of them whole or not at all:

    append 1    decision, copies, ops            from here on the batch is committed
    append 2    copies, ops
    append n    copies, ops, done

So a half message that is named and not settled still lacks its copy, and any process can finish:
the next commit of the same owner, or check-back. Two may finish at once; each append checks under
the store's lock that no other has settled its half messages.

A batch is decided under the lock too: no decision of its owner is as new, and none of its half
messages was rolled back since it was prepared. What a caller may decide at all is ownership.py's
to say. A repeat changes nothing and rolls back what it brought along. Cost is linear in the batch
and in what was settled since the last round of check-back, whatever the store holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.transactions.decision_lookup import LoggedDecision
from broker_core.broker.transactions.decision_records import (
    BatchAttempt,
    Decision,
    offsets_in,
    runs_of,
    stream_tag,
)
from broker_core.broker.transactions.finish import BatchFinisher
from broker_core.broker.transactions.half import HALF_QUEUE
from broker_core.broker.transactions.half_blocks import (
    as_blocks,
    block_bytes,
    blocks_of,
)
from broker_core.broker.transactions.history import (
    is_repeat,
    require_history,
    require_no_conflict,
)
from broker_core.broker.transactions.op import SettledHalves
from broker_core.broker.transactions.ownership import Claim, Claims, check_attempt, check_batch
from broker_core.broker.transactions.settle import SettledElsewhereError
from broker_core.codec.properties.checksum import require_checksum_room
from broker_core.codec.property_names import HALF_TOPIC
from broker_core.errors import (
    IllegalTransitionError,
    UnknownTransactionError,
)
from broker_core.store.batch import Batch
from broker_core.store.queue.deletions import Deletions
from broker_core.types import BatchOutcome, LogicalOffset, PhysicalOffset, Prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.transactions.history import CommitRequest
    from broker_core.broker.transactions.ownership import Caller
    from broker_core.broker.transactions.settle import Guard
    from broker_core.broker.transactions.tools import BatchTools
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.types import BatchRef, Receipt


_Known = tuple[LoggedDecision | None, LoggedDecision | None]
"""The newest decision that answers the caller, and the newest of the half messages' own user."""


class BatchCommits:
    """Prepares, commits and rolls back batches. Not thread-safe; each process may have its own."""

    def __init__(self, tools: BatchTools) -> None:
        self._tools = tools
        self._reader = tools.reader
        self._writer = tools.writer
        self._journal = tools.journal
        self._settler = tools.settler
        self._finisher = BatchFinisher(tools)
        self._claims = Claims(tools.reader, tools.journal, tools.settler)

    # Prepare

    def is_decided(self, batch: BatchRef, user: str) -> bool:
        """Tell whether it is too late to prepare anything for a batch."""
        found = self._journal.decision_for(stream_tag(check_batch(batch)), user)
        return found is not None and found.decision.supersedes(batch)

    def prepare(
        self,
        batch: BatchRef,
        attempt: str,
        messages: Batch | MessageBatch,
        *,
        user: str,
        is_first: bool,
        flush: str | None,
    ) -> Prepared:
        """Append messages in half blocks of an attempt, with its record if these are its first."""
        wanted = BatchAttempt(check_batch(batch), check_attempt(attempt), user)
        if not len(messages):
            end = LogicalOffset(self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)[1])
            return Prepared(end, end)
        halves = self._blocks(messages, attempt)
        parts = [halves]
        if is_first:
            parts.insert(0, self._tools.records(wanted))
        guard = partial(self._require_own_attempt, wanted, is_first=is_first)
        # Once without the lock, to be refused early, and once under it.
        guard()
        placed = self._writer.append(Batch.join(parts), flush=flush, guard=guard)
        first = int(placed.queue_offsets[len(placed.queue_offsets) - len(halves)])
        return Prepared(LogicalOffset(first), LogicalOffset(first + len(halves)))

    def _require_own_attempt(self, wanted: BatchAttempt, *, is_first: bool) -> None:
        """Raise if an attempt's id is another batch's or user's, or is not known though it must be.

        An id belongs to one user and one batch for ever: check-back believes it.
        """
        known = self._journal.attempt(wanted.id)
        if known == wanted or (known is None and is_first):
            return
        # One text: whether others have such an attempt is not the caller's to know.
        message = (
            f"Attempt {wanted.id} at {wanted.batch} is not known as this user's, or is taken. "
            "Nothing was written; begin again with an id of its own."
        )
        raise UnknownTransactionError(message)

    def _blocks(self, messages: Batch | MessageBatch, attempt: str) -> Batch:
        """Return half blocks that hold these messages, encoded already or not.

        If copies will get a checksum, IllegalMessageError for a message that has no room for it:
        once the batch is decided it would be too late.
        """
        settings, rows = self._writer.settings, self._tools.block_rows
        limit = settings.max_message_bytes
        if settings.append_property_crc:
            if not isinstance(messages, Batch):
                messages = Batch.of_messages(messages, max_message_bytes=limit)
            for part in messages.parts:
                require_checksum_room(part.records)
        if isinstance(messages, Batch):
            return as_blocks(messages, block_bytes(settings), rows, attempt=attempt)
        return blocks_of(
            messages, block_bytes(settings), rows, max_message_bytes=limit, attempt=attempt
        )

    # Decide

    def commit(
        self,
        batch: BatchRef,
        receipts: Sequence[Receipt],
        request: CommitRequest,
        caller: Caller,
        *,
        flush: str | None,
    ) -> BatchOutcome:
        """Commit what the receipts stand for, unless this very batch is committed.

        IllegalTransitionError if some of it has been rolled back since it was prepared: then
        nothing is committed, and the batch must be prepared again. BatchConflictError and
        BatchGapError if the stream's history does not fit. TopicNotFoundError and
        PermissionDeniedError if one of its topics was deleted since, or is not writable any more.
        """
        # Lets go of what was deleted since the last batch: as long as it is mapped, it takes space.
        self._reader.refresh()
        tag = stream_tag(check_batch(batch))
        wanted: Decision | None = None
        while True:
            newest = self._journal.decision_for(tag, caller.user)
            if newest is not None and is_repeat(newest.decision, batch, request):
                if not self._repeat(newest, self._brought(batch, receipts, caller), flush):
                    continue
                return BatchOutcome(is_repeat=True, run=newest.decision.run)
            require_history(newest, batch, request)
            wanted = wanted or self._wanted(batch, receipts, request, caller)
            own = self._journal.decision(tag, wanted.user)
            # The newest may be another's, if the caller or the other has no name: then what the
            # user of these half messages has decided counts too.
            if own is not None and is_repeat(own.decision, batch, request):
                if not self._repeat(own, self._brought(batch, receipts, caller), flush):
                    continue
                return BatchOutcome(is_repeat=True, run=own.decision.run)
            require_no_conflict(own, batch, request)
            if own is not None and not own.decision.is_done:
                # An earlier batch comes first: the newest decision must be all that is open.
                self._finisher.finish(own, flush=flush)
                continue
            if not wanted.count and not (request.fingerprint and request.keep):
                # An empty batch leaves no trace in the log.
                return BatchOutcome(is_repeat=False, run=request.run)
            try:
                self._decide(wanted, (newest, own), caller, flush)
            except SettledElsewhereError:
                continue
            return BatchOutcome(is_repeat=False, run=request.run)

    def _wanted(
        self,
        batch: BatchRef,
        receipts: Sequence[Receipt],
        request: CommitRequest,
        caller: Caller,
    ) -> Decision:
        """Return the decision that a caller asks for, in the name of who prepared it."""
        claim = self._claims.claim(batch, receipts, caller)
        return Decision(
            batch,
            request.run,
            runs_of(claim.offsets),
            keep=request.keep,
            user=claim.owner,
            fingerprint=request.fingerprint,
        )

    def _brought(self, batch: BatchRef, receipts: Sequence[Receipt], caller: Caller) -> Claim:
        """Return the half messages that a repeat brought along, nothing if they are not there.

        Those that it was decided with may be gone with the log; the answer is the same.
        """
        try:
            return self._claims.claim(batch, receipts, caller)
        except UnknownTransactionError:
            return Claim(np.zeros(0, dtype=np.int64), caller.user)

    def _decide(self, wanted: Decision, known: _Known, caller: Caller, flush: str | None) -> None:
        """Append the decision with the first copies and ops of what it names, then the rest.

        SettledElsewhereError, with nothing written, if a decision came that is not `known`.
        """
        settled = self._tools.settled()
        wanted = replace(wanted, since=settled.since)
        named = offsets_in(wanted.ranges)
        if not len(named):
            # An empty batch is noted too, so that the next one finds no gap before it.
            guard = partial(self._require_newest, wanted.tag, known, wanted.user, caller)
            done = self._tools.records(replace(wanted, is_done=True))
            self._writer.append(done, flush=flush, guard=guard)
            return
        guard = partial(self._require_decidable, wanted, named, settled, known, caller)
        # Once without the lock, to be refused before the copies are made, and once under it.
        guard()
        self._require_topics(named)
        with closing(self._settler.commits(named, is_decision=True)) as settlements:
            first = next(settlements)
            placed = self._settler.settle(
                first,
                settled,
                before=[self._tools.records(wanted)],
                after=self._finisher.done_if(wanted, is_done=len(first) == len(named)),
                guard=guard,
                flush=flush,
            )
            # Decided. Errors from here on leave a batch that is committed and not all visible.
            try:
                self._finisher.complete(
                    wanted, settlements, len(named) - len(first), settled, flush
                )
            except SettledElsewhereError:
                # Another process has begun to finish what we decided.
                lies_at = PhysicalOffset(int(placed.physical_offsets[0]))
                self._finisher.finish(LoggedDecision(wanted, lies_at), flush=flush)

    def _require_topics(self, named: NDArray[np.int64]) -> None:
        """Raise unless the topics of half messages are there, if some were deleted since.

        The first append looks at its own topics; only later ones are for this to look at. That
        reads them once more, so it is done only if there is a reason.
        """
        if len(self._settler.split(named)) == 1:
            return
        first = int(named.min())
        [place] = self._reader.entries(HALF_TOPIC, HALF_QUEUE, first, first + 1)["physical_offset"]
        deletions = Deletions.load(self._reader.root).log_ends
        if any(log_end > place for log_end in deletions.values()):
            self._settler.routes().require(self._claims.topics(named))

    def _require_decidable(
        self,
        wanted: Decision,
        named: NDArray[np.int64],
        settled: SettledHalves,
        known: _Known,
        caller: Caller,
    ) -> None:
        """Raise unless a batch may be decided now.

        A decision that came since is looked for after the half messages, and told before them: it
        may be what has settled them, and then the batch is a repeat.
        """
        settled.refresh()
        refusal = self._refusal(wanted, named, settled)
        self._require_newest(wanted.tag, known, wanted.user, caller)
        if refusal is not None:
            raise refusal

    def _require_newest(self, tag: str, known: _Known, user: str, caller: Caller) -> None:
        """Raise SettledElsewhereError if a decision came since."""
        found = (
            self._journal.decision_for(tag, caller.user),
            self._journal.decision(tag, user),
        )
        if found != known:
            raise SettledElsewhereError

    def _refusal(
        self, wanted: Decision, named: NDArray[np.int64], settled: SettledHalves
    ) -> IllegalTransitionError | None:
        """Return the error for a batch of which a half message is not open; None if all are."""
        # Apache's check-back puts a half message back as a copy and writes no op message for the
        # original: only its progress tells that it has taken over what lies before. So does ours
        # where it has come further since `settled` was made.
        is_settled = settled.are_settled(named) | (named < self._tools.progress().half_offset)
        if not is_settled.any():
            return None
        message = (
            f"{wanted.batch} can't be committed: {int(is_settled.sum())} of its {len(named)} half "
            "messages have been rolled back since, the first of them number "
            f"{int(named[is_settled.argmax()])}. Nothing of it is visible; prepare it again."
        )
        return IllegalTransitionError(message)

    # Roll back

    def abort(
        self, batch: BatchRef, receipts: Sequence[Receipt], caller: Caller, *, flush: str | None
    ) -> None:
        """Roll back what the receipts stand for, unless the batch is committed: that stays so."""
        tag = stream_tag(check_batch(batch))
        newest = self._journal.decision_for(tag, caller.user)
        if newest is not None and newest.decision.supersedes(batch):
            self._abort_repeat(newest, self._brought(batch, receipts, caller), flush)
            return
        claim = self._claims.claim(batch, receipts, caller)
        while True:
            newest = self._journal.decision_for(tag, caller.user)
            own = self._journal.decision(tag, claim.owner)
            for found in (newest, own):
                if found is not None and found.decision.supersedes(batch):
                    self._abort_repeat(found, claim, flush)
                    return
            guard = partial(self._require_newest, tag, (newest, own), claim.owner, caller)
            try:
                self.roll_back(claim.offsets, self._tools.settled(), flush=flush, guard=guard)
            except SettledElsewhereError:
                continue
            return

    def _abort_repeat(self, found: LoggedDecision, brought: Claim, flush: str | None) -> None:
        """Roll back what a decided batch did not need.

        A loss is not told here, and so not noted as told: whoever aborts has an error already, and
        Spark drops a second one. The next commit tells it, and check-back rolls back what is left.
        """
        if found.decision.is_done or self._finisher.try_finish(found):
            while not self._repeat(found, brought, flush):
                pass

    def _repeat(self, found: LoggedDecision, brought: Claim, flush: str | None) -> bool:
        """Finish a batch that is decided already, and roll back what is not of it.

        Return False if a decision came meanwhile: then it may be no repeat any more.
        """
        if not found.decision.is_done:
            self._finisher.finish(found, flush=flush)
        tag = found.decision.tag
        while True:
            # The user of what was brought along may have a decision of their own that names it.
            own = self._journal.decision(tag, brought.owner)
            if own is not None and not own.decision.is_done:
                self._finisher.finish(own, flush=flush)
                continue
            # A decision settles all that it names, so what has no op by now is of none.
            guard = partial(self._require_own, tag, own, brought.owner)
            try:
                self.roll_back(brought.offsets, self._tools.settled(), flush=flush, guard=guard)
            except SettledElsewhereError:
                return False
            return True

    def _require_own(self, tag: str, known: LoggedDecision | None, user: str) -> None:
        """Raise SettledElsewhereError if a user decided since. Runs under the store's lock."""
        if self._journal.decision(tag, user) != known:
            raise SettledElsewhereError

    def roll_back(
        self,
        offsets: NDArray[np.int64],
        settled: SettledHalves,
        *,
        flush: str | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Settle half messages without a copy, those that are not settled already."""
        left = offsets[~settled.are_settled(offsets)]
        if len(left):
            settlement = self._settler.settlement(left)
            self._settler.settle(settlement, settled, guard=guard, flush=flush)
