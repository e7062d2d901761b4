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

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import count
from threading import Event
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.admission.door import Door
from broker_core.broker.delay.delivery import DelayedDelivery
from broker_core.broker.transactions.asking import Asking, OwnListeners
from broker_core.broker.transactions.check_back import CheckBack
from broker_core.broker.transactions.check_back_plan import CheckPolicy
from broker_core.broker.transactions.check_back_progress import heal_progress, read_progress
from broker_core.broker.transactions.commit import BatchCommits
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_retention import DecisionRetention
from broker_core.broker.transactions.finish import BatchFinisher
from broker_core.broker.transactions.half import (
    HALF_QUEUE,
    as_halves,
    handle_of,
    require_segment_room,
)
from broker_core.broker.transactions.half_blocks import BLOCK_ROWS
from broker_core.broker.transactions.history import CommitRequest
from broker_core.broker.transactions.ownership import NOBODY_ELSE, Caller
from broker_core.broker.transactions.settle import (
    APPEND_BYTES,
    APPEND_ROWS,
    HalfSettler,
    SettledElsewhereError,
    TopicsChangedError,
)
from broker_core.broker.transactions.tools import BatchTools
from broker_core.codec.ids import MAKER_CHARS, UniqueIds
from broker_core.codec.legal_names import check_group
from broker_core.codec.message import message_properties, single_message
from broker_core.codec.property_names import (
    BATCH_TOPIC,
    DISCARD_TOPIC,
    HALF_BLOCK,
    HALF_TOPIC,
    OP_TOPIC,
    PREPARED_BY,
    PRODUCER_GROUP,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from broker_core.errors import IllegalTransitionError, UnknownTransactionError
from broker_core.store.batch import Batch
from broker_core.types import HalfMessage, LocalTransactionState, LogicalOffset, PhysicalOffset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.api import TransactionListener
    from broker_core.broker.admin import Admin
    from broker_core.broker.catalog import Catalog
    from broker_core.broker.transactions.asking import Producer
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
log = logging.getLogger(__name__)
TOPICS = (HALF_TOPIC, OP_TOPIC, BATCH_TOPIC, DISCARD_TOPIC)


class Transactions:
    """The transactions of one store. Not thread-safe; each process may have its own.

    Whoever opened the store's files may do everything; `asked_by` makes the view of a server's
    caller. `runs_services` False leaves check-back and delayed delivery to a server's clock.
    """

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
        self.runs_services = True
        self._reader = reader
        self._writer = writer
        self._catalog = catalog
        self._door = Door(catalog, writer.settings)
        self._admin = admin
        self._clock_ms = clock_ms
        self._tools = BatchTools(
            reader,
            writer,
            DecisionLookup(reader),
            HalfSettler(
                reader,
                writer,
                clock_ms,
                lambda: catalog.table().topics,
                append_rows=append_rows,
                append_bytes=append_bytes,
            ),
            lambda: read_progress(reader),
            clock_ms,
            block_rows,
        )
        self._commits = BatchCommits(self._tools)
        self._finisher = BatchFinisher(self._tools)
        self._caller = NOBODY_ELSE
        self._own_listeners = OwnListeners()
        self._asking: Asking = self._own_listeners
        self._unique_ids = UniqueIds()
        self._turns = count()
        self._delivery = DelayedDelivery(reader, writer, catalog, self._tools.journal, clock_ms)
        self._is_healed = Event()  # shared by all views
        self._last_round_ms: int | None = None
        self._last_delivery_ms: int | None = None

    def asked_by(self, caller: Caller) -> Transactions:
        """Return these transactions as a caller sees them: what is not theirs they can't settle."""
        view = copy(self)
        view._caller = caller
        return view

    # Batches

    def is_batch_decided(self, batch: BatchRef) -> bool:
        """Return True if a batch, or a later one of its owner, is decided and needs no work."""
        return self._commits.is_decided(batch, self._caller.user)

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
        admitted = self._door.messages(messages)
        self._require_topics()
        return self._commits.prepare(
            batch,
            attempt,
            admitted,
            user=self._caller.user,
            is_first=is_first,
            flush=flush,
        )

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
        return self._commits.prepare(
            batch, attempt, records, user=self._caller.user, is_first=is_first, flush=flush
        )

    def commit_batch(
        self,
        batch: BatchRef,
        receipts: Sequence[Receipt],
        *,
        run: str = "",
        keep: bool = True,
        flush: str | None = None,
        fingerprint: str = "",
        conflict: str = "refuse",
        previous: int | None = None,
    ) -> BatchOutcome:
        """Commit what some attempts prepared; once, however often it is asked for.

        When it returns, all of it is visible. `keep` False: this batch will not be asked for again
        once this returns. IllegalTransitionError if part of it was rolled back in between;
        history.py says what `fingerprint`, `conflict` and `previous` do.
        """
        request = CommitRequest(run, keep, fingerprint, conflict, previous)
        outcome = self._commits.commit(batch, receipts, request, self._caller, flush=flush)
        if self.runs_services:
            self._run_due_services()
        return outcome

    def abort_batch(
        self,
        batch: BatchRef,
        receipts: Sequence[Receipt],
        *,
        flush: str | None = None,
    ) -> None:
        """Roll back what some attempts prepared; a batch that is committed stays committed."""
        self._commits.abort(batch, receipts, self._caller, flush=flush)

    def keep_decisions(self, physical_offset: int, *, is_locked: bool) -> None:
        """Save what is still needed of a part of the log that is about to be deleted.

        Decisions that name half messages there are finished, and open half messages of single
        transactions are put back: once without the lock, and under it for those that came since.
        The newest decision of each stream is appended again (decision_retention.py), or the stream
        is forgotten: without the lock, and for good.
        """
        self._check_back.rescue(physical_offset)
        if not is_locked:
            retention = DecisionRetention(self._tools, self._finisher.try_finish)
            retention.carry(physical_offset, self._check_back.open_attempts(physical_offset))

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
        check_group(group)
        config = self._door.topic(topic)
        turn = next(self._turns) % config.write_queues
        queue = turn if queue_id is None else config.check_queue(queue_id)
        key = self._unique_ids.make(1, self._clock_ms()).tobytes().decode("ascii")
        stored = message_properties(topic, key, tags=tags, keys=keys, properties=properties)
        stored |= {TRANSACTION_PREPARED: "true", PRODUCER_GROUP: group, TRANSACTION_ID: key}
        message = single_message(topic, queue, body, stored, self._clock_ms())
        settings = self._writer.settings
        halves = replace(as_halves(message, self._caller.user), store_host=settings.store_host)
        require_segment_room(halves, settings.commit_log_file_bytes)
        self._require_topics()
        placed = self._writer.append(halves)
        return HalfMessage(
            topic,
            queue,
            key,
            group,
            LogicalOffset(int(placed.queue_offsets[0])),
            PhysicalOffset(int(placed.physical_offsets[0])),
        )

    def end(self, half: HalfMessage, state: LocalTransactionState) -> None:
        """Commit a half message or roll it back; UNKNOWN leaves it to check-back.

        UnknownTransactionError if the handle is none of a half message that the caller prepared,
        IllegalTransitionError if it is settled already: committed, rolled back or given up.
        TopicNotFoundError and PermissionDeniedError for a commit to a topic that is gone by now, or
        not writable.
        """
        self._require_half(half)
        if state is LocalTransactionState.UNKNOWN:
            return
        offsets = np.array([half.half_offset], dtype=np.int64)
        settler = self._tools.settler
        is_commit = state is LocalTransactionState.COMMIT
        settlement = (
            next(settler.commits(offsets, is_decision=True))
            if is_commit
            else settler.settlement(offsets)
        )
        try:
            settler.settle(settlement, self._tools.settled())
        except TopicsChangedError:
            self.end(half, state)
        except SettledElsewhereError as error:
            message = (
                f"Transaction {half.transaction_id} of group {half.group} can't {state.value}: "
                f"half message {half.half_offset} is decided already, was given up, or was taken "
                "over by the check-back of another broker."
            )
            raise IllegalTransitionError(message) from error

    def _require_half(self, half: HalfMessage) -> None:
        """Raise unless a handle is, in every field, that of a half message the caller may end.

        The record decides, found by its number in the half queue: what lies at an offset of the
        log that a client names may be the inside of a message. All refusals say the same.
        """
        caller = self._caller
        record = self._half_at(half.half_offset)
        if record is not None:
            properties = record.property_map
            by = properties.get(PREPARED_BY, "")
            is_single = HALF_BLOCK not in properties and self._is_of_no_batch(record)
            may_end = caller.is_admin or caller.may_settle(by)
            if is_single and may_end and handle_of(record) == half:
                caller.require_topics([half.topic])
                return
        message = (
            f"There is no half message {half.half_offset} at physical offset "
            f"{half.physical_offset} of group {half.group} for topic {half.topic} that this user "
            "prepared."
        )
        raise UnknownTransactionError(message)

    def _half_at(self, offset: int) -> Record | None:
        """Return the half message with a number; None if there is none."""
        start, end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)
        if not start <= offset < end:
            return None
        entry = self._reader.entries(HALF_TOPIC, HALF_QUEUE, offset, offset + 1)[0]
        return self._reader.record_at(int(entry["physical_offset"]))

    def _is_of_no_batch(self, record: Record) -> bool:
        if TRANSACTION_ID in record.property_map:
            # The broker alone sets it, in single ones alone. An attempt may have their keys' id.
            return True
        key = record.property_map.get(UNIQ_KEY, "")[:MAKER_CHARS]
        return self._tools.journal.attempt(key) is None

    # Services

    def listen(self, group: str, listener: TransactionListener) -> None:
        """Let a listener answer for a producer group's half messages when they are checked."""
        self._own_listeners.listeners[group] = listener

    def check_back(self, asking: Asking | None = None) -> CheckBackReport:
        """Look after all half messages that are open: one round, now.

        `asking` reaches the listeners of a server; otherwise those of `listen` are asked.
        """
        self._require_topics()
        self._asking = asking or self._own_listeners
        self._last_round_ms = self._clock_ms()
        return self._check_back.round(self._last_round_ms)

    def deliver_due(self) -> int:
        """Deliver the delayed messages that are due; return how many."""
        self._require_topics()
        self._last_delivery_ms = self._clock_ms()
        return self._delivery.deliver_due()

    def _run_due_services(self) -> None:
        """Run check-back and delayed delivery of the whole store, if their intervals are over.

        An embedded broker has no thread that could run them by the clock, and a store that only a
        Spark query writes to must be looked after too: its first commit does it, and then at most
        one an interval. What fails here changes no commit's answer: the batch is visible.
        """
        interval_ms = self._writer.settings.transaction_check_interval_ms
        services: list[tuple[str, int | None, int, Callable[[], object]]] = [
            ("check_back", self._last_round_ms, interval_ms, self.check_back),
            ("delayed_delivery", self._last_delivery_ms, _DELIVERY_INTERVAL_MS, self.deliver_due),
        ]
        for name, last_ms, every_ms, run in services:
            if self._is_due(last_ms, every_ms):
                try:
                    run()
                except Exception:
                    log.warning("event=service_failed service=%s", name, exc_info=True)

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
            batch_patience_ms=settings.transaction_batch_timeout_ms,
        )
        return CheckBack(self._tools, self._finisher, policy, self._ask, self._rooms)

    def _rooms(self, producers: Sequence[Producer], wanted: Sequence[int]) -> list[int]:
        """Return how many questions about half messages can be asked now."""
        return self._asking.rooms(producers, wanted)

    def _ask(self, offsets: NDArray[np.int64]) -> None:
        """Ask about half messages that were just put back, and end them accordingly."""
        for frames in self._tools.settler.frames(offsets):
            for physical_offset in (frames.starts + (frames.origin or 0)).tolist():
                self._ask_about(self._reader.record_at(physical_offset))

    def _ask_about(self, record: Record) -> None:
        half = handle_of(record)
        if half is None:
            return
        try:
            self.end(half, self._asking.ask(half, record))
        except Exception:
            # One listener's error must not keep the others from being asked; a later round asks
            # about this one again.
            log.warning("event=check_failed group=%s", half.group, exc_info=True)

    def _require_topics(self) -> None:
        known = self._catalog.table().topics
        missing = [topic for topic in TOPICS if topic not in known]
        if missing:
            self._admin.create_own_topics(missing)
        if not self._is_healed.is_set():
            # Once, and before the half queue grows to where a wrong one would be believed.
            heal_progress(self._reader, self._writer, self._clock_ms())
            self._is_healed.set()
