"""Finishing: makes all that a decision names visible, and notes that it is done.

What a decision names and no op message settles still lacks its copies. So any process can finish:
the next commit of the same owner, a repeat, check-back and retention. Two may do it at once; each
append checks under the store's lock that no other has settled its half messages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from broker_core.broker.transactions.decision_records import Decision, offsets_in
from broker_core.broker.transactions.half import HALF_QUEUE
from broker_core.broker.transactions.op import SettledHalves
from broker_core.broker.transactions.settle import SettledElsewhereError
from broker_core.codec.property_names import HALF_TOPIC
from broker_core.errors import BatchLostError, CorruptRecordError, StorageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.transactions.decision_lookup import LoggedDecision
    from broker_core.broker.transactions.settle import Settlement
    from broker_core.broker.transactions.tools import BatchTools
    from broker_core.store.batch import Batch

log = logging.getLogger(__name__)


class BatchFinisher:
    """Finishes the decisions of one store. Not thread-safe; each process may have its own."""

    def __init__(self, tools: BatchTools) -> None:
        self._tools = tools
        self._reader = tools.reader
        self._journal = tools.journal
        self._settler = tools.settler

    def finish(
        self, found: LoggedDecision, *, flush: str | None = None, is_owner: bool = True
    ) -> None:
        """Make all that a decision names visible, as far as it is not, and note that it is done.

        BatchLostError if some of its half messages are gone: once, and to the owner of the batch.
        Others make visible what is left, and leave the loss to be told.
        """
        decision = found.decision
        while not self._is_done(decision):
            self._require_possible(found)
            named = offsets_in(decision.ranges)
            settled = SettledHalves(self._reader, decision.since, int(named.min(initial=0)))
            left = named[~settled.are_settled(named)]
            gone = left < self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)[0]
            try:
                if gone.any():
                    self._lose(found, left[~gone], int(gone.sum()), flush, is_owner=is_owner)
                if not len(left):
                    self._settler.settle(
                        self._settler.settlement(left),
                        settled,
                        after=self.done_if(decision, is_done=True),
                        flush=flush,
                    )
                    return
                copied = self._settler.copied(left, found.physical_offset)
                with closing(self._settler.commits(left, copied)) as settlements:
                    self.complete(decision, settlements, len(left), settled, flush)
            except SettledElsewhereError:
                continue

    def try_finish(self, found: LoggedDecision) -> bool:
        """Finish a decision; tell whether it is done. If it can't be, the log has a line.

        An odd decision, or one about odd half messages (of an older release, or another broker),
        must not keep those of others from being finished, nor retention from its work. Whatever is
        wrong with the disk or the lock is raised: it is wrong for all, and may be over soon.
        """
        try:
            self.finish(found, is_owner=False)
        except Exception as error:
            is_of_all = isinstance(error, OSError | StorageError)
            if is_of_all and not isinstance(error, CorruptRecordError):
                raise
            batch = found.decision.batch
            log.warning("event=decision_not_finished batch=%s error=%s", batch, error)
        return self._is_done(found.decision)

    def _require_possible(self, found: LoggedDecision) -> None:
        """Raise CorruptRecordError for a decision that names what the half queue never held.

        Before memory is taken for what it names.
        """
        decision = found.decision
        end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)[1]
        if decision.count <= end and all(
            0 <= first <= last <= end for first, last in decision.ranges
        ):
            return
        message = (
            f"The decision at physical offset {found.physical_offset} about {decision.batch} names "
            f"{decision.count} half messages, not all of which are among the {end} of the store. "
            "Run `rocketmq-broker check` on the store."
        )
        raise CorruptRecordError(message, "", found.physical_offset)

    def _lose(
        self,
        found: LoggedDecision,
        left: NDArray[np.int64],
        gone: int,
        flush: str | None,
        *,
        is_owner: bool,
    ) -> NoReturn:
        """Make visible what is left of a decision and tell the loss; to its owner it is done."""
        decision = found.decision
        settled = self._tools.settled()
        if len(left):
            copied = self._settler.copied(left, found.physical_offset)
            # With one more to come it is never done.
            count = len(left) + (not is_owner)
            with closing(self._settler.commits(left, copied)) as settlements:
                self.complete(decision, settlements, count, settled, flush)
        elif is_owner:
            nothing = self._settler.settlement(left)
            done = self.done_if(decision, is_done=True)
            self._settler.settle(nothing, settled, after=done, flush=flush)
        message = (
            f"{decision.batch} was committed, but {gone} of its {decision.count} half messages "
            "were deleted with the log before they were visible: they are lost. What was left is "
            "visible now, and the next batch can be committed. Keep the log for longer "
            "(fileReservedTime) than a batch may wait to be finished."
        )
        raise BatchLostError(message)

    def _is_done(self, decision: Decision) -> bool:
        newest = self._journal.decision(decision.tag, decision.user)
        # Another decision says so too: none is made before the one before it is done.
        return newest is not None and (
            newest.decision.is_done or newest.decision.ranges != decision.ranges
        )

    def complete(
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
            done = self.done_if(decision, is_done=left == 0)
            self._settler.settle(settlement, settled, after=done, flush=flush)

    def done_if(self, decision: Decision, *, is_done: bool) -> list[Batch]:
        """Return the record that a decision is done, if it is with the append it belongs to."""
        return [self._tools.records(replace(decision, is_done=True))] if is_done else []
