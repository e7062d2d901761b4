"""The broker over a store's files in this process: topics, offsets, reading, sending, transactions.

It is what `open_broker("file:/path")` returns, and what a server's calls work with
(service/broker_pool.py: a pool of them, which share one writer). It composes the rooms of this
package, and adds the choice of queues:

    topics, offsets   catalog.py reads, admin.py changes
    pull, read        store/reader.py, filter/pipeline.py
    query, message    query.py
    send, append      admission/, store/writer.py
    transactions      transactions/

Reading maps the files and takes no lock; it sees what consume queues show, as soon as a writer has
put it there. Writing takes the store's lock for each call (store/writer.py), so several processes
may hold a store open with mode="rw" and take turns. With mode="r" nothing is ever created or
changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.api import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_ROWS,
    DEFAULT_QUERY_LIMIT,
    require_batch_limits,
)
from broker_core.broker.admin import Admin, load_consumer_offsets
from broker_core.broker.catalog import Catalog
from broker_core.clock import now_ms
from broker_core.codec.legal_names import check_group
from broker_core.errors import RequestError
from broker_core.store.format_check import require_log, require_store
from broker_core.store.io.files import storage_error
from broker_core.store.reader import StoreReader
from broker_core.store.settings import StoreSettings
from broker_core.types import (
    Closing,
    LogicalOffset,
    OffsetRange,
    QueueRef,
    SendResult,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.broker.admission.door import Door
    from broker_core.broker.send import Sender
    from broker_core.broker.transactions.api import Transactions
    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.filter.pipeline import FilterCount, MessageFilter, Pipeline
    from broker_core.filter.registered import Registrations
    from broker_core.store.recovery.plan import Progress
    from broker_core.store.writer import StoreWriter
    from broker_core.types import AppendResult, TopicInfo


class EmbeddedBroker(Closing):
    """A Broker (broker_core/api.py) over a store on this machine. Not thread-safe.

    `is_served`: a server runs check-back and delayed delivery by its clock, so commits do not. Its
    callers are not told of topics that they may have no right on.
    """

    def __init__(
        self,
        address: str,
        reader: StoreReader,
        writer: StoreWriter | None = None,
        *,
        clock_ms: Callable[[], int] = now_ms,
        is_served: bool = False,
    ) -> None:
        self._is_served = is_served
        self._address = address
        self.reader = reader
        self._writer = writer
        self._clock_ms = clock_ms
        self.catalog = Catalog(reader, is_served=is_served)
        if writer is not None:
            writer.before_delete = self.transactions.keep_decisions

    @classmethod
    def open(
        cls,
        address: str,
        root: Path,
        *,
        mode: str = "r",
        create: bool = False,
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> EmbeddedBroker:
        """Open the store at `root`; see broker_core.open_broker.

        With mode="rw" a store that was not closed cleanly is recovered first, and `progress` is
        told how far that is.
        """
        settings = StoreSettings.load(config)
        try:
            if mode == "r":
                require_store(root, settings.commit_log_directories(root))
                require_log(root, settings.commit_log_directories(root))
                agree = settings.agreeing_with if settings.given else settings.with_remembered
                return cls(address, StoreReader(root, agree(root), progress=progress))
            from broker_core.store.session import SessionOptions
            from broker_core.store.writer import StoreWriter

            options = SessionOptions(progress=progress)
            writer = StoreWriter.open(root, settings, create=create, options=options)
        except OSError as error:
            raise storage_error(error, "open the store", root) from error
        return cls(address, StoreReader(root, writer.settings), writer)

    @property
    def address(self) -> str:
        """The address it was opened with."""
        return self._address

    @property
    def is_in_place(self) -> bool:
        """True if the store is still the one at its path, not deleted nor replaced by another."""
        return self.reader.is_in_place

    @property
    def writer(self) -> StoreWriter:
        """The store's writer; RequestError if the broker was opened for reading."""
        if self._writer is None:
            message = (
                f"The store at {self.reader.root} was opened with mode='r', which changes nothing; "
                f"open it with mode='rw' to write."
            )
            raise RequestError(message)
        return self._writer

    def close(self) -> None:
        """Flush what was written and give back files; batches handed out stay valid."""
        if self._writer is not None:
            self._writer.close()
        self.reader.close()

    # Topics

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        self.reader.refresh()
        return self.catalog.names()

    def describe(self, topic: str) -> TopicInfo:
        """Return what there is to know of a topic."""
        self.reader.refresh()
        return self.catalog.describe(topic)

    def create_topic(self, topic: str, queues: int = 4, *, exist_ok: bool = False) -> TopicInfo:
        """Make a topic; TopicExistsError unless `exist_ok`, which leaves one as it is."""
        self._admin.create_topic(topic, queues, exist_ok=exist_ok)
        return self.describe(topic)

    def add_queues(self, topic: str, total: int) -> TopicInfo:
        """Let a topic have `total` queues; only growth is allowed."""
        self._admin.add_queues(topic, total)
        return self.describe(topic)

    def delete_topic(self, topic: str) -> None:
        """Forget a topic, its queues and groups' offsets in it; its records stay in the log."""
        self._admin.delete_topic(topic)

    @property
    def _admin(self) -> Admin:
        return Admin(self.catalog, self.writer, self._clock_ms)

    # Offsets

    def offsets(self, topic: str) -> dict[QueueRef, tuple[LogicalOffset, LogicalOffset]]:
        """Return (min, max) of every readable queue; they are equal for one without messages."""
        self.reader.refresh()
        config = self.catalog.config(topic)
        held = set(self.catalog.queue_ids(topic))
        found = {}
        for queue_id in self.catalog.readable_ids(topic, config):
            if queue_id in held:
                bounds = self.reader.queue_range(topic, queue_id)
            else:
                bounds = (self.reader.queue_origin(topic, queue_id),) * 2
            ref = self.catalog.ref(topic, queue_id)
            found[ref] = (LogicalOffset(bounds[0]), LogicalOffset(bounds[1]))
        return found

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, *, broker_name: str | None = None
    ) -> LogicalOffset:
        """Return the first offset whose store time is at or after `timestamp_ms`, else the max."""
        self._require(topic, queue_id, broker_name)
        return LogicalOffset(self.reader.search_time(topic, queue_id, timestamp_ms))

    def consumer_offsets(self, group: str, topic: str) -> dict[QueueRef, LogicalOffset]:
        """Return where a group will read next; queues it never read are absent."""
        check_group(group)
        self.catalog.config(topic)
        known = load_consumer_offsets(self.reader.root).of(group, topic)
        return {
            self.catalog.ref(topic, queue_id): LogicalOffset(offset)
            for queue_id, offset in sorted(known.items())
        }

    def commit_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        broker_name: str | None = None,
    ) -> None:
        """Record durably where a group will read next."""
        self._require(topic, queue_id, broker_name)
        self._admin.commit_offset(group, topic, queue_id, offset)

    def _require(self, topic: str, queue_id: int, broker_name: str | None) -> None:
        self.reader.refresh()
        ours = self.reader.settings.broker_name
        if broker_name not in (None, ours):
            message = (
                f"The store is broker {ours}, but {broker_name} was asked for; set brokerName in "
                f"the configuration if it should be called so."
            )
            raise RequestError(message)
        self.catalog.require_queue(topic, queue_id)

    # Reading

    def pull(
        self,
        wanted: OffsetRange,
        *,
        message_filter: MessageFilter | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        verify: bool | None = None,
    ) -> Iterator[FrameBatch]:
        """Return the messages of a range as frame batches, filtered before they are copied."""
        require_batch_limits(batch_rows, batch_bytes)
        queue = wanted.queue
        self._require(queue.topic, queue.queue_id, queue.broker_name)
        pipeline = self._pipeline(queue.topic, message_filter)
        limits = (batch_rows, batch_bytes) if pipeline is None else pipeline.EXAMINED
        frames = self.reader.frames(
            queue.topic,
            queue.queue_id,
            wanted.start,
            wanted.end,
            select=pipeline.select_entries if pipeline and pipeline.selects_entries else None,
            batch_rows=limits[0],
            batch_bytes=limits[1],
            verify=verify,
        )
        if pipeline is None:
            return frames
        return pipeline.survivors(frames, batch_rows, batch_bytes)

    def _pipeline(self, topic: str, message_filter: MessageFilter | None) -> Pipeline | None:
        if message_filter is None:
            return None
        registration = None
        # After an unclean stop it is not known which filters the broker had registered.
        if message_filter.sql is not None and self.reader.state.is_clean:
            registration = self._registrations.find(topic, message_filter.sql.text)
        from broker_core.filter.pipeline import Pipeline

        pipeline = Pipeline(message_filter, registration)
        pipeline.count = self._filter_count
        return pipeline

    @cached_property
    def _registrations(self) -> Registrations:
        from broker_core.filter.registered import Registrations

        return Registrations(self.reader.root)

    @cached_property
    def _filter_count(self) -> FilterCount:
        from broker_core.filter.pipeline import FilterCount

        return FilterCount()

    @property
    def filter_count(self) -> FilterCount:
        """The work of all filters since the broker was opened, stage by stage."""
        counted = self._filter_count
        return counted + type(counted)()

    def read(
        self,
        topic: str,
        queue_id: int = 0,
        start: int | None = None,
        end: int | None = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return a range of one queue as a table, bodies checked."""
        from broker_core.read_spec import ReadSpec, range_between

        wish = ReadSpec.of(columns, tags, sql)
        self._require(topic, queue_id, None)
        bounds = self.reader.queue_range(topic, queue_id)
        wanted = range_between(self.catalog.ref(topic, queue_id), bounds, start, end)
        frames = self.pull(wanted, message_filter=wish.message_filter, verify=True)
        return wish.table(frames, wanted.queue)

    def query(self, topic: str, key: str, limit: int = DEFAULT_QUERY_LIMIT) -> pa.Table:
        """Return messages with a key or unique key, all columns, by physical offset."""
        from broker_core.broker.query import as_table, find_by_key

        self.reader.refresh()
        self.catalog.config(topic)
        return as_table(list(find_by_key(self.reader, topic, key, limit)), self.reader)

    def message(self, message_id: str) -> pa.Table:
        """Return the message with a unique or offset id, one row."""
        from broker_core.broker.query import as_table, find_by_id

        found = find_by_id(self.reader, self.topics(), message_id)
        return as_table([found], self.reader)

    # Writing

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
    ) -> SendResult:
        """Append one message and return where it lies.

        A delayed one lies in the schedule topic until it is due.
        """
        return self._sender.send(
            topic, body, tags, keys, properties, queue_id, sharding_key, delay_level
        )

    def append(
        self, messages: MessageBatch, *, flush: str | None = None, wants_places: bool = True
    ) -> AppendResult:
        """Append a batch in one go; all of it or nothing."""
        return self.writer.append(self.door.messages(messages), flush=flush)

    @cached_property
    def door(self) -> Door:
        """What clients may write here (admission/)."""
        from broker_core.broker.admission.door import Door

        return Door(self.catalog, self.writer.settings)

    @cached_property
    def _sender(self) -> Sender:
        from broker_core.broker.send import Sender

        return Sender(self.door, self.writer, self._clock_ms)

    @cached_property
    def transactions(self) -> Transactions:
        """The store's transactions; RequestError if the broker was opened for reading."""
        from broker_core.broker.transactions.api import Transactions

        made = Transactions(self.reader, self.writer, self.catalog, self._admin, self._clock_ms)
        made.runs_services = not self._is_served
        return made

    def delete_before(self, physical_offset: int) -> int:
        """Delete whole commit-log files that end at or before an offset; return the log's start."""
        remaining = self.writer.delete_before(physical_offset)
        self.reader.refresh()
        return remaining
