"""Lookup of decisions: finds the newest record with a tag in the journal, and makes new ones.

The records are those of decision_records.py, in RMQ_SYS_TRANS_BATCH_TOPIC. The newest with a tag is
found in the consume queue alone: entries carry the hash of the tag, and are searched from the
newest backwards. Consume queues are complete after every recovery, ours or Apache's, which index
files are not: a decision that is not found would be made twice. An entry has twenty bytes, so a
million decisions are searched in milliseconds. The end of each search is remembered, so a writer
that commits batch after batch searches what came since its last one.

A search is for records of one kind and owner: others with the same tag, and records that make no
sense, are passed over. A record counts only if its tag is the one that its body says.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.broker.transactions.decision_records import (
    BatchAttempt,
    Decision,
    Delivered,
    JournalRecord,
    delay_tag,
    parse_body,
    record_properties,
)
from broker_core.codec.decode import property_columns
from broker_core.codec.fields import locate
from broker_core.codec.hashing.java import java_hash
from broker_core.codec.ids import UniqueIds
from broker_core.codec.message_batch import Destinations, MessageBatch
from broker_core.codec.property_names import BATCH_TOPIC, PREPARED_BY, TAGS
from broker_core.codec.record_copy import copy_records
from broker_core.codec.spans import gather_spans
from broker_core.errors import CorruptRecordError
from broker_core.store.batch import Batch
from broker_core.types import PhysicalOffset

if TYPE_CHECKING:
    from broker_core.codec.frames import FrameBatch
    from broker_core.store.reader import StoreReader

BATCH_QUEUE = 0

_STRETCH_ENTRIES = 100_000
_MAX_REMEMBERED = 1024
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A record of the journal and its physical offset."""

    record: JournalRecord
    physical_offset: PhysicalOffset


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """A decision and its physical offset: copies of what it names lie behind it in the log."""

    decision: Decision
    physical_offset: PhysicalOffset


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """An attempt and the physical offset of its record."""

    attempt: BatchAttempt
    physical_offset: PhysicalOffset


@dataclass(slots=True)
class _Memory:
    """The newest fitting record with a tag among the first `end` of the journal."""

    end: int
    newest: JournalEntry | None


Fits = Callable[[JournalRecord], bool]


class DecisionLookup:
    """The journal of one store. Not thread-safe."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._unique_ids = UniqueIds()
        self._memories: OrderedDict[tuple[str, str], _Memory] = OrderedDict()

    def end(self) -> int:
        """Return how many records were ever written; unchanged: nothing was decided since."""
        return self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)[1]

    def decision(self, tag: str, user: str) -> LoggedDecision | None:
        """Return the newest decision of a stream of batches (`stream_tag`) that is a user's."""
        return self._decision(tag, f"of {user}", lambda found: found.user == user)

    def decision_for(self, tag: str, user: str) -> LoggedDecision | None:
        """Return the newest decision of a stream that answers a caller's batch.

        For a user that is their own, or one without a user: made by a version that did not write
        any, or while the broker had no credentials. For a caller without a name it is anybody's.
        """
        return self._decision(
            tag, f"for {user}", lambda found: not user or found.user in ("", user)
        )

    def _decision(
        self, tag: str, kind: str, fits: Callable[[Decision], bool]
    ) -> LoggedDecision | None:
        entry = self._newest(tag, kind, lambda found: isinstance(found, Decision) and fits(found))
        if entry is None:
            return None
        assert isinstance(entry.record, Decision)
        return LoggedDecision(entry.record, entry.physical_offset)

    def attempt(self, attempt_id: str) -> BatchAttempt | None:
        """Return the attempt with this id, if it is one."""
        found = self.logged_attempt(attempt_id)
        return None if found is None else found.attempt

    def logged_attempt(self, attempt_id: str) -> LoggedAttempt | None:
        """Return the attempt with this id and where its record lies."""
        entry = self._newest(attempt_id, "attempt", lambda found: isinstance(found, BatchAttempt))
        if entry is None:
            return None
        assert isinstance(entry.record, BatchAttempt)
        return LoggedAttempt(entry.record, entry.physical_offset)

    def delivered(self, level: int) -> int:
        """Return the offset up to which delayed messages of a level are delivered, 0 if unsaid."""
        entry = self._newest(
            delay_tag(level), "delivered", lambda found: isinstance(found, Delivered)
        )
        if entry is None:
            return 0
        assert isinstance(entry.record, Delivered)
        return entry.record.offset

    def carried(self, physical_offset: int) -> list[Batch]:
        """Return copies of the newest record of each stream and level that lies before an offset.

        Only those that may still be asked for: not of batches that can't come again and are done.
        Records are copied as they are, by columns: a store that has seen a million owners carries
        their records along in a second or two, once in the time that the log is kept.
        """
        start, end = self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)
        newest: dict[str, int] = {}
        for frames in self._reader.frames(BATCH_TOPIC, BATCH_QUEUE, start, end):
            newest |= _last_offsets(frames)
        old = np.array([each for each in newest.values() if each < physical_offset], np.int64)
        copies: list[Batch] = []
        if len(old):
            for frames in self._reader.frames(BATCH_TOPIC, BATCH_QUEUE, start, end):
                offsets = frames.starts + (frames.origin or 0)
                if offsets[0] >= physical_offset:
                    break
                copies += _copies(frames.select(np.isin(offsets, old)))
        return copies

    def records(
        self, records: Sequence[JournalRecord], now_ms: int, store_host: bytes
    ) -> MessageBatch:
        """Return the messages to append for some records."""
        count = len(records)
        nowhere_else = np.zeros(count, dtype=np.int32)
        keys = [row.tobytes().decode("ascii") for row in self._unique_ids.make(count, now_ms)]
        texts = [record_properties(each, key) for each, key in zip(records, keys, strict=True)]
        return MessageBatch(
            topics=(BATCH_TOPIC,),
            topic_codes=nowhere_else,
            queue_ids=nowhere_else + np.int32(BATCH_QUEUE),
            bodies=pa.array([record.body() for record in records], type=pa.binary()),
            properties=pa.array(texts, type=pa.binary()),
            born_timestamps=now_ms,
            born_host=store_host,
            store_host=store_host,
        )

    def _newest(self, tag: str, kind: str, fits: Fits) -> JournalEntry | None:
        """Return the newest fitting record with a tag, searching what came since the last search.

        `kind` names what `fits` tells, so that the answer can be remembered.
        """
        start, end = self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)
        memory = self._memories.pop((tag, kind), None)
        if memory is None or memory.end > end:  # a journal that shrank was deleted and made anew
            memory = _Memory(start, None)
        found = self._search(tag, max(start, memory.end), end, fits) or memory.newest
        self._memories[tag, kind] = _Memory(end, found)
        if len(self._memories) > _MAX_REMEMBERED:
            self._memories.popitem(last=False)
        return found

    def _search(self, tag: str, start: int, end: int, fits: Fits) -> JournalEntry | None:
        """Return the newest fitting record with a tag among [start, end), from the end."""
        wanted = java_hash(tag)
        for stop in range(end, start, -_STRETCH_ENTRIES):
            begin = max(start, stop - _STRETCH_ENTRIES)
            entries = self._reader.entries(BATCH_TOPIC, BATCH_QUEUE, begin, stop)
            for row in np.flatnonzero(entries["tags_code"] == wanted)[::-1].tolist():
                offset = PhysicalOffset(int(entries["physical_offset"][row]))
                record = self._parsed(offset)
                # Tags of one hash may differ; only the record has the text.
                if record is not None and record.tag == tag and fits(record):
                    return JournalEntry(record, offset)
        return None

    def _parsed(self, offset: PhysicalOffset) -> JournalRecord | None:
        """Return the record at an offset; None, with a line in the log, if it makes no sense."""
        stored = self._reader.record_at(offset)
        try:
            record = parse_body(stored.body, offset)
        except CorruptRecordError as error:
            log.warning("event=journal_record_ignored physical_offset=%d error=%s", offset, error)
            return None
        # A record that is found by a tag other than its own was not written by a broker.
        return record if stored.property_map.get(TAGS) == record.tag else None


def _copies(frames: FrameBatch) -> list[Batch]:
    """Return copies of those records that may still be asked for."""
    # The two never stand in a text of these documents: JSON escapes the quotes there.
    bodies = gather_spans(locate(frames).bodies)
    is_done = pc.match_substring(bodies, '"kind":"done"')
    is_over = pc.and_(is_done, pc.match_substring(bodies, '"keep":false'))
    kept = frames.select(~is_over.to_numpy(zero_copy_only=False))
    if not len(kept):
        return []
    fields = locate(kept)
    to = Destinations.to_queue(BATCH_TOPIC, BATCH_QUEUE, len(kept))
    return [Batch.of_copies(copy_records(fields, to, fields.properties, transaction=None), to)]


def _last_offsets(frames: FrameBatch) -> dict[str, int]:
    """Return the physical offset of the last record of each tag and user in a batch.

    Attempts are left out: their tags, alone, have no `#`.
    """
    columns = property_columns(frames, [TAGS, PREPARED_BY])
    tags = columns[TAGS]
    rows = np.flatnonzero(pc.match_substring(tags, "#").fill_null(False))
    if not len(rows):
        return {}
    named = pc.binary_join_element_wise(tags, columns[PREPARED_BY].fill_null(""), " ")
    coded = pc.dictionary_encode(named.take(pa.array(rows)))
    last = np.zeros(len(coded.dictionary), dtype=np.int64)
    last[coded.indices.to_numpy()] = rows  # of several rows with one name, the last stays
    offsets = frames.starts[last] + (frames.origin or 0)
    return dict(zip(coded.dictionary.to_pylist(), offsets.tolist(), strict=True))
