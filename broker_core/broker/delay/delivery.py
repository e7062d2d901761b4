"""Delayed delivery: copies messages of the schedule topic to where they belong, once they are due.

A delayed message lies in SCHEDULE_TOPIC_XXXX, queue level - 1; its consume-queue entry carries the
time of delivery. Messages of one level are due in their order, so each level has one place up to
which all is delivered: config/delayOffset.json, where Apache's broker keeps it too. There it is
written after the fact, and a crash in between would deliver twice. So every append of copies ends
with a record in RMQ_SYS_TRANS_BATCH_TOPIC that says how far it goes,

    {"kind": "delivered", "level": 3, "offset": 120}                                  TAGS = delay#3

and the later of the two counts. Only losing power in the middle of an append delivers again. A
message whose topic was deleted meanwhile is dropped, with a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.offsets import delay_document, load_delay_offsets
from broker_core.broker.transactions.decisions import Delivered
from broker_core.broker.transactions.half import real_route
from broker_core.broker.transactions.settle import PIECE_BYTES, PIECE_ROWS, SettledElsewhereError
from broker_core.codec.fields import locate
from broker_core.codec.property_names import HALF_TOPIC, SCHEDULE_TOPIC
from broker_core.codec.record_copy import Destinations, copy_records
from broker_core.errors import TopicNotFoundError
from broker_core.store import config_files
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from broker_core.broker.catalog import Catalog
    from broker_core.broker.transactions.journal import DecisionJournal
    from broker_core.codec.frames import FrameBatch
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter

DELAY_OFFSETS_FILE = Path("config") / "delayOffset.json"
_LOG = logging.getLogger(__name__)


class DelayedDelivery:
    """Delivers what is due in one store. Not thread-safe; several processes may each have one."""

    def __init__(
        self,
        reader: StoreReader,
        writer: StoreWriter,
        catalog: Catalog,
        journal: DecisionJournal,
        clock_ms: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._catalog = catalog
        self._journal = journal
        self._clock_ms = clock_ms

    def deliver_due(self) -> int:
        """Deliver everything that is due now; how many messages that were, dropped ones not."""
        delivered = 0
        known = load_delay_offsets(self._reader.root / DELAY_OFFSETS_FILE)
        reached = dict(known)
        for level, delay_ms in enumerate(self._writer.settings.delay_levels_ms, 1):
            start, end = self._reader.queue_range(SCHEDULE_TOPIC, level - 1)
            if end == 0:
                continue
            offset = min(max(known.get(level, 0), self._journal.delivered(level), start), end)
            stop = offset + self._count_due(level, offset, end, delay_ms)
            delivered += self._deliver(level, offset, stop)
            reached[level] = stop
        if reached != known:
            self._save(reached)
        return delivered

    def _count_due(self, level: int, start: int, end: int, delay_ms: int) -> int:
        """How many messages of a level are due, from `start` on; those behind are not looked at."""
        now = self._clock_ms()
        for at in range(start, end, PIECE_ROWS):
            stop = min(at + PIECE_ROWS, end)
            times = self._reader.entries(SCHEDULE_TOPIC, level - 1, at, stop)["tags_code"]
            # Later than any delay allows: the clock was set back since, and nobody wants to wait.
            is_due = (times <= now) | (times > now + delay_ms)
            if not is_due.all():
                return at - start + int(is_due.argmin())
        return end - start

    def _deliver(self, level: int, start: int, stop: int) -> int:
        count = 0
        frames_of_level = self._reader.frames(
            SCHEDULE_TOPIC,
            level - 1,
            start,
            stop,
            batch_rows=PIECE_ROWS,
            batch_bytes=PIECE_BYTES,
        )
        for frames in frames_of_level:
            before = self._journal.delivered(level)

            def is_still_so(before: int = before) -> None:
                if self._journal.delivered(level) != before:
                    raise SettledElsewhereError

            copies = self._copies(frames)
            word = self._journal.records(
                [Delivered(level, frames.next_offset)],
                self._clock_ms(),
                self._writer.settings.store_host,
            )
            try:
                whole = Batch.join([copies, Batch.of_messages(word)])
                self._writer.append(whole, guard=is_still_so)
            except SettledElsewhereError:
                return count  # another process is delivering
            count += len(copies)
        return count

    def _copies(self, frames: FrameBatch) -> Batch:
        """Messages as they were sent: their own topic and queue, properties as they are stored."""
        fields = locate(frames)
        route = real_route(fields)
        wanted = np.array([self._is_wanted(topic) for topic in route.topics])[route.topic_codes]
        if not wanted.all():
            return self._copies(frames.select(wanted)) if wanted.any() else _nothing()
        texts = fields.properties
        return Batch.of_copies(copy_records(fields, route, texts, transaction=None), route)

    def _is_wanted(self, topic: str) -> bool:
        if topic == HALF_TOPIC:
            return False  # as with RocketMQ: one that came here by mistake, nobody could decide it
        try:
            self._catalog.config(topic)
        except TopicNotFoundError:
            _LOG.warning("event=delayed_dropped topic=%s: it does not exist any more", topic)
            return False
        return True

    def _save(self, reached: dict[int, int]) -> None:
        with self._writer.turn("save delivered delays") as parts:
            path = self._reader.root / DELAY_OFFSETS_FILE
            known = load_delay_offsets(path)
            latest = {level: max(known.get(level, 0), offset) for level, offset in reached.items()}
            document = delay_document(config_files.load(path), latest, self._clock_ms())
            config_files.persist(parts.files, path, document)


def _nothing() -> Batch:
    no_rows = np.zeros(0, dtype=np.int32)
    return Batch((), Destinations((), no_rows, no_rows), np.zeros(0, dtype=np.bool_))
