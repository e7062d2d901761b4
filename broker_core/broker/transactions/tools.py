"""The parts of one store that commits and check-back share, and its settled half messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_core.broker.transactions.half_blocks import BLOCK_ROWS
from broker_core.broker.transactions.op import SettledHalves
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from broker_core.broker.transactions.check_back_plan import CheckBackProgress
    from broker_core.broker.transactions.decision_lookup import DecisionLookup
    from broker_core.broker.transactions.decision_records import JournalRecord
    from broker_core.broker.transactions.settle import HalfSettler
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter


class BatchTools:
    """The parts that commits and check-back share: store, journal, half messages, clock.

    `progress` returns how far check-back, ours or another broker's, came in the half queue and in
    the op queue.
    """

    def __init__(
        self,
        reader: StoreReader,
        writer: StoreWriter,
        journal: DecisionLookup,
        settler: HalfSettler,
        progress: Callable[[], CheckBackProgress],
        clock_ms: Callable[[], int],
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.journal = journal
        self.settler = settler
        self.progress = progress
        self.clock_ms = clock_ms
        self.block_rows = block_rows
        self._settled: SettledHalves | None = None

    def records(self, *records: JournalRecord) -> Batch:
        """Return records of the journal as a batch to append."""
        host = self.writer.settings.store_host
        return Batch.of_messages(self.journal.records(records, self.clock_ms(), host))

    def settled(self) -> SettledHalves:
        """Return which half messages are settled, as of now.

        It is kept from call to call, so that a look costs what was settled since the last one, and
        made anew when check-back has come further.
        """
        progress = self.progress()
        known = self._settled
        if known is None or (known.since, known.first) != (
            progress.op_offset,
            progress.half_offset,
        ):
            known = SettledHalves(self.reader, progress.op_offset, progress.half_offset)
            self._settled = known
        else:
            known.refresh()
        return known
