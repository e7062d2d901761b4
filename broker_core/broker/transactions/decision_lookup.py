"""Lookup of decisions: finds the newest record with a tag in the journal, and makes new ones.

The records are those of decision_records.py, in RMQ_SYS_TRANS_BATCH_TOPIC. The newest with a tag is
found in the consume queue alone: entries carry the hash of the tag, and are searched from the
newest backwards. Consume queues are complete after every recovery, ours or Apache's, which index
files are not: a decision that is not found would be made twice. An entry has twenty bytes, so a
million decisions are searched in milliseconds. The end of each search is remembered, so a writer
that commits batch after batch searches what came since its last one.

A search is for records of one kind and owner: others with the same tag, and records that make no
sense, are passed over, without being parsed where they are many. A record counts only if its tag is
the one that its body says. What is not found may be forgotten (forgotten.py); decision_retention.py
says what retention leaves.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

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
from broker_core.broker.transactions.forgotten import FORGOTTEN_TAG, ForgottenStreams, keys_for
from broker_core.codec.decode import property_columns
from broker_core.codec.fields import locate
from broker_core.codec.hashing.java import java_hash
from broker_core.codec.ids import UniqueIds
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.property_names import BATCH_TOPIC, PREPARED_BY, SCHEDULE_TOPIC, TAGS
from broker_core.codec.spans import gather_spans
from broker_core.errors import CorruptRecordError, OffsetRangeError
from broker_core.types import BatchRef, PhysicalOffset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.store.queue.ext import ConsumeQueueExt
    from broker_core.store.reader import StoreReader

BATCH_QUEUE = 0

_STRETCH_ENTRIES = 100_000
_SOUGHT_ENTRIES = 1 << 14
_MAX_REMEMBERED = 1024
_FEW = 16
"""So many are searched for one by one, from where the last search ended."""
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


@dataclass(frozen=True, slots=True)
class LoggedForgotten:
    """A record of forgotten streams, its number in the journal and its physical offset."""

    record: ForgottenStreams
    offset: int
    physical_offset: PhysicalOffset


@dataclass(frozen=True, slots=True)
class _ForgottenRecord:
    """Where a record of forgotten streams lies, and its first and last key."""

    offset: int
    physical_offset: PhysicalOffset
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _ForgottenRecords:
    """The records of forgotten streams among the first `end` of the journal."""

    end: int = 0
    records: Sequence[_ForgottenRecord] = ()


@dataclass(slots=True)
class _Memory:
    """The newest fitting record with a tag among the first `end` of the journal."""

    end: int
    newest: JournalEntry | None


@dataclass(frozen=True, slots=True)
class _Row:
    """A record that is not parsed yet."""

    body: bytes
    tag: str
    physical_offset: PhysicalOffset

    def entry(self) -> JournalEntry | None:
        """Return it parsed; None, with a line in the log, if it makes no sense."""
        record = _record(self.body, self.physical_offset, self.tag)
        return None if record is None else JournalEntry(record, self.physical_offset)


Fits = Callable[[JournalEntry], bool]
Users: TypeAlias = tuple[str, ...] | None
"""Users whose records count, "" for records without one; None for all."""
Stream: TypeAlias = tuple[str, str]
"""A stream of batches: its tag (`stream_tag`) and its user."""


class DecisionLookup:
    """The journal of one store. Not thread-safe."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._unique_ids = UniqueIds()
        self._memories: OrderedDict[tuple[str, str], _Memory] = OrderedDict()
        self._forgotten = _ForgottenRecords()

    def end(self) -> int:
        """Return how many records were ever written; unchanged: nothing was decided since."""
        return self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)[1]

    def decision(self, tag: str, user: str) -> LoggedDecision | None:
        """Return the newest decision of a stream of batches (`stream_tag`) that is a user's."""
        return self._decision(tag, f"of {user}", (user,))

    def decision_for(self, tag: str, user: str) -> LoggedDecision | None:
        """Return the newest decision of a stream that answers a caller's batch.

        For a user that is their own, or one without a user: made by a version that did not write
        any, or while the broker had no credentials. For a caller without a name it is anybody's.
        If retention has forgotten the stream, it is a decision of which only the number is known.
        """
        found = self._decision(tag, f"for {user}", ("", user) if user else None)
        return found or self._forgotten_decision(tag, user)

    def _decision(self, tag: str, kind: str, users: Users) -> LoggedDecision | None:
        def fits(found: JournalEntry) -> bool:
            record = found.record
            return isinstance(record, Decision) and (users is None or record.user in users)

        entry = self._newest(tag, kind, fits, users)
        if entry is None:
            return None
        assert isinstance(entry.record, Decision)
        return LoggedDecision(entry.record, entry.physical_offset)

    def _forgotten_decision(self, tag: str, user: str) -> LoggedDecision | None:
        """Return what is still known of a stream that was forgotten; None if it was not."""
        try:
            number = self._forgotten_number(tag, user)
        except OffsetRangeError:
            # A record's segment was just deleted; its keys were written again before that.
            number = self._forgotten_number(tag, user)
        if number is None:
            return None
        owner, name = map(unquote, tag.split("#"))
        batch = BatchRef(owner, name, number)
        decision = Decision(batch, run="", is_done=True, is_forgotten=True)
        return LoggedDecision(decision, PhysicalOffset(0))

    def _forgotten_number(self, tag: str, user: str) -> int | None:
        """Return the number of the newest batch of a forgotten stream; None if it is none."""
        start, end = self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)
        known = self._forgotten
        if known.end > end:  # as in `_newest`
            known = _ForgottenRecords()
        found = self.forgotten(max(start, known.end), end)
        # Their keys are not kept in memory: each call of a server may have a journal of its own.
        records = [
            *(each for each in known.records if each.offset >= start),
            *(
                _ForgottenRecord(each.offset, each.physical_offset, *each.record.bounds)
                for each in found
            ),
        ]
        self._forgotten = _ForgottenRecords(end, records)
        keys = keys_for(tag, user)
        numbers = []
        for each in records:
            if any(each.first <= key <= each.last for key in keys):
                record = self._parsed(each.physical_offset)
                assert isinstance(record, ForgottenStreams)
                numbers.append(record.number(keys))
        return max((number for number in numbers if number is not None), default=None)

    def attempt(self, attempt_id: str) -> BatchAttempt | None:
        """Return the attempt with this id, if it is one."""
        found = self.logged_attempt(attempt_id)
        return None if found is None else found.attempt

    def logged_attempt(self, attempt_id: str) -> LoggedAttempt | None:
        """Return the attempt with this id and where its record lies."""
        entry = self._newest(
            attempt_id, "attempt", lambda found: isinstance(found.record, BatchAttempt)
        )
        # Remembered, but gone with the log: others don't know it any more, and may use the id.
        if entry is None or entry.physical_offset < self._reader.log.start:
            return None
        assert isinstance(entry.record, BatchAttempt)
        return LoggedAttempt(entry.record, entry.physical_offset)

    def logged_attempts(self, attempt_ids: Collection[str]) -> dict[str, LoggedAttempt]:
        """Return those of some attempts that are known; many are found in one pass."""
        found: dict[str, LoggedAttempt] = {}
        if len(attempt_ids) <= _FEW:
            for attempt_id in attempt_ids:
                logged = self.logged_attempt(attempt_id)
                if logged is not None:
                    found[attempt_id] = logged
            return found
        for entry in self._all_with(attempt_ids):
            if isinstance(entry.record, BatchAttempt):
                found[entry.record.id] = LoggedAttempt(entry.record, entry.physical_offset)
        return found

    def decisions(self, streams: Collection[Stream]) -> dict[Stream, LoggedDecision]:
        """Return the newest decision of each stream that has one, by tag and user."""
        found: dict[Stream, LoggedDecision] = {}
        if len(streams) <= _FEW:
            for stream in streams:
                logged = self.decision(*stream)
                if logged is not None:
                    found[stream] = logged
            return found
        wanted = frozenset(streams)
        for entry in self._all_with({tag for tag, _ in wanted}):
            if isinstance(entry.record, Decision):
                stream = (entry.record.tag, entry.record.user)
                if stream in wanted:
                    found[stream] = LoggedDecision(entry.record, entry.physical_offset)
        return found

    def delivered(self, level: int) -> int:
        """Return the offset up to which delayed messages of a level are delivered, 0 if unsaid.

        A record counts that speaks of messages which were there before it.
        """
        entry = self._newest(delay_tag(level), "delivered", self._is_delivered)
        if entry is None:
            return 0
        assert isinstance(entry.record, Delivered)
        return entry.record.offset

    def _is_delivered(self, found: JournalEntry) -> bool:
        """Tell whether a record says how far a level is delivered, and can be right."""
        if not isinstance(found.record, Delivered):
            return False
        last, queue_id = found.record.offset - 1, found.record.level - 1
        start, end = self._reader.queue_range(SCHEDULE_TOPIC, queue_id)
        if start <= last < end:
            entry = self._reader.entries(SCHEDULE_TOPIC, queue_id, last, last + 1)[0]
            is_right = int(entry["physical_offset"]) < found.physical_offset
        else:
            is_right = -1 <= last < start
        if not is_right:
            log.warning(
                "event=journal_record_ignored physical_offset=%d error=offset %s of delay level %d "
                "was not there yet",
                found.physical_offset,
                found.record.offset,
                found.record.level,
            )
        return is_right

    def forgotten(self, start: int, end: int) -> Iterator[LoggedForgotten]:
        """Yield the records of forgotten streams among [start, end), the newest first."""
        for offset, place in self._places(FORGOTTEN_TAG, start, end):
            record = self._parsed(place)
            if isinstance(record, ForgottenStreams):
                yield LoggedForgotten(record, offset, place)

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

    def _newest(self, tag: str, kind: str, fits: Fits, users: Users = None) -> JournalEntry | None:
        """Return the newest fitting record with a tag, searching what came since the last search.

        `kind` names what `fits` tells, so that the answer can be remembered. `users`: whose record
        can fit at all.
        """
        start, end = self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)
        memory = self._memories.pop((tag, kind), None)
        if memory is None or memory.end > end:  # a journal that shrank was deleted and made anew
            memory = _Memory(start, None)
        found = self._search(tag, max(start, memory.end), end, fits, users) or memory.newest
        self._memories[tag, kind] = _Memory(end, found)
        if len(self._memories) > _MAX_REMEMBERED:
            self._memories.popitem(last=False)
        return found

    def _search(
        self, tag: str, start: int, end: int, fits: Fits, users: Users
    ) -> JournalEntry | None:
        """Return the newest fitting record with a tag among [start, end), from the end."""
        for count, (offset, place) in enumerate(self._places(tag, start, end)):
            if count == _FEW:
                return self._search_many(tag, start, offset + 1, fits, users)
            record = self._parsed(place)
            # Tags of one hash may differ; only the record has the text.
            if record is not None and record.tag == tag:
                entry = JournalEntry(record, place)
                if fits(entry):
                    return entry
        return None

    def _search_many(
        self, tag: str, start: int, end: int, fits: Fits, users: Users
    ) -> JournalEntry | None:
        """Return what `_search` does, where others have many records of this tag or its hash.

        By columns: those of other tags and users are passed over without being parsed.
        """
        for stop in range(end, start, -_SOUGHT_ENTRIES):
            begin = max(start, stop - _SOUGHT_ENTRIES)
            for row in reversed(list(self._rows_with([tag], begin, stop, users))):
                entry = row.entry()
                if entry is not None and fits(entry):
                    return entry
        return None

    def _all_with(self, tags: Collection[str]) -> Iterator[JournalEntry]:
        """Yield all records that have one of some tags, in the order of the log."""
        for row in self._rows_with(tags, *self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)):
            entry = row.entry()
            if entry is not None:
                yield entry

    def _rows_with(
        self, tags: Collection[str], start: int, end: int, users: Users = None
    ) -> Iterator[_Row]:
        """Yield what has one of some tags and is of one of some users, among [start, end).

        A record about a user's batch has the name as a property too (`record_properties`).
        """
        hashes = np.array(sorted(map(java_hash, frozenset(tags))), dtype=np.int64)
        select = partial(rows_with, "tags_code", hashes)
        wanted = pa.array(sorted(tags), type=pa.string())
        for frames in self._reader.frames(BATCH_TOPIC, BATCH_QUEUE, start, end, select=select):
            if not len(frames):
                continue
            texts = property_columns(frames, [TAGS, PREPARED_BY])
            is_wanted = pc.is_in(texts[TAGS], wanted)
            if users is not None:
                is_theirs = pc.is_in(texts[PREPARED_BY].fill_null(""), pa.array(users))
                is_wanted = pc.and_(is_wanted, is_theirs)
            rows = np.flatnonzero(is_wanted.to_numpy(zero_copy_only=False))
            bodies = gather_spans(locate(frames).bodies.take(rows)).to_pylist()
            places = (frames.starts[rows] + (frames.origin or 0)).tolist()
            yield from map(_Row, bodies, texts[TAGS].take(rows).to_pylist(), places)

    def _places(self, tag: str, start: int, end: int) -> Iterator[tuple[int, PhysicalOffset]]:
        """Yield offset and physical offset of records with a tag's hash, the newest first."""
        wanted = java_hash(tag)
        for stop in range(end, start, -_STRETCH_ENTRIES):
            begin = max(start, stop - _STRETCH_ENTRIES)
            entries = self._reader.entries(BATCH_TOPIC, BATCH_QUEUE, begin, stop)
            for row in np.flatnonzero(entries["tags_code"] == wanted)[::-1].tolist():
                yield begin + row, PhysicalOffset(int(entries["physical_offset"][row]))

    def _parsed(self, offset: PhysicalOffset) -> JournalRecord | None:
        """Return the record at an offset; None, with a line in the log, if it makes no sense."""
        stored = self._reader.record_at(offset)
        return _record(stored.body, offset, stored.property_map.get(TAGS))


def _record(body: bytes, offset: PhysicalOffset, tag: str | None) -> JournalRecord | None:
    """Return a record of the journal; None, with a line in the log, if it makes no sense."""
    try:
        record = parse_body(body, offset)
    except CorruptRecordError as error:
        log.warning("event=journal_record_ignored physical_offset=%d error=%s", offset, error)
        return None
    # A record that is found by a tag other than its own was not written by a broker.
    return record if tag == record.tag else None


def rows_with(
    field: str, values: NDArray[np.int64], entries: NDArray[np.void], _: ConsumeQueueExt
) -> NDArray[np.intp]:
    """Return which consume-queue entries have one of some values, sorted, in a field."""
    # np.isin sorts or hashes the values each time, and few entries are looked at under the lock.
    if not len(values):
        return np.zeros(0, dtype=np.intp)
    found = entries[field]
    at = np.minimum(np.searchsorted(values, found), len(values) - 1)
    return np.flatnonzero(values[at] == found)
