"""Dumping: every message of a store, topic by topic, queue by queue.

Lazy from the outside in: a topic's queues are looked at when it is iterated, a queue's records are
read batch by batch, so a dump of any size needs the memory of one batch. Every record is checked,
body included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.broker.deleted_topics import DeletedQueue, deleted_queues
from broker_core.broker.topics import PERM_DEFAULT
from broker_core.codec.fields import locate
from broker_core.codec.record import Record, decode_record
from broker_core.errors import FormatVersionError

if TYPE_CHECKING:
    from broker_core.broker.catalog import Catalog
    from broker_core.store.reader import StoreReader

_BATCH_ROWS = 1000
Report = Callable[[int, int], None]
"""Is told (bytes done, bytes in all)."""


@dataclass(frozen=True)
class DumpedQueue:
    """One queue that holds or held messages. `records` are (record, its size in bytes)."""

    queue_id: int
    minimum: int
    maximum: int
    records: Iterator[tuple[Record, int]]


@dataclass(frozen=True)
class DumpedTopic:
    """One topic with those of its queues that were ever used."""

    name: str
    read_queues: int
    write_queues: int
    perm: int
    queues: Iterable[DumpedQueue]


class Dump:
    """A dump of one store; `report` is told how far it is.

    `refused` holds an error for each topic that was passed over, since we do not read its queues.
    """

    def __init__(self, reader: StoreReader, catalog: Catalog, report: Report) -> None:
        self._reader = reader
        self._catalog = catalog
        self._report = report
        self._done = 0
        self._total = 0
        self.refused: list[FormatVersionError] = []

    def topics(self, only: str | None = None) -> Iterator[DumpedTopic]:
        """Yield all topics, or one, by name; also deleted ones of which the log has records.

        A topic that we do not read is an error (FormatVersionError) if it is the one asked for;
        else it is passed over, and `refused` has the error.
        """
        known = self._catalog.names()
        lost: dict[str, list[DeletedQueue]] = {}
        for queue in deleted_queues(self._reader, known, self._report):
            lost.setdefault(queue.topic, []).append(queue)
        self._total = self._reader.log_range()[1]
        for name in sorted({*known, *lost}) if only is None else [only]:
            try:
                topic = self._deleted(name, lost[name]) if name in lost else self._known(name)
            except FormatVersionError as error:
                if only is not None:
                    raise
                self.refused.append(error)
                continue
            yield topic

    def _known(self, name: str) -> DumpedTopic:
        config = self._catalog.config(name)
        count = max(config.read_queues, config.write_queues)
        queues = (self._queue(name, number) for number in self._catalog.queue_ids(name))
        return DumpedTopic(
            name,
            config.read_queues,
            config.write_queues,
            config.perm,
            (queue for queue in queues if queue.maximum and queue.queue_id < count),
        )

    def _queue(self, topic: str, queue_id: int) -> DumpedQueue:
        minimum, maximum = self._reader.queue_range(topic, queue_id)
        records = self._records(topic, queue_id, minimum, maximum)
        return DumpedQueue(queue_id, minimum, maximum, records)

    def _records(
        self, topic: str, queue_id: int, start: int, end: int
    ) -> Iterator[tuple[Record, int]]:
        batches = self._reader.frames(
            topic, queue_id, start, end, batch_rows=_BATCH_ROWS, verify=True
        )
        for batch in batches:
            locate(batch)
            for raw in batch.records():
                yield decode_record(raw, verify=False), len(raw)
            self._count(batch.size_bytes)

    def _deleted(self, name: str, queues: list[DeletedQueue]) -> DumpedTopic:
        count = max(queue.queue_id for queue in queues) + 1
        dumped = (
            DumpedQueue(queue.queue_id, queue.first, queue.end, self._records_at(queue))
            for queue in queues
        )
        return DumpedTopic(name, count, count, PERM_DEFAULT, dumped)

    def _records_at(self, queue: DeletedQueue) -> Iterator[tuple[Record, int]]:
        for physical_offset in queue.physical_offsets.tolist():
            record = self._reader.record_at(physical_offset)
            size = len(self._reader.log.record_bytes(physical_offset))
            self._count(size)
            yield record, size

    def _count(self, size_bytes: int) -> None:
        self._done += size_bytes
        self._report(self._done, max(self._total, self._done))
