"""Batches, committed exactly once: prepare, decide, finish, repeat, roll back.

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
messages was rolled back since it was prepared. A repeat changes nothing and rolls back what it
brought along. Cost is linear in the batch and in what was settled since it was prepared, whatever
the store holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.transactions.decision_lookup import LoggedDecision
from broker_core.broker.transactions.decision_records import (
    BatchAttempt,
    Decision,
    decide,
    offsets_in,
    stream_tag,
)
from broker_core.broker.transactions.half import HALF_QUEUE
from broker_core.broker.transactions.half_blocks import (
    BLOCK_ROWS,
    as_blocks,
    block_bytes,
    blocks_of,
)
from broker_core.broker.transactions.op import OP_QUEUE, SettledHalves
from broker_core.broker.transactions.settle import SettledElsewhereError
from broker_core.codec.property_names import HALF_TOPIC, OP_TOPIC
from broker_core.errors import IllegalTransitionError, UnknownTransactionError
from broker_core.store.batch import Batch
from broker_core.types import BatchOutcome, LogicalOffset, PhysicalOffset, Prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.transactions.decision_lookup import DecisionLookup
    from broker_core.broker.transactions.settle import Guard, HalfSettler, Settlement
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter
    from broker_core.types import BatchRef, Receipt


@dataclass(frozen=True)
class BatchTools:
    """The parts that commits and check-back share: store, journal, half messages, clock.

    `checked_to` returns the half offset up to which check-back, ours or another broker's, has
    settled or taken over half messages.
    """

    reader: StoreReader
    writer: StoreWriter
    journal: DecisionLookup
    settler: HalfSettler
    checked_to: Callable[[], int]
    clock_ms: Callable[[], int]
    block_rows: int = BLOCK_ROWS


class BatchCommits:
    """Prepares, commits and rolls back batches. Not thread-safe; each process may have its own."""

    def __init__(self, tools: BatchTools) -> None:
        self._tools = tools
        self._reader = tools.reader
        self._writer = tools.writer
        self._journal = tools.journal
        self._settler = tools.settler

    # Prepare

    def is_decided(self, batch: BatchRef) -> bool:
        """Tell whether it is too late to prepare anything for a batch."""
        found = self._journal.decision(stream_tag(batch))
        return found is not None and found.decision.supersedes(batch)

    def prepare(
        self,
        batch: BatchRef,
        attempt: str,
        messages: Batch | MessageBatch,
        *,
        is_first: bool,
        flush: str | None,
    ) -> Prepared:
        """Append messages in half blocks of an attempt, with its record if these are its first."""
        # Read before the append: op messages before this offset can't be about these halves.
        since = self._reader.queue_range(OP_TOPIC, OP_QUEUE)[1]
        if not len(messages):
            end = LogicalOffset(self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)[1])
            return Prepared(end, end, LogicalOffset(since))
        halves = self._blocks(messages)
        parts = [halves]
        if is_first:
            parts.insert(0, self._records(BatchAttempt(batch, attempt)))
        placed = self._writer.append(Batch.join(parts), flush=flush)
        first = int(placed.queue_offsets[len(placed.queue_offsets) - len(halves)])
        return Prepared(
            LogicalOffset(first), LogicalOffset(first + len(halves)), LogicalOffset(since)
        )

    def _blocks(self, messages: Batch | MessageBatch) -> Batch:
        """Return half blocks that hold these messages, encoded already or not."""
        settings, rows = self._writer.settings, self._tools.block_rows
        if isinstance(messages, Batch):
            return as_blocks(messages, block_bytes(settings), rows)
        limit = settings.max_message_bytes
        return blocks_of(messages, block_bytes(settings), rows, max_message_bytes=limit)

    # Decide

    def commit(
        self,
        batch: BatchRef,
        receipts: Sequence[Receipt],
        *,
        run: str,
        keep: bool,
        flush: str | None,
    ) -> BatchOutcome:
        """Commit what the receipts stand for, unless this batch or a later one is committed.

        IllegalTransitionError if some of it has been rolled back since it was prepared: then
        nothing is committed, and the batch must be prepared again.
        """
        # Lets go of what was deleted since the last batch: as long as it is mapped, it takes space.
        self._reader.refresh()
        wanted = decide(batch, receipts, run, keep=keep)
        while True:
            newest = self._journal.decision(wanted.tag)
            if newest is not None and newest.decision.supersedes(batch):
                self._repeat(newest, wanted, flush)
                return BatchOutcome(is_repeat=True, run=newest.decision.run)
            if newest is not None and not newest.decision.is_done:
                # An earlier batch comes first: the newest decision must be all that is open.
                self.finish(newest, flush=flush)
                continue
            if not wanted.count:
                # An empty batch leaves no trace in the log.
                return BatchOutcome(is_repeat=False, run=run)
            try:
                self._decide(wanted, newest, flush)
            except SettledElsewhereError:
                continue
            return BatchOutcome(is_repeat=False, run=run)

    def _decide(self, wanted: Decision, newest: LoggedDecision | None, flush: str | None) -> None:
        """Append the decision with the first copies and ops of what it names, then the rest.

        SettledElsewhereError, with nothing written, if `newest` is not the owner's newest any more.
        """
        settled = SettledHalves(self._reader, wanted.since)
        named = offsets_in(wanted.ranges)
        # Once without the lock, to be refused before the copies are made, and once under it.
        self._require_open(wanted, named, settled)
        guard = partial(self._require_decidable, wanted, named, settled, newest)
        with closing(self._settler.commits(named)) as settlements:
            first = next(settlements)
            placed = self._settler.settle(
                first,
                settled,
                before=[self._records(wanted)],
                after=self._done_if(wanted, is_done=len(first) == len(named)),
                guard=guard,
                flush=flush,
            )
            # Decided. Errors from here on leave a batch that is committed and not all visible.
            try:
                self._complete(wanted, settlements, len(named) - len(first), settled, flush)
            except SettledElsewhereError:
                # Another process has begun to finish what we decided.
                lies_at = PhysicalOffset(int(placed.physical_offsets[0]))
                self.finish(LoggedDecision(wanted, lies_at), flush=flush)

    def _require_decidable(
        self,
        wanted: Decision,
        named: NDArray[np.int64],
        settled: SettledHalves,
        newest: LoggedDecision | None,
    ) -> None:
        """Raise unless a batch may be decided now. Runs under the store's lock."""
        settled.refresh()
        self._require_open(wanted, named, settled)
        self._require_newest(wanted.tag, newest)

    def _require_newest(self, tag: str, newest: LoggedDecision | None) -> None:
        """Raise SettledElsewhereError if a decision came since. Runs under the store's lock."""
        if self._journal.decision(tag) != newest:
            raise SettledElsewhereError

    def _require_open(
        self, wanted: Decision, named: NDArray[np.int64], settled: SettledHalves
    ) -> None:
        """Raise unless all half messages that are named are there, and open."""
        start, end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)
        if int(named.min()) < start or int(named.max()) >= end:
            message = (
                f"{wanted.batch} can't be committed: the half queue holds {start} to {end}, but "
                f"half messages {int(named.min())} to {int(named.max())} were prepared for it. "
                "Prepare it again."
            )
            raise UnknownTransactionError(message)
        # Apache's check-back puts a half message back as a copy and writes no op message for the
        # original: only its progress tells that it has taken over what lies before.
        is_settled = settled.are_settled(named) | (named < self._tools.checked_to())
        if is_settled.any():
            message = (
                f"{wanted.batch} can't be committed: {int(is_settled.sum())} of its {len(named)} "
                "half messages have been rolled back since, the first of them number "
                f"{int(named[is_settled.argmax()])}. Nothing of it is visible; prepare it again."
            )
            raise IllegalTransitionError(message)

    # Finish

    def finish(self, found: LoggedDecision, *, flush: str | None = None) -> None:
        """Make all that a decision names visible, as far as it is not, and note that it is done."""
        decision = found.decision
        while not self._is_done(decision):
            settled = SettledHalves(self._reader, decision.since)
            named = offsets_in(decision.ranges)
            left = named[~settled.are_settled(named)]
            try:
                if not len(left):
                    self._settler.settle(
                        self._settler.settlement(left),
                        settled,
                        after=self._done_if(decision, is_done=True),
                        flush=flush,
                    )
                    return
                copied = self._settler.copied(left, found.physical_offset)
                with closing(self._settler.commits(left, copied)) as settlements:
                    self._complete(decision, settlements, len(left), settled, flush)
            except SettledElsewhereError:
                continue

    def _is_done(self, decision: Decision) -> bool:
        newest = self._journal.decision(decision.tag)
        # A later decision says so too: none is made before the one before it is done.
        return newest is not None and (
            newest.decision.is_done or newest.decision.batch.number > decision.batch.number
        )

    def _complete(
        self,
        decision: Decision,
        settlements: Iterator[Settlement],
        left: int,
        settled: SettledHalves,
        flush: str | None,
    ) -> None:
        """Append the settlements of `left` half messages; the last says that all is done."""
        for settlement in settlements:
            left -= len(settlement)
            done = self._done_if(decision, is_done=left == 0)
            self._settler.settle(settlement, settled, after=done, flush=flush)

    def _done_if(self, decision: Decision, *, is_done: bool) -> list[Batch]:
        """Return the record that a decision is done, if it is with the append it belongs to."""
        return [self._records(replace(decision, is_done=True))] if is_done else []

    # Roll back

    def abort(self, batch: BatchRef, receipts: Sequence[Receipt], *, flush: str | None) -> None:
        """Roll back what the receipts stand for, unless the batch is committed: that stays so."""
        wanted = decide(batch, receipts, "", keep=False)
        offsets = offsets_in(wanted.ranges)
        while True:
            newest = self._journal.decision(wanted.tag)
            if newest is not None and newest.decision.supersedes(batch):
                self._repeat(newest, wanted, flush)
                return
            guard = partial(self._require_newest, wanted.tag, newest)
            try:
                self.roll_back(offsets, wanted.since, flush=flush, guard=guard)
            except SettledElsewhereError:
                continue
            return

    def _repeat(self, found: LoggedDecision, wanted: Decision, flush: str | None) -> None:
        """Finish a batch that is decided already, and roll back what is not of it."""
        if not found.decision.is_done:
            self.finish(found, flush=flush)
        brought = offsets_in(wanted.ranges)
        # A decision settles all that it names, so what has no op by now is not of it.
        while True:
            try:
                self.roll_back(brought, wanted.since, flush=flush)
            except SettledElsewhereError:
                continue
            return

    def roll_back(
        self,
        offsets: NDArray[np.int64],
        since: int,
        *,
        flush: str | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Settle half messages without a copy, those that are not settled already."""
        settled = SettledHalves(self._reader, since)
        left = offsets[~settled.are_settled(offsets)]
        if len(left):
            settlement = self._settler.settlement(left)
            self._settler.settle(settlement, settled, guard=guard, flush=flush)

    def _records(self, *records: BatchAttempt | Decision) -> Batch:
        """Return records of the journal as a batch to append."""
        host = self._writer.settings.store_host
        return Batch.of_messages(self._journal.records(records, self._tools.clock_ms(), host))
