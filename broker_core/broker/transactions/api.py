"""Transactions of one store, as callers see them: single messages, whole batches, check-back.

This is `broker.transactions` of a broker over local files (`BrokerTransactions` in
broker_core/api.py says what holds for every kind). The package's docstring tells how a batch is
committed exactly once.

    batches           prepare_batch, commit_batch, abort_batch     commit.py and what it names
    single messages   prepare, end                                 half.py, settle.py
    services          check_back, deliver_due                      check_back.py, delay/delivery.py

The system topics this needs are created when they are first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.delay.delivery import DelayedDelivery
from broker_core.broker.transactions.check_back import CheckBack, read_progress
from broker_core.broker.transactions.check_back_plan import CheckPolicy
from broker_core.broker.transactions.commit import BatchCommits, BatchTools
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.half import as_halves
from broker_core.broker.transactions.half_blocks import BLOCK_ROWS
from broker_core.broker.transactions.op import OP_QUEUE, SettledHalves
from broker_core.broker.transactions.settle import (
    APPEND_BYTES,
    APPEND_ROWS,
    HalfSettler,
    SettledElsewhereError,
)
from broker_core.codec.ids import UniqueIds
from broker_core.codec.message import message_properties, single_message
from broker_core.codec.property_names import (
    BATCH_TOPIC,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
)
from broker_core.errors import (
    BrokerError,
    IllegalTransitionError,
    TransactionError,
    UnknownTransactionError,
)
from broker_core.store.batch import Batch
from broker_core.types import HalfMessage, LocalTransactionState, LogicalOffset, PhysicalOffset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.api import TransactionListener
    from broker_core.broker.admin import Admin
    from broker_core.broker.catalog import Catalog
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.codec.record import Record
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter
    from broker_core.types import (
        BatchOutcome,
        BatchRef,
        CheckBackReport,
        Prepared,
        Receipt,
    )

_DELIVERY_INTERVAL_MS = 1000
TOPICS = (HALF_TOPIC, OP_TOPIC, BATCH_TOPIC, DISCARD_TOPIC)


class Transactions:
    """The transactions of one store. Not thread-safe; each process may have its own."""

    def __init__(
        self,
        reader: StoreReader,
        writer: StoreWriter,
        catalog: Catalog,
        admin: Admin,
        clock_ms: Callable[[], int],
        *,
        append_rows: int = APPEND_ROWS,
        append_bytes: int = APPEND_BYTES,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._catalog = catalog
        self._admin = admin
        self._clock_ms = clock_ms
        self._tools = BatchTools(
            reader,
            writer,
            DecisionLookup(reader),
            HalfSettler(
                reader, writer, clock_ms, append_rows=append_rows, append_bytes=append_bytes
            ),
            lambda: read_progress(reader.root).half_offset,
            clock_ms,
            block_rows,
        )
        self._commits = BatchCommits(self._tools)
        self._listeners: dict[str, TransactionListener] = {}
        self._unique_ids = UniqueIds()
        self._turn = 0
        self._delivery = DelayedDelivery(reader, writer, catalog, self._tools.journal, clock_ms)
        self._last_round_ms: int | None = None
        self._last_delivery_ms: int | None = None

    # Batches

    def is_batch_decided(self, batch: BatchRef) -> bool:
        """Return True if a batch, or a later one of its owner, is decided and needs no work."""
        return self._commits.is_decided(batch)

    def prepare_batch(
        self,
        batch: BatchRef,
        attempt: str,
        messages: MessageBatch,
        *,
        is_first: bool,
        flush: str | None = None,
    ) -> Prepared:
        """Store messages of one attempt at a part of a batch, in half blocks.

        Their unique keys begin with `attempt`, which no other attempt ever uses, and their
        properties say that they are transactional. `is_first`: the attempt has none yet.
        """
        self._require_topics()
        stored = replace(messages, store_host=self._writer.settings.store_host)
        return self._commits.prepare(batch, attempt, stored, is_first=is_first, flush=flush)

    def prepare_records(
        self,
        batch: BatchRef,
        attempt: str,
        records: Batch,
        *,
        is_first: bool,
        flush: str | None = None,
    ) -> Prepared:
        """Store messages as `prepare_batch` does; these came encoded, from another machine."""
        self._require_topics()
        return self._commits.prepare(batch, attempt, records, is_first=is_first, flush=flush)

    def commit_batch(
        self,
        batch: BatchRef,
        receipts: Sequence[Receipt],
        *,
        run: str = "",
        keep: bool = True,
        flush: str | None = None,
    ) -> BatchOutcome:
        """Commit what some attempts prepared; once, however often it is asked for.

        When it returns, all of it is visible. `keep` False: this batch will not be asked for again
        once this returns. IllegalTransitionError if part of it was rolled back in between.
        """
        outcome = self._commits.commit(batch, receipts, run=run, keep=keep, flush=flush)
        # Not part of the commit. An embedded broker has no thread that could run services by the
        # clock, and a store that only a Spark query writes to must be looked after too.
        self._run_due_services()
        return outcome

    def abort_batch(
        self, batch: BatchRef, receipts: Sequence[Receipt], *, flush: str | None = None
    ) -> None:
        """Roll back what some attempts prepared; a batch that is committed stays committed."""
        self._commits.abort(batch, receipts, flush=flush)

    def keep_decisions(self, physical_offset: int) -> None:
        """Append again the decisions that are still needed from a part of the log to be deleted."""
        needed = self._tools.journal.needed(physical_offset)
        if needed:
            host = self._writer.settings.store_host
            self._writer.append(self._tools.journal.records(needed, self._clock_ms(), host))

    # Single messages

    def prepare(
        self,
        topic: str,
        body: bytes,
        *,
        group: str,
        tags: str | None = None,
        keys: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
    ) -> HalfMessage:
        """Append one half message for a producer group; `end` settles it."""
        self._require_topics()
        config = self._catalog.config(topic)
        self._turn += 1
        queue = self._turn % config.write_queues if queue_id is None else queue_id
        key = self._unique_ids.make(1, self._clock_ms()).tobytes().decode("ascii")
        stored = message_properties(topic, key, tags=tags, keys=keys, properties=properties)
        stored |= {TRANSACTION_PREPARED: "true", PRODUCER_GROUP: group, TRANSACTION_ID: key}
        message = single_message(topic, queue, body, stored, self._clock_ms())
        host = self._writer.settings.store_host
        # Read before the append: op messages before this offset can't be about this one.
        since = self._reader.queue_range(OP_TOPIC, OP_QUEUE)[1]
        placed = self._writer.append(replace(as_halves(message), store_host=host))
        return HalfMessage(
            topic,
            queue,
            key,
            group,
            LogicalOffset(int(placed.queue_offsets[0])),
            PhysicalOffset(int(placed.physical_offsets[0])),
            LogicalOffset(since),
        )

    def end(self, half: HalfMessage, state: LocalTransactionState) -> None:
        """Commit a half message or roll it back; UNKNOWN leaves it to check-back.

        UnknownTransactionError if it is none of the group's, IllegalTransitionError if it is
        settled already: committed, rolled back or given up.
        """
        self._require_half(half)
        if state is LocalTransactionState.UNKNOWN:
            return
        offsets = np.array([half.half_offset], dtype=np.int64)
        settled = SettledHalves(self._reader, half.since)
        settler = self._tools.settler
        is_commit = state is LocalTransactionState.COMMIT
        settlement = next(settler.commits(offsets)) if is_commit else settler.settlement(offsets)
        try:
            settler.settle(settlement, settled)
        except SettledElsewhereError as error:
            message = (
                f"Transaction {half.transaction_id} of group {half.group} can't {state.value}: "
                f"half message {half.half_offset} is decided already, or was given up."
            )
            raise IllegalTransitionError(message) from error

    def _require_half(self, half: HalfMessage) -> None:
        """Raise unless a handle is that of a half message which this broker may settle."""
        where = f"half message {half.half_offset} at physical offset {half.physical_offset}"
        try:
            record = self._reader.record_at(half.physical_offset)
        except BrokerError as error:
            message = f"There is no {where}: {error}"
            raise UnknownTransactionError(message) from error
        found = (record.topic, record.queue_offset, record.property_map.get(PRODUCER_GROUP))
        if found != (HALF_TOPIC, half.half_offset, half.group):
            message = (
                f"There is no {where} of group {half.group}: message {record.queue_offset} of "
                f"{record.topic}, group {found[2]}, lies there."
            )
            raise UnknownTransactionError(message)
        if half.half_offset < self._tools.checked_to():
            # Passed by check-back without an op message: Apache's broker put it back as a copy,
            # and asks about that one.
            settled = SettledHalves(self._reader, half.since)
            if not settled.are_settled(np.array([half.half_offset])).any():
                message = f"Check-back of another broker took over {where}; it answers for it now."
                raise IllegalTransitionError(message)

    # Services

    def listen(self, group: str, listener: TransactionListener) -> None:
        """Let a listener answer for a producer group's half messages when they are checked."""
        self._listeners[group] = listener

    def check_back(self) -> CheckBackReport:
        """Look after all half messages that are open: one round, now."""
        self._require_topics()
        self._last_round_ms = self._clock_ms()
        return self._check_back.round(self._last_round_ms)

    def deliver_due(self) -> int:
        """Deliver the delayed messages that are due; return how many."""
        self._require_topics()
        self._last_delivery_ms = self._clock_ms()
        return self._delivery.deliver_due()

    def _run_due_services(self) -> None:
        """Run check-back and delayed delivery of the whole store, if their intervals are over.

        A server runs both by the clock (service/main.py). For an embedded broker this is the only
        time they run by themselves: its first commit, and then at most once an interval.
        """
        if self._is_due(self._last_round_ms, self._writer.settings.transaction_check_interval_ms):
            self.check_back()
        if self._is_due(self._last_delivery_ms, _DELIVERY_INTERVAL_MS):
            self.deliver_due()

    def _is_due(self, last_ms: int | None, interval_ms: int) -> bool:
        return last_ms is None or not 0 <= self._clock_ms() - last_ms < interval_ms

    @cached_property
    def _check_back(self) -> CheckBack:
        settings = self._writer.settings
        policy = CheckPolicy(
            timeout_ms=settings.transaction_timeout_ms,
            interval_ms=settings.transaction_check_interval_ms,
            max_checks=settings.transaction_check_max,
            reserved_ms=settings.file_reserved_hours * 3_600_000,
        )
        return CheckBack(self._tools, self._commits, policy, self._ask)

    def _ask(self, offsets: NDArray[np.int64], since: int) -> None:
        """Ask listeners about half messages that were just put back, and end them accordingly."""
        for frames in self._tools.settler.frames(offsets):
            for physical_offset in (frames.starts + (frames.origin or 0)).tolist():
                self._ask_about(self._reader.record_at(physical_offset), since)

    def _ask_about(self, record: Record, since: int) -> None:
        properties = record.property_map
        listener = self._listeners.get(properties.get(PRODUCER_GROUP, ""))
        if listener is not None:
            half = half_of(record, since)
            self.end(half, listener.check_local_transaction(half, record.plain_body, properties))

    def _require_topics(self) -> None:
        known = self._catalog.table().topics
        for topic in TOPICS:
            if topic not in known:
                self._admin.create_topic(topic, 1, exist_ok=True)


def half_of(record: Record, since: int) -> HalfMessage:
    """Return the handle of a half message that was read back from the log."""
    properties = record.property_map
    try:
        return HalfMessage(
            properties[REAL_TOPIC],
            int(properties[REAL_QUEUE_ID]),
            record.msg_id,
            properties[PRODUCER_GROUP],
            LogicalOffset(record.queue_offset),
            PhysicalOffset(record.physical_offset),
            LogicalOffset(since),
        )
    except (KeyError, ValueError) as error:
        message = f"The record at physical offset {record.physical_offset} is no half message."
        raise TransactionError(message) from error
