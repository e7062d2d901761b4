"""Delay delivery: messages that wait in the schedule topic, copied to where they belong when due.

A message with delay level n lies in queue n - 1 of SCHEDULE_TOPIC_XXXX; its consume-queue entry
holds the time of its delivery in place of a tag hash, so what is due is found without touching the
log. Where each level has come to is in config/delayOffset.json, as Apache's broker keeps it:

    {"offsetTable": {"1": 17, "3": 4}, ...}

It is written after the copies: a crash in between delivers some of them twice, as with Apache's.
A time that is further away than the level's delay was caused by a clock that was set back; such a
message is due at once. One whose topic was deleted meanwhile is dropped, with a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.broker.half_messages import read_halves
from broker_core.broker.offset_tables import load_delay_offsets
from broker_core.codec.copies import copy_records
from broker_core.codec.gather import spans
from broker_core.codec.layout import TRANSACTION_MASK
from broker_core.codec.names import SCHEDULE_TOPIC
from broker_core.errors import TopicNotFoundError
from broker_core.store import config_files
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from broker_core.broker.catalog import Catalog
    from broker_core.codec.frames import FrameBatch
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter

DELAY_OFFSETS_FILE = Path("config") / "delayOffset.json"
_PIECE_ROWS = 16_384
_LOG = logging.getLogger(__name__)


class DelayDelivery:
    """Delivers what is due. Not thread-safe; one a store, by the holder of its lock."""

    def __init__(
        self,
        reader: StoreReader,
        writer: StoreWriter,
        catalog: Catalog,
        clock_ms: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._catalog = catalog
        self._clock_ms = clock_ms
        self._path = reader.root / DELAY_OFFSETS_FILE

    def round(self) -> int:
        """Deliver all that is due now, level by level; how many messages."""
        self._reader.refresh()
        queues = set(self._reader.queue_ids(SCHEDULE_TOPIC))
        if not queues:
            return 0
        delivered = 0
        for level, delay_ms in enumerate(self._writer.settings.delay_levels_ms, 1):
            if level - 1 in queues:
                delivered += self._deliver_level(level, delay_ms)
        return delivered

    def _deliver_level(self, level: int, delay_ms: int) -> int:
        queue_id = level - 1
        minimum, maximum = self._reader.queue_range(SCHEDULE_TOPIC, queue_id)
        reached = load_delay_offsets(self._path).get(level, 0)
        start = at = min(max(reached, minimum), maximum)
        while at < maximum:
            stop = min(maximum, at + _PIECE_ROWS)
            due = at + self._count_due(queue_id, at, stop, delay_ms)
            if due > at:
                for frames in self._reader.frames(SCHEDULE_TOPIC, queue_id, at, due):
                    self._deliver(frames)
                self._save(level, due)
            at = due
            if due < stop:
                break
        return at - start

    def _count_due(self, queue_id: int, start: int, stop: int, delay_ms: int) -> int:
        """How many messages from `start` on are due; one that is not holds up those behind it."""
        entries = self._reader.entries(SCHEDULE_TOPIC, queue_id, start, stop)
        times_ms = entries["tags_code"].astype(np.int64)
        now = self._clock_ms()
        waits = (times_ms > now) & (times_ms <= now + delay_ms)
        return int(waits.argmax()) if waits.any() else len(waits)

    def _deliver(self, frames: FrameBatch) -> None:
        """Append copies of some delayed messages; text and birth stay, transaction bits too."""
        places = read_halves(frames)
        kept = np.array([self._exists(topic) for topic in places.route.topics], dtype=np.bool_)
        is_kept = kept[places.route.topic_codes]
        for topic in np.array(places.route.topics)[~kept].tolist():
            _LOG.warning("event=delayed_dropped topic=%s: it does not exist any more", topic)
        bits = places.fields.sys_flags & TRANSACTION_MASK
        for bit in np.unique(bits[is_kept]).tolist():
            rows = np.flatnonzero(is_kept & (bits == bit))
            self._append(frames.select(rows), int(bit))

    def _append(self, frames: FrameBatch, transaction: int) -> None:
        places = read_halves(frames)
        fields, route = places.fields, places.route
        texts = spans(frames.buffer, fields.properties_starts, fields.properties_lengths)
        copies = copy_records(fields, route, texts, transaction=transaction)
        self._writer.append(Batch.of_copies(copies, route))

    def _exists(self, topic: str) -> bool:
        try:
            self._catalog.config(topic)
        except TopicNotFoundError:
            return False
        return True

    def _save(self, level: int, offset: int) -> None:
        with self._writer.turn("save delay offsets") as parts:
            document = config_files.load(self._path)
            table = {str(key): value for key, value in load_delay_offsets(self._path).items()}
            changed = {**document, "offsetTable": {**table, str(level): offset}}
            config_files.persist(parts.files, self._path, changed)
