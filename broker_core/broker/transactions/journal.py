"""Decision journal: finds what was decided, and makes the records that say so.

The newest record about something is found in the consume queue alone: entries carry the hash of the
record's tag, and are looked through from the newest backwards. Consume queues are complete after
every recovery, ours or Apache's, which index files are not; twenty bytes an entry make a million
decisions a matter of milliseconds. What was looked through is remembered, so a writer that commits
batch after batch looks at what came since its last one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.broker.transactions.decisions import (
    DecidedAttempt,
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
from broker_core.types import BatchRef

if TYPE_CHECKING:
    from broker_core.codec.frames import FrameBatch
    from broker_core.store.reader import StoreReader

BATCH_QUEUE = 0

_STRETCH_ENTRIES = 100_000
_MAX_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the journal and where it lies."""

    record: JournalRecord
    physical_offset: int


@dataclass(slots=True)
class _Memory:
    """The newest record about something among the first `end` of the journal."""

    end: int
    newest: Entry | None


class DecisionJournal:
    """The journal of one store. Not thread-safe."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._unique_ids = UniqueIds()
        self._memories: OrderedDict[str, _Memory] = OrderedDict()

    def end(self) -> int:
        """How many records were ever written; unchanged means that nothing was decided since."""
        return self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)[1]

    def decision(self, tag: str) -> tuple[Decision, int] | None:
        """The newest decision of an owner and name, and where it lies."""
        entry = self._newest(tag)
        if entry is None or not isinstance(entry.record, Decision):
            return None
        return entry.record, entry.physical_offset

    def attempt(self, attempt_id: str) -> DecidedAttempt | None:
        """The attempt with this id, if it is one."""
        entry = self._newest(attempt_id)
        return (
            entry.record if entry is not None and isinstance(entry.record, DecidedAttempt) else None
        )

    def delivered(self, level: int) -> int:
        """Up to where delayed messages of a level are delivered, as far as the journal says."""
        entry = self._newest(delay_tag(level))
        found = entry.record if entry is not None else None
        return found.offset if isinstance(found, Delivered) else 0

    def needed(self, physical_offset: int) -> list[JournalRecord]:
        """The newest records about anything that lie before an offset and must be kept."""
        newest: dict[str, int] = {}
        start, end = self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)
        for frames in self._reader.frames(BATCH_TOPIC, BATCH_QUEUE, start, end):
            newest |= _last_places(frames)
        old = [place for place in newest.values() if place < physical_offset]
        found = [parse_body(self._reader.record_at(place).body, place) for place in old]
        return [record for record in found if _is_needed(record)]

    def records(
        self, records: Sequence[JournalRecord], now_ms: int, store_host: bytes
    ) -> MessageBatch:
        """The messages to append for some records."""
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

    def _newest(self, tag: str) -> Entry | None:
        start, end = self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)
        memory = self._memories.pop(tag, None)
        if memory is None or memory.end > end:  # a journal that shrank was deleted and made anew
            memory = _Memory(start, None)
        found = self._search(tag, max(start, memory.end), end)
        self._memories[tag] = _Memory(end, found or memory.newest)
        if len(self._memories) > _MAX_REMEMBERED:
            self._memories.popitem(last=False)
        return self._memories[tag].newest

    def _search(self, tag: str, start: int, end: int) -> Entry | None:
        """The newest record with a tag among [start, end), looked for from the end."""
        wanted = java_hash(tag)
        for stop in range(end, start, -_STRETCH_ENTRIES):
            begin = max(start, stop - _STRETCH_ENTRIES)
            entries = self._reader.entries(BATCH_TOPIC, BATCH_QUEUE, begin, stop)
            for row in np.flatnonzero(entries["tags_code"] == wanted)[::-1].tolist():
                place = int(entries["physical_offset"][row])
                record = self._reader.record_at(place)
                if record.property_map.get(TAGS) == tag:
                    return Entry(parse_body(record.body, place), place)
        return None


def _is_needed(record: JournalRecord) -> bool:
    """Whether anyone may still ask about this; attempts die with their half messages."""
    if isinstance(record, Decision):
        return record.keep or not record.is_done
    return isinstance(record, Delivered)


def _last_places(frames: FrameBatch) -> dict[str, int]:
    """Where the last record of each tag lies, attempts left out, in a batch of the journal."""
    tags = property_columns(frames, [TAGS])[TAGS]
    rows = np.flatnonzero(pc.match_substring(tags, "#").fill_null(False))
    if not len(rows):
        return {}
    coded = pc.dictionary_encode(tags.take(pa.array(rows)))
    last = np.zeros(len(coded.dictionary), dtype=np.int64)
    last[coded.indices.to_numpy()] = rows  # of several rows with one tag, the last stays
    places = frames.starts[last] + (frames.origin or 0)
    return dict(zip(coded.dictionary.to_pylist(), places.tolist(), strict=True))


def is_superseded(decision: Decision, batch: BatchRef) -> bool:
    """Whether a batch comes too late: its owner's newest decision is about it or a later one."""
    return decision.batch.number >= batch.number
