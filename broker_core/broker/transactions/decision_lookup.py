"""Lookup of decisions: finds the newest record with a tag in the journal, and makes new ones.

The records are those of decision_records.py, in RMQ_SYS_TRANS_BATCH_TOPIC. The newest with a tag is
found in the consume queue alone: entries carry the hash of the tag, and are searched from the
newest backwards. Consume queues are complete after every recovery, ours or Apache's, which index
files are not: a decision that is not found would be made twice. An entry has twenty bytes, so a
million decisions are searched in milliseconds. The end of each search is remembered, so a writer
that commits batch after batch searches what came since its last one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
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
from broker_core.codec.hashing.java import java_hash
from broker_core.codec.ids import UniqueIds
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.property_names import BATCH_TOPIC, TAGS
from broker_core.types import PhysicalOffset

if TYPE_CHECKING:
    from broker_core.codec.frames import FrameBatch
    from broker_core.store.reader import StoreReader

BATCH_QUEUE = 0

_STRETCH_ENTRIES = 100_000
_MAX_REMEMBERED = 1024


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


@dataclass(slots=True)
class _Memory:
    """The newest record with a tag among the first `end` of the journal."""

    end: int
    newest: JournalEntry | None


class DecisionLookup:
    """The journal of one store. Not thread-safe."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._unique_ids = UniqueIds()
        self._memories: OrderedDict[str, _Memory] = OrderedDict()

    def end(self) -> int:
        """Return how many records were ever written; unchanged: nothing was decided since."""
        return self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)[1]

    def decision(self, tag: str) -> LoggedDecision | None:
        """Return the newest decision of an owner and name (`stream_tag`)."""
        entry = self._newest(tag)
        if entry is None or not isinstance(entry.record, Decision):
            return None
        return LoggedDecision(entry.record, entry.physical_offset)

    def attempt(self, attempt_id: str) -> BatchAttempt | None:
        """Return the attempt with this id, if it is one."""
        entry = self._newest(attempt_id)
        if entry is None or not isinstance(entry.record, BatchAttempt):
            return None
        return entry.record

    def delivered(self, level: int) -> int:
        """Return the offset up to which delayed messages of a level are delivered, 0 if unsaid."""
        entry = self._newest(delay_tag(level))
        if entry is None or not isinstance(entry.record, Delivered):
            return 0
        return entry.record.offset

    def needed(self, physical_offset: int) -> list[JournalRecord]:
        """Return the newest record of each tag that lies before an offset and must be kept."""
        newest: dict[str, int] = {}
        start, end = self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)
        for frames in self._reader.frames(BATCH_TOPIC, BATCH_QUEUE, start, end):
            newest |= _last_offsets(frames)
        old = [offset for offset in newest.values() if offset < physical_offset]
        found = [parse_body(self._reader.record_at(offset).body, offset) for offset in old]
        return [record for record in found if _is_needed(record)]

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

    def _newest(self, tag: str) -> JournalEntry | None:
        """Return the newest record with a tag, searching only what came since the last search."""
        start, end = self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)
        memory = self._memories.pop(tag, None)
        if memory is None or memory.end > end:  # a journal that shrank was deleted and made anew
            memory = _Memory(start, None)
        found = self._search(tag, max(start, memory.end), end)
        self._memories[tag] = _Memory(end, found or memory.newest)
        if len(self._memories) > _MAX_REMEMBERED:
            self._memories.popitem(last=False)
        return self._memories[tag].newest

    def _search(self, tag: str, start: int, end: int) -> JournalEntry | None:
        """Return the newest record with a tag among [start, end), searched from the end."""
        wanted = java_hash(tag)
        for stop in range(end, start, -_STRETCH_ENTRIES):
            begin = max(start, stop - _STRETCH_ENTRIES)
            entries = self._reader.entries(BATCH_TOPIC, BATCH_QUEUE, begin, stop)
            for row in np.flatnonzero(entries["tags_code"] == wanted)[::-1].tolist():
                offset = PhysicalOffset(int(entries["physical_offset"][row]))
                record = self._reader.record_at(offset)
                # Tags of one hash may differ; only the record has the text.
                if record.property_map.get(TAGS) == tag:
                    return JournalEntry(parse_body(record.body, offset), offset)
        return None


def _is_needed(record: JournalRecord) -> bool:
    """Tell whether a record may still be asked for; attempts die with their half messages."""
    if isinstance(record, Decision):
        return record.keep or not record.is_done
    return isinstance(record, Delivered)


def _last_offsets(frames: FrameBatch) -> dict[str, int]:
    """Return the physical offset of the last record of each tag in a batch of the journal.

    Attempts are left out: their tags, alone, have no `#`.
    """
    tags = property_columns(frames, [TAGS])[TAGS]
    rows = np.flatnonzero(pc.match_substring(tags, "#").fill_null(False))
    if not len(rows):
        return {}
    coded = pc.dictionary_encode(tags.take(pa.array(rows)))
    last = np.zeros(len(coded.dictionary), dtype=np.int64)
    last[coded.indices.to_numpy()] = rows  # of several rows with one tag, the last stays
    offsets = frames.starts[last] + (frames.origin or 0)
    return dict(zip(coded.dictionary.to_pylist(), offsets.tolist(), strict=True))
