"""Delayed delivery: copies messages of the schedule topic to their destinations once they are due.

A delayed message lies in SCHEDULE_TOPIC_XXXX, queue level - 1; its consume-queue entry carries the
time of delivery. Messages of one level are due in their order, so each level has one offset up to
which all is delivered: config/delayOffset.json, where Apache's broker keeps it too. There it is
written after the fact, and a crash in between would deliver twice. So every append of copies ends
with a record of the journal (transactions/decision_records.py) that says how far it goes,

    {"kind": "delivered", "level": 3, "offset": 120}                                  TAGS = delay#3

and the later of the two counts. Only losing power in the middle of an append delivers again. A
message that can't be delivered hurts no other: it is passed over, with a line in the log. That is
one whose topic was deleted before it was due, and one that another broker, or an older release,
took without a destination, with one that is not a client's, or with so many bytes that its copy
does not fit. Nor does a level that fails hurt the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from broker_core.broker.offsets import delay_document, load_delay_offsets
from broker_core.broker.transactions.decision_records import Delivered
from broker_core.broker.transactions.settle import APPEND_BYTES, APPEND_ROWS, SettledElsewhereError
from broker_core.codec.fields import locate
from broker_core.codec.legal_names import is_own_topic
from broker_core.codec.message_batch import Destinations
from broker_core.codec.properties.search import decimal_numbers, find_values
from broker_core.codec.property_names import REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC
from broker_core.codec.record_copy import copy_records
from broker_core.codec.spans import gather_spans
from broker_core.errors import BrokerError, IllegalMessageError
from broker_core.store import config_files
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.catalog import Catalog
    from broker_core.broker.transactions.decision_lookup import DecisionLookup
    from broker_core.codec.fields import RecordFields
    from broker_core.codec.frames import FrameBatch
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter

DELAY_OFFSETS_FILE = Path("config") / "delayOffset.json"
log = logging.getLogger(__name__)


class DelayedDelivery:
    """Delivers what is due in one store. Not thread-safe; several processes may each have one."""

    def __init__(
        self,
        reader: StoreReader,
        writer: StoreWriter,
        catalog: Catalog,
        journal: DecisionLookup,
        clock_ms: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._catalog = catalog
        self._journal = journal
        self._clock_ms = clock_ms

    def deliver_due(self) -> int:
        """Deliver everything that is due now; return how many messages, without dropped ones.

        A level's error is raised when all others are delivered.
        """
        delivered = 0
        errors = []
        known = load_delay_offsets(self._reader.root / DELAY_OFFSETS_FILE)
        reached = dict(known)
        for level, delay_ms in enumerate(self._writer.settings.delay_levels_ms, 1):
            start, end = self._reader.queue_range(SCHEDULE_TOPIC, level - 1)
            if end == 0:
                continue
            try:
                said = self._journal.delivered(level)
                offset = min(max(known.get(level, 0), said, start), end)
                stop = offset + self._count_due(level, offset, end, delay_ms)
                delivered += self._deliver(level, said, offset, stop)
            except Exception as error:  # noqa: BLE001 - raised below, once the others are delivered
                log.warning("event=delay_level_failed level=%d error=%s", level, error)
                errors.append(error)
                continue
            # Not `stop`: another process may be delivering up to there, and die before it is done.
            reached[level] = max(offset, self._journal.delivered(level))
        if reached != known:
            self._save(reached)
        if errors:
            raise errors[0]
        return delivered

    def _count_due(self, level: int, start: int, end: int, delay_ms: int) -> int:
        """Return how many messages of a level are due, from `start` on."""
        now = self._clock_ms()
        for at in range(start, end, APPEND_ROWS):
            stop = min(at + APPEND_ROWS, end)
            times = self._reader.entries(SCHEDULE_TOPIC, level - 1, at, stop)["tags_code"]
            # Later than any delay allows: the clock was set back since, so do not wait for it.
            is_due = (times <= now) | (times > now + delay_ms)
            if not is_due.all():
                return at - start + int(is_due.argmin())
        return end - start

    def _deliver(self, level: int, said: int, start: int, stop: int) -> int:
        """Append the copies of a level's messages; return how many.

        `said` is how far the journal says that the level is delivered.
        """
        count = 0
        due = self._reader.frames(
            SCHEDULE_TOPIC,
            level - 1,
            start,
            stop,
            batch_rows=APPEND_ROWS,
            batch_bytes=APPEND_BYTES,
        )
        for frames in due:
            left = [(frames, True)]
            while left:
                part, is_wanted = left.pop()
                try:
                    copies = self._copies(part) if is_wanted else _nothing()
                    self._append(level, copies, said, part.next_offset)
                except SettledElsewhereError:
                    return count  # another process is delivering
                except IllegalMessageError as error:
                    left += _smaller(part, error)
                    continue
                count += len(copies)
                said = part.next_offset
        return count

    def _append(self, level: int, copies: Batch, said: int, reached: int) -> None:
        """Append copies with the word how far a level is delivered by them."""
        word = self._journal.records(
            [Delivered(level, reached)], self._clock_ms(), self._writer.settings.store_host
        )
        whole = Batch.join([copies, Batch.of_messages(word)])
        self._writer.append(whole, guard=partial(self._require_at, level, said))

    def _require_at(self, level: int, delivered: int) -> None:
        """Raise SettledElsewhereError if a level was delivered further. Runs under the lock."""
        if self._journal.delivered(level) != delivered:
            raise SettledElsewhereError

    def _copies(self, frames: FrameBatch) -> Batch:
        """Return messages as they were sent: to their own topic and queue, properties unchanged.

        Without those that can't be delivered: set aside, with a line in the log for each reason.
        They stay in the schedule topic for as long as their part of the log.
        """
        fields = locate(frames)
        to = self._destinations(fields)
        wanted = to.topic_codes >= 0
        if not wanted.all():
            return self._copies(frames.select(wanted)) if wanted.any() else _nothing()
        return Batch.of_copies(copy_records(fields, to, fields.properties, transaction=None), to)

    def _destinations(self, fields: RecordFields) -> Destinations:
        """Return where messages belong; the topic code is -1 where that is nowhere.

        A queue that its topic no longer has is another one of the same topic: the message was
        acknowledged, and no append makes a queue that the configuration does not have.
        """
        topics, numbers = find_values(fields.properties, [REAL_TOPIC, REAL_QUEUE_ID])
        names = pc.dictionary_encode(gather_spans(topics))
        codes = names.indices.to_numpy().astype(np.int32)
        queue_ids = decimal_numbers(gather_spans(numbers), -1)
        found = [raw.decode("utf-8", "replace") for raw in names.dictionary.to_pylist()]
        for code, topic in enumerate(found):
            rows = codes == code
            reason, queues = self._queues_of(topic)
            if queues:
                queue_ids[rows & (queue_ids >= 0)] %= queues
                rows &= queue_ids < 0
            if rows.any():
                self._tell(fields, rows, topic, reason)
                codes[rows] = -1
        return Destinations(found, codes, queue_ids.astype(np.int32))

    def _queues_of(self, topic: str) -> tuple[str, int]:
        """Return how many queues of a topic are delivered to, and the reason for those that not."""
        if not topic or is_own_topic(topic):
            # Sent by mistake or malice, to an older release or another broker.
            return "no_client_topic", 0
        try:
            return "no_queue", self._catalog.config(topic).write_queues
        except BrokerError:
            return "topic_not_found", 0

    def _tell(self, fields: RecordFields, rows: NDArray[np.bool_], topic: str, reason: str) -> None:
        offsets = fields.integer("physicalOffset")[rows]
        log.warning(
            "event=delayed_set_aside topic=%r reason=%s count=%d physical_offset=%d",
            topic[:255],
            reason,
            len(offsets),
            int(offsets[0]),
        )

    def _save(self, reached: dict[int, int]) -> None:
        """Write how far each level is delivered, unless another process came further."""
        with self._writer.turn("save delivered delays") as parts:
            path = self._reader.root / DELAY_OFFSETS_FILE
            known = load_delay_offsets(path)
            latest = {level: max(known.get(level, 0), offset) for level, offset in reached.items()}
            document = delay_document(config_files.load(path), latest, self._clock_ms())
            config_files.persist(parts.files, path, document)


def _smaller(part: FrameBatch, error: IllegalMessageError) -> list[tuple[FrameBatch, bool]]:
    """Return what to try with messages of which one can't be appended, the first thing last.

    It is found by halving, and set aside (False) when it is alone.
    """
    middle = len(part) // 2
    if middle:
        return [(part.section(middle, len(part)), True), (part.section(0, middle), True)]
    place = int(part.starts[0]) + (part.origin or 0)
    log.warning("event=delayed_set_aside physical_offset=%d error=%s", place, error)
    return [(part, False)]


def _nothing() -> Batch:
    no_rows = np.zeros(0, dtype=np.int32)
    return Batch((), Destinations((), no_rows, no_rows), np.zeros(0, dtype=np.bool_))
