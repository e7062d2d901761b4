"""Batches, committed exactly once: prepare, decide, finish, roll back.

Tasks prepare half messages; one decision (decisions.py) makes those it names a committed batch. The
visible copies and the op messages that settle their half messages are appended in pieces, each of
them whole or not at all, the first together with the decision, the last with the word that it is
done:

    append 1    decision, copies, ops            from here on the batch is committed
    append 2    copies, ops
    append n    copies, ops, done

So a half message that is named and not settled still lacks its copy, and whoever comes next can
finish: the next commit of the same owner, or check-back. Two may finish at once (half_settling.py).

A batch is decided under the lock too: no decision of its owner is as new, and none of its half
messages was rolled back meanwhile. A repeat changes nothing and rolls back what it brought along.
Cost is linear in the batch and in what was decided since it was prepared, whatever the store holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.transactions.decisions import (
    DecidedAttempt,
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
from broker_core.broker.transactions.journal import is_superseded
from broker_core.broker.transactions.op import OP_QUEUE
from broker_core.broker.transactions.resolved import ResolvedHalves
from broker_core.broker.transactions.settle import SettledElsewhereError
from broker_core.codec.property_names import HALF_TOPIC, OP_TOPIC
from broker_core.errors import IllegalTransitionError, UnknownTransactionError
from broker_core.store.batch import Batch
from broker_core.types import BatchOutcome, LogicalOffset, Prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.transactions.journal import DecisionJournal
    from broker_core.broker.transactions.settle import HalfSettler, Settlement
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter
    from broker_core.types import BatchRef, Receipt

Found = tuple[Decision, int] | None
"""The newest decision of an owner and name, and where it lies."""


@dataclass(frozen=True)
class BatchTools:
    """What committing needs: the store, its journal, its half messages, and the time.

    `checked_to` says up to where check-back, ours or another broker's, has settled half messages.
    """

    reader: StoreReader
    writer: StoreWriter
    journal: DecisionJournal
    settling: HalfSettler
    checked_to: Callable[[], int]
    clock_ms: Callable[[], int]
    block_rows: int = BLOCK_ROWS


class BatchCommits:
    """See the module. Not thread-safe; several processes may each have one."""

    def __init__(self, tools: BatchTools) -> None:
        self._tools = tools
        self._reader = tools.reader
        self._writer = tools.writer
        self._journal = tools.journal
        self._settling = tools.settling

    # Prepare

    def is_decided(self, batch: BatchRef) -> bool:
        """Whether it is too late to prepare anything for a batch."""
        found = self._journal.decision(stream_tag(batch))
        return found is not None and is_superseded(found[0], batch)

    def prepare(
        self,
        batch: BatchRef,
        attempt: str,
        messages: Batch | MessageBatch,
        *,
        is_first: bool,
        flush: str | None,
    ) -> Prepared:
        """Append messages in half blocks of an attempt; say so once, with the first of them."""
        since = self._reader.queue_range(OP_TOPIC, OP_QUEUE)[1]
        if not len(messages):
            nowhere = LogicalOffset(self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)[1])
            return Prepared(nowhere, nowhere, LogicalOffset(since))
        settings, rows = self._writer.settings, self._tools.block_rows
        if isinstance(messages, Batch):
            halves = as_blocks(messages, block_bytes(settings), rows)
        else:
            limit = settings.max_message_bytes
            halves = blocks_of(messages, block_bytes(settings), rows, max_message_bytes=limit)
        parts = [halves]
        if is_first:
            parts.insert(0, self._records(DecidedAttempt(batch, attempt)))
        placed = self._writer.append(Batch.join(parts), flush=flush)
        first = int(placed.queue_offsets[len(placed.queue_offsets) - len(halves)])
        return Prepared(
            LogicalOffset(first), LogicalOffset(first + len(halves)), LogicalOffset(since)
        )

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

        IllegalTransitionError if some of it has been rolled back in the meantime: then nothing
        is committed, and the batch must be prepared again.
        """
        # Lets go of what was deleted since the last batch: as long as it is mapped, it takes space.
        self._reader.refresh()
        wanted = decide(batch, receipts, run, keep=keep)
        while True:
            found = self._journal.decision(wanted.tag)
            if found is not None and is_superseded(found[0], batch):
                self._repeat(*found, wanted, flush)
                return BatchOutcome(is_repeat=True, run=found[0].run)
            if found is not None and not found[0].is_done:
                self.finish(*found, flush=flush)
                continue
            if not wanted.count:
                return BatchOutcome(is_repeat=False, run=run)
            try:
                self._decide(wanted, found, flush)
            except SettledElsewhereError:
                continue
            return BatchOutcome(is_repeat=False, run=run)

    def _decide(self, wanted: Decision, before: Found, flush: str | None) -> None:
        """Append the decision, with the first piece of what it names, and finish it."""
        fates = ResolvedHalves(self._reader, wanted.since)
        named = offsets_in(wanted.ranges)
        self._require_open(wanted, named, fates)

        def is_still_so() -> None:
            fates.refresh()
            self._require_open(wanted, named, fates)
            self._require_same(wanted.tag, before)

        with closing(self._settling.commits(named)) as settlements:
            first = next(settlements)
            placed = self._settling.settle(
                first,
                fates,
                opening=[self._records(wanted)],
                closing=self._word(wanted, is_due=len(first) == len(named)),
                guard=is_still_so,
                flush=flush,
            )
            try:
                self._complete(wanted, settlements, len(named) - len(first), fates, flush)
            except SettledElsewhereError:
                # Others have begun to finish what we decided.
                self.finish(wanted, int(placed.physical_offsets[0]), flush=flush)

    def _word(self, decision: Decision, *, is_due: bool) -> list[Batch]:
        """The word that a decision is done."""
        return [self._records(replace(decision, is_done=True))] if is_due else []

    def _require_same(self, tag: str, before: Found) -> None:
        if self._journal.decision(tag) != before:
            raise SettledElsewhereError

    def _require_open(
        self, wanted: Decision, named: NDArray[np.int64], fates: ResolvedHalves
    ) -> None:
        start, end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)
        if int(named.min()) < start or int(named.max()) >= end:
            message = (
                f"{wanted.batch} can't be committed: the half queue holds {start} to {end}, but "
                f"half messages {int(named.min())} to {int(named.max())} were prepared for it. "
                "Prepare it again."
            )
            raise UnknownTransactionError(message)
        settled = fates.are_decided(named) | (named < self._tools.checked_to())
        if settled.any():
            message = (
                f"{wanted.batch} can't be committed: {int(settled.sum())} of its {len(named)} "
                "half messages have been rolled back since, the first of them number "
                f"{int(named[settled.argmax()])}. Nothing of it is visible; prepare it again."
            )
            raise IllegalTransitionError(message)

    # Finish

    def finish(self, decision: Decision, place: int, *, flush: str | None = None) -> None:
        """Make all that a decision names visible, as far as it is not; `place` is where it lies."""
        while not self._is_done(decision):
            fates = ResolvedHalves(self._reader, decision.since)
            named = offsets_in(decision.ranges)
            left = named[~fates.are_decided(named)]
            try:
                if not len(left):
                    word = self._word(decision, is_due=True)
                    self._settling.settle(
                        self._settling.settlement(left), fates, closing=word, flush=flush
                    )
                    return
                copied = self._settling.copied(left, place)
                with closing(self._settling.commits(left, copied)) as settlements:
                    self._complete(decision, settlements, len(left), fates, flush)
            except SettledElsewhereError:
                continue

    def _is_done(self, decision: Decision) -> bool:
        found = self._journal.decision(decision.tag)
        return found is not None and (
            found[0].is_done or found[0].batch.number > decision.batch.number
        )

    def _complete(
        self,
        decision: Decision,
        settlements: Iterator[Settlement],
        left: int,
        fates: ResolvedHalves,
        flush: str | None,
    ) -> None:
        """Append what is left of a decision, with the word that it is done at the end."""
        for settlement in settlements:
            left -= len(settlement)
            word = self._word(decision, is_due=left == 0)
            self._settling.settle(settlement, fates, closing=word, flush=flush)

    # Roll back

    def abort(self, batch: BatchRef, receipts: Sequence[Receipt], *, flush: str | None) -> None:
        """Roll back what the receipts stand for, unless the batch is committed: that stays so."""
        wanted = decide(batch, receipts, "", keep=False)
        while True:
            found = self._journal.decision(wanted.tag)
            if found is not None and is_superseded(found[0], batch):
                self._repeat(*found, wanted, flush)
                return

            def is_still_so(before: Found = found) -> None:
                self._require_same(wanted.tag, before)

            offsets = offsets_in(wanted.ranges)
            try:
                self.roll_back(offsets, wanted.since, flush=flush, guard=is_still_so)
            except SettledElsewhereError:
                continue
            return

    def _repeat(self, found: Decision, place: int, wanted: Decision, flush: str | None) -> None:
        """The batch is committed: make sure that it is finished, roll back what is not of it."""
        if not found.is_done:
            self.finish(found, place, flush=flush)
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
        guard: Callable[[], None] | None = None,
    ) -> None:
        """Settle half messages without a copy, those that are not settled already."""
        fates = ResolvedHalves(self._reader, since)
        left = offsets[~fates.are_decided(offsets)]
        if len(left):
            settlement = self._settling.settlement(left)
            self._settling.settle(settlement, fates, guard=guard, flush=flush)

    def _records(self, *records: DecidedAttempt | Decision) -> Batch:
        host = self._writer.settings.store_host
        return Batch.of_messages(self._journal.records(records, self._tools.clock_ms(), host))
