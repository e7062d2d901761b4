"""Retention of decisions: what is carried along when the part of the log that holds it goes.

Problem. The newest decision of a stream of batches must outlive the log's files, or a replay is
written twice. A store that has seen many streams must not copy all of them each time a file is
deleted, nor let senders wait meanwhile; and most streams never come back.

Invariants.

1. Before a segment is deleted, the newest decision of each stream in it is copied behind it, or
   the stream is noted as forgotten (forgotten.py), or nobody will ask for it again (`keep` False,
   and done). Decisions that are not done are finished first. How far delayed messages are
   delivered, and attempts that still have open half messages, are always copied.
2. A copy is never the newest of a stream that was decided since: under the lock, the append looks
   at all that came to the journal behind what was read, and fails if one of the tags is there.
3. Copies and forgotten streams are one append, whole or not at all. (Beyond 262,144 forgotten
   keys others go before it. A crash in between does no harm: a stream that has a decision in the
   log is not forgotten, whatever is noted.)
4. New records lie behind what goes, so what was done for a physical offset is done for good:
   StoreWriter has it done without the lock, and nothing of it again under the lock.

Outline. Entries of the journal's consume queue are in the order of physical offsets, so what goes
is the first part of it. Its records are read, by columns. Of the rest only those records are read
whose tag has the hash of a tag that goes: those of streams that are alive, as a rule. The plan
(decision_retention_plan.py) then says of each stream if it is copied or forgotten.

    batchDecisionReservedTime    a stream that decided nothing for longer is forgotten
    batchDecisionCarryMax        streams that one run copies, at most; users take turns

Age counts from the broker's clock when the decision was made: its born time, which copies keep. Its
store time would be that of the last copy.

The bound. Under the lock nothing is read but what came to the journal since, and one append is
written, of at most `batchDecisionCarryMax` records (100,000 have 36 MiB) and 64 of forgotten
streams, whatever the number of streams. A few more may be levels of delay, decisions that are not
done, and streams that share owner and name with one that is copied. Copies lie together and are
copied again only when their own segment goes, once in the time that the log is kept.

Rejected.

- A table of the newest decisions in memory, or in a file: it would have to be made anew by each
  process, or be a second truth beside the log.
- Many small appends: streams that share owner and name would have to stay together, and a crash in
  between would have to be told from a run that is over.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.broker.transactions.decision_lookup import BATCH_QUEUE, rows_with
from broker_core.broker.transactions.decision_retention_plan import NewestDecisions, State, plan
from broker_core.broker.transactions.forgotten import ForgottenStreams
from broker_core.broker.transactions.half_blocks import block_bytes
from broker_core.broker.transactions.settle import SettledElsewhereError
from broker_core.codec.decode import property_columns
from broker_core.codec.fields import locate
from broker_core.codec.hashing.java import java_hashes
from broker_core.codec.message_batch import Destinations
from broker_core.codec.property_names import BATCH_TOPIC, PREPARED_BY, TAGS
from broker_core.codec.record_copy import copy_records
from broker_core.codec.spans import gather_spans
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.transactions.decision_lookup import LoggedDecision
    from broker_core.broker.transactions.tools import BatchTools
    from broker_core.codec.frames import FrameBatch

_HOUR_MS = 3_600_000
_TRIES = 3
"""Tries without the lock; the one after them holds it."""
_APPEND_RECORDS = 64
"""Records of forgotten streams in one append: 5.5 MiB."""
# The four never stand in a text of these documents: JSON escapes the quotes there.
_DONE, _DECISION, _DELIVERED = '"kind":"done"', '"kind":"decision"', '"kind":"delivered"'
_KEEP_NOT = '"keep":false'
# All numbers of up to 19 digits are below 2^64.
_NUMBER = r'"batch":(?P<number>[0-9]{1,19})[,}]'
_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("tag", pa.string()),
        ("user", pa.string()),
        ("place", pa.int64()),
        ("born_ms", pa.int64()),
        ("state", pa.int64()),
        ("number", pa.uint64()),
    ]
)
log = logging.getLogger(__name__)
Finish = Callable[["LoggedDecision"], bool]
"""Makes all that a decision names visible, and notes that it is done; False if it can't be."""


@dataclass(frozen=True)
class _Kept:
    """What outlives a part of the log, planned when the journal had `end` records.

    `places` are the physical offsets of records that are copied, `hashes` the hashes of their
    tags; both are sorted. `streams` are the streams that they are of.
    """

    start: int
    end: int
    places: NDArray[np.int64]
    hashes: NDArray[np.int64]
    streams: frozenset[str]
    forgotten: ForgottenStreams


class DecisionRetention:
    """Carries the decisions of one store along, and forgets streams. Not thread-safe."""

    def __init__(self, tools: BatchTools, finish: Finish) -> None:
        self._finish = finish
        self._reader = tools.reader
        self._writer = tools.writer
        self._journal = tools.journal
        self._clock_ms = tools.clock_ms

    def carry(self, physical_offset: int, attempts: Sequence[int] = ()) -> None:
        """Append again what is needed of the journal before an offset of the log.

        `attempts` are the physical offsets of records of attempts that are needed too. Returns when
        it is durable. Not to be called under the store's lock, which it takes once.
        """
        for _ in range(_TRIES):
            # A stream that came back after a long time, just now, spoils a try. Each does so once,
            # but whoever has many old streams could do it for long.
            with suppress(SettledElsewhereError):
                return self._carry(physical_offset, attempts)
        with self._writer.turn("carry decisions along"):
            return self._carry(physical_offset, attempts)

    def _carry(self, physical_offset: int, attempts: Sequence[int]) -> None:
        """Carry along; SettledElsewhereError, with nothing of it done, if a stream came back."""
        kept = self._plan(physical_offset, attempts)
        self._append(kept)
        if len(kept.places) or len(kept.forgotten):
            log.info(
                "event=decisions_carried before=%d streams=%d forgotten=%d",
                physical_offset,
                len(kept.places),
                len(kept.forgotten),
            )

    # Planning

    def _plan(self, before: int, attempts: Sequence[int]) -> _Kept:
        """Return what must outlive the log before a physical offset."""
        start, end = self._reader.queue_range(BATCH_TOPIC, BATCH_QUEUE)
        stop = start + bisect_left(range(start, end), before, key=self._place)
        found = self._newest(start, stop, end)
        if self._finish_all(found, before):
            return self._plan(before, attempts)
        settings = self._writer.settings
        oldest_ms = self._clock_ms() - settings.batch_decision_reserved_hours * _HOUR_MS
        newest = NewestDecisions(
            _codes(found["tag"]),
            _codes(found["user"]),
            *(found[name].to_numpy() for name in ("place", "born_ms", "state")),
        )
        planned = plan(newest, before, oldest_ms, settings.batch_decision_carry_max)
        carried, gone = found.take(planned.carried), found.take(planned.forgotten)
        streams = ForgottenStreams.of_streams(
            *(gone[name].to_pylist() for name in ("tag", "user", "number"))
        )
        earlier = [each.record for each in self._journal.forgotten(start, stop)]
        return _Kept(
            start,
            end,
            np.union1d(carried["place"].to_numpy(), np.array(attempts, dtype=np.int64)),
            _hashes(carried),
            frozenset(carried["stream"].to_pylist()),
            ForgottenStreams.join([streams, *earlier]),
        )

    def _finish_all(self, found: pa.Table, before: int) -> bool:
        """Finish the decisions that go and are not done; tell whether there were any.

        The op messages of their half messages may go with them, and without those it could not be
        told any more what was visible already.
        """
        lasting = found.filter(
            pc.and_(pc.equal(found["state"], int(State.LASTING)), pc.less(found["place"], before))
        )
        has_any = False
        for tag, user in zip(lasting["tag"].to_pylist(), lasting["user"].to_pylist(), strict=True):
            newest = self._journal.decision(tag, user)
            if newest is None or newest.decision.is_done:
                continue
            has_any |= self._finish(newest)
        return has_any

    def _place(self, number: int) -> int:
        """Return the physical offset of a record of the journal."""
        entry = self._reader.entries(BATCH_TOPIC, BATCH_QUEUE, number, number + 1)[0]
        return int(entry["physical_offset"])

    def _newest(self, start: int, stop: int, end: int) -> pa.Table:
        """Return the newest decision of each stream that has one among [start, stop).

        Of [stop, end) some others are among them: their tags have equal hashes.
        """
        frames = self._reader.frames(BATCH_TOPIC, BATCH_QUEUE, start, stop)
        leaving = _newest_of(map(_decisions, frames))
        select = partial(rows_with, "tags_code", _hashes(leaving))
        later = self._reader.frames(BATCH_TOPIC, BATCH_QUEUE, stop, end, select=select)
        return _newest_of([leaving, *map(_decisions, later)])

    # Appending

    def _append(self, kept: _Kept) -> None:
        """Append what is kept, in one append; only very many forgotten streams take more."""
        settings = self._writer.settings
        records = list(kept.forgotten.split(block_bytes(settings)))
        notes = [
            Batch.of_messages(
                self._journal.records(
                    records[at : at + _APPEND_RECORDS], self._clock_ms(), settings.store_host
                )
            )
            for at in range(0, len(records), _APPEND_RECORDS)
        ]
        for note in notes[:-1]:
            self._writer.append(note, flush="async")
        last = [*notes[-1:], *self._copies(kept)]
        if last:
            guard = partial(self._require_nothing_newer, kept)
            self._writer.append(Batch.join(last), flush="async", guard=guard)
            # Whatever the store's setting: the originals are deleted next. Without the lock.
            self._writer.flush()

    def _copies(self, kept: _Kept) -> Iterator[Batch]:
        """Yield copies of the records that are carried along, as they are but for their places."""
        if not len(kept.places):
            return
        select = partial(rows_with, "physical_offset", kept.places)
        for frames in self._reader.frames(
            BATCH_TOPIC, BATCH_QUEUE, kept.start, kept.end, select=select
        ):
            if len(frames):
                fields = locate(frames)
                to = Destinations.to_queue(BATCH_TOPIC, BATCH_QUEUE, len(frames))
                copies = copy_records(fields, to, fields.properties, transaction=None)
                yield Batch.of_copies(copies, to)

    def _require_nothing_newer(self, kept: _Kept) -> None:
        """Raise SettledElsewhereError if one of the streams was decided since.

        Runs under the store's lock.
        """
        end = self._journal.end()
        select = partial(rows_with, "tags_code", kept.hashes)
        for frames in self._reader.frames(BATCH_TOPIC, BATCH_QUEUE, kept.end, end, select=select):
            # Tags of one hash may differ, and be of anybody.
            if len(frames) and not kept.streams.isdisjoint(
                _decisions(frames)["stream"].to_pylist()
            ):
                raise SettledElsewhereError


def _hashes(decisions: pa.Table) -> NDArray[np.int64]:
    """Return the hashes of tags as consume-queue entries have them, sorted."""
    return np.sort(java_hashes(decisions["tag"].combine_chunks()).astype(np.int64))


def _decisions(frames: FrameBatch) -> pa.Table:
    """Return the last decision of each stream in a batch, and how far delays are delivered."""
    bodies = gather_spans(locate(frames).bodies)
    is_done = pc.match_substring(bodies, _DONE)
    is_other = pc.or_(pc.match_substring(bodies, _DECISION), pc.match_substring(bodies, _DELIVERED))
    # By what the body says: attempts of early versions may have any tag.
    rows = np.flatnonzero(pc.or_(is_done, is_other))
    columns = property_columns(frames.select(rows), [TAGS, PREPARED_BY])
    # Nobody finds a record without a tag; all of them are one stream, without a name.
    tags, users = columns[TAGS].fill_null(""), columns[PREPARED_BY].fill_null("")
    streams = pc.binary_join_element_wise(tags, users, " ")
    last = _last_rows(streams)
    rows = rows[last]
    fields, bodies = locate(frames.select(rows)), bodies.take(pa.array(rows))
    # As bytes: a body that is no UTF-8 is odd, and must not stop retention. Digits always are.
    numbers = pc.struct_field(pc.extract_regex(bodies, _NUMBER), "number").cast(pa.string())
    is_done = is_done.take(pa.array(rows)).to_numpy(zero_copy_only=False)
    is_over = is_done & pc.match_substring(bodies, _KEEP_NOT).to_numpy(zero_copy_only=False)
    is_known = numbers.is_valid().to_numpy(zero_copy_only=False)
    states = np.where(is_over, State.OVER, np.where(is_done & is_known, State.DONE, State.LASTING))
    return pa.table(
        [
            streams.take(pa.array(last)),
            tags.take(pa.array(last)),
            users.take(pa.array(last)),
            fields.integer("physicalOffset").astype(np.int64),
            fields.integer("bornTimestamp").astype(np.int64),
            states.astype(np.int64),
            numbers.cast(pa.uint64()),
        ],
        schema=_SCHEMA,
    )


def _newest_of(parts: Iterable[pa.Table]) -> pa.Table:
    """Return the last row of each stream; the parts are in the order of the log."""
    whole = pa.concat_tables([_SCHEMA.empty_table(), *parts]).combine_chunks()
    return whole.take(pa.array(_last_rows(whole["stream"].combine_chunks())))


def _last_rows(names: pa.Array) -> NDArray[np.intp]:
    """Return the number of the last row with each name, in increasing order."""
    coded = pc.dictionary_encode(names)
    last = np.zeros(len(coded.dictionary), dtype=np.intp)
    last[coded.indices.to_numpy()] = np.arange(len(names))  # of several with one name, the last
    return np.sort(last)


def _codes(texts: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a number for each text, the same one for equal texts."""
    codes: NDArray[np.int64] = (
        pc.dictionary_encode(texts.combine_chunks()).indices.to_numpy().astype(np.int64)
    )
    return codes
