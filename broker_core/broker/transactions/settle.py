"""Settling half messages: whatever is done to one, its op message is written in the same append.

So a half message without an op message is open, for every process and whenever its broker died.
Four things settle one: a commit (visible copies of what it holds, unpack.py), a rollback (nothing
but the op), asking its producer again (a copy in the half queue) and giving it up (a copy in the
discard topic). `Settlement` is the records of any of the four; `HalfSettler.settle` appends them.

Several processes may be about to settle the same half message. Each append therefore looks at the
op queue (op.py) once it holds the store's lock, and raises SettledElsewhereError, with nothing
written, if one of its half messages is settled already. The caller looks again and goes on.

Only losing power in the middle of an append breaks the pair, for then the log is cut anywhere: a
visible copy can be left without its op, also some of a block and not the rest. `copied` finds such
copies by the prepared offset and the unique key that they carry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.broker.transactions.decision_records import runs_of
from broker_core.broker.transactions.half import HALF_QUEUE
from broker_core.broker.transactions.op import op_messages
from broker_core.broker.transactions.routes import Routes
from broker_core.broker.transactions.unpack import names_of, visible_copies
from broker_core.codec.fields import locate
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.property_names import HALF_TOPIC
from broker_core.concurrency import map_ahead
from broker_core.errors import IllegalMessageError
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.topics import TopicConfig
    from broker_core.broker.transactions.op import SettledHalves
    from broker_core.broker.transactions.unpack import VisibleCopies
    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.message_batch import Destinations
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter
    from broker_core.types import AppendResult, PhysicalOffset

APPEND_ROWS = 100_000
APPEND_BYTES = 32 << 20
"""The most half messages, and about the most bytes of them, that one append settles."""

log = logging.getLogger(__name__)
_STRETCH_ENTRIES = 100_000
_NOTHING = np.zeros(0, dtype=np.int64)

Copies = Callable[["NDArray[np.int64]"], list[Batch]]
"""Makes the copies that settle half messages."""
Guard = Callable[[], None]
"""Called under the store's lock, before anything is written; what it raises ends the append."""


class SettledElsewhereError(Exception):
    """Another process decided or settled something first: look again. Never leaves the broker."""


class TopicsChangedError(SettledElsewhereError):
    """A topic that copies are for was changed or deleted since they were made."""


@dataclass(frozen=True)
class Settlement:
    """The records that settle some half messages: copies, if any, and then `op_count` ops.

    `routes` are the topics by which the copies were routed.
    """

    offsets: NDArray[np.int64]
    records: Batch
    op_count: int
    routes: Routes | None = None

    def __len__(self) -> int:
        return len(self.offsets)


class HalfSettler:
    """Reads half messages of one store and settles them. Not thread-safe."""

    def __init__(
        self,
        reader: StoreReader,
        writer: StoreWriter,
        clock_ms: Callable[[], int],
        topics: Callable[[], Mapping[str, TopicConfig]],
        *,
        append_rows: int = APPEND_ROWS,
        append_bytes: int = APPEND_BYTES,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._clock_ms = clock_ms
        self._topics = topics
        self._append_rows = append_rows
        self._append_bytes = append_bytes

    # The append

    def settle(
        self,
        settlement: Settlement,
        settled: SettledHalves,
        *,
        before: Sequence[Batch] = (),
        after: Sequence[Batch] = (),
        guard: Guard | None = None,
        flush: str | None = None,
    ) -> AppendResult:
        """Append a settlement, between other records, if all of its half messages are open.

        SettledElsewhereError if one is not, or if a topic has changed since, or whatever `guard`
        raises; then nothing is written.
        """
        whole = Batch.join([*before, settlement.records, *after])

        def check() -> None:
            _require_open(settlement.offsets, settled, guard)
            self._require_same_topics(settlement)

        placed = self._writer.append(whole, flush=flush, guard=check)
        # The check read the op queue to its end under the lock, so the next ops are our own.
        settled.add(settlement.offsets, settlement.op_count)
        return placed

    def settle_each(
        self,
        offsets: NDArray[np.int64],
        ways: Sequence[Copies],
        settled: SettledHalves,
        guard: Callable[[NDArray[np.int64]], None] | None = None,
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Settle half messages with copies; yield after each append how many, and their offsets.

        The copies are made by the first of `ways`. A half message that can't be copied so hurts no
        other: it is found by halving, and the next way is tried with it alone; then no offsets are
        yielded. It ends early if another process settles or decides first: the caller looks again.
        """
        left = [(portion, 0) for portion in reversed(self.split(offsets))]
        while left:
            portion, way = left.pop()
            check = None if guard is None else partial(guard, portion)
            try:
                settlement = self.settlement(portion, ways[way](portion))
                placed = self.settle(settlement, settled, guard=check)
            except SettledElsewhereError:
                return
            except IllegalMessageError as error:
                left += _smaller(portion, way, error)
                continue
            yield len(portion), placed.queue_offsets[: 0 if way else len(portion)]

    def _require_same_topics(self, settlement: Settlement) -> None:
        """Raise TopicsChangedError if copies might go elsewhere now. Runs under the lock."""
        if settlement.routes is None:
            return
        known, now = settlement.routes.topics, self._topics()
        route = settlement.records.route
        if known is not now and any(known.get(topic) != now.get(topic) for topic in route.topics):
            raise TopicsChangedError

    # What is appended

    def settlement(self, offsets: NDArray[np.int64], copies: Sequence[Batch] = ()) -> Settlement:
        """Return what settles some half messages: the copies given, and their ops."""
        host = self._writer.settings.store_host
        ops = Batch.of_messages(op_messages(offsets, self._clock_ms(), host))
        return Settlement(offsets, Batch.join([*copies, ops]), len(ops))

    def commits(
        self,
        offsets: NDArray[np.int64],
        copied: NDArray[np.int64] = _NOTHING,
        *,
        is_decision: bool = False,
    ) -> Generator[Settlement, None, None]:
        """Yield what makes half messages visible, in their order, one settlement an append.

        Messages prepared at a physical offset in `copied` are visible already and left out. With
        `is_decision` the first append decides: TopicNotFoundError or PermissionDeniedError if one
        of its topics can't be written to; once decided, rows of a topic that is gone are dropped
        (routes.py). The next settlements are made ready in another thread while one is being
        appended.
        """
        routes = self.routes()
        read = (
            (portion, list(self.frames(portion)), is_decision and number == 0)
            for number, portion in enumerate(self.split(offsets))
        )
        return map_ahead(partial(self._commit, copied, routes), read)

    def routes(self) -> Routes:
        """Return where messages go, by the topics as they are now."""
        return Routes(self._topics(), self._reader.root)

    def _commit(
        self,
        copied: NDArray[np.int64],
        routes: Routes,
        read: tuple[NDArray[np.int64], Sequence[FrameBatch], bool],
    ) -> Settlement:
        """Make one settlement. Pure but for the time of day, so any thread may do it."""
        offsets, frames, is_decision = read
        missing = [copies.without(copied) for batch in frames for copies in visible_copies(batch)]
        if is_decision:
            routes.require({topic for copies in missing for topic in copies.destinations.topics})
        routed = [routes.routed(copies) for copies in missing]
        settlement = self.settlement(offsets, [copies.batch() for copies in routed if len(copies)])
        settlement = replace(settlement, routes=routes)
        # All that does not need the lock is done here: copies are most of what a commit writes.
        settlement.records.make_ready()
        return settlement

    # Reading half messages

    def split(self, offsets: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split half messages, in their order, into what one append settles each."""
        sizes = [
            self._reader.entries(HALF_TOPIC, HALF_QUEUE, start, end)["size"]
            for start, end in runs_of(offsets)
        ]
        filled = np.cumsum(np.concatenate(sizes), dtype=np.int64) if sizes else np.zeros(0)
        found = []
        first = 0
        while first < len(offsets):
            limit = (int(filled[first - 1]) if first else 0) + self._append_bytes
            last = max(first + 1, int(np.searchsorted(filled, limit, side="right")))
            last = min(last, first + self._append_rows)
            found.append(offsets[first:last])
            first = last
        return found

    def frames(self, offsets: NDArray[np.int64]) -> Iterator[FrameBatch]:
        """Yield the records of half messages, in the order of the offsets."""
        for start, end in runs_of(offsets):
            yield from self._reader.frames(
                HALF_TOPIC,
                HALF_QUEUE,
                start,
                end,
                batch_rows=self._append_rows,
                batch_bytes=self._append_bytes,
            )

    # After a loss of power

    def copied(
        self, offsets: NDArray[np.int64], physical_offset: PhysicalOffset
    ) -> NDArray[np.int64]:
        """Return what is visible of half messages though no op says so, by its prepared offset.

        The copies lie in the log behind `physical_offset`, where the decision lies. Of a block
        some may be there and the rest not. Only the queues that the half messages name, or are
        routed to, are searched. Only commits count (transaction bits 0x8), for in no other record
        is the prepared offset the broker's word, and only with the unique key of what was prepared.
        """
        queues: set[tuple[str, int]] = set()
        routes = self.routes()
        wanted = [_NOTHING]
        for copies in self._visible_copies(offsets):
            to = copies.destinations
            queues |= _queues(to) | _queues(replace(to, queue_ids=routes.queue_ids(to)))
            wanted.append(copies.prepared_offsets)
        prepared = np.concatenate(wanted)
        names = [
            found
            for topic, queue_id in sorted(queues)
            for found in self._commits_of(topic, queue_id, physical_offset, prepared)
        ]
        if not names:
            return _NOTHING
        # Rare: so keys are looked for only now.
        there = pa.concat_arrays(names)
        own = ((each.prepared_offsets, each.names()) for each in self._visible_copies(offsets))
        return np.concatenate([some[pc.is_in(named, there).to_numpy(False)] for some, named in own])

    def _visible_copies(self, offsets: NDArray[np.int64]) -> Iterator[VisibleCopies]:
        """Yield the copies that make half messages visible."""
        for frames in self.frames(offsets):
            yield from visible_copies(frames)

    def _commits_of(
        self,
        topic: str,
        queue_id: int,
        physical_offset: PhysicalOffset,
        prepared: NDArray[np.int64],
    ) -> Iterator[pa.Array]:
        """Yield the names of a queue's commits of what was prepared, behind an offset of the log.

        `names_of` (unpack.py) says what a name is.
        """
        start, stop = self._reader.queue_range(topic, queue_id)
        # From the newest backwards: what a crash left lies near the end of a long queue.
        while stop > start:
            begin = max(start, stop - _STRETCH_ENTRIES)
            entries = self._reader.entries(topic, queue_id, begin, stop)
            offsets = entries["physical_offset"].astype(np.int64)
            first = begin + int(np.searchsorted(offsets, physical_offset))
            for frames in self._reader.frames(topic, queue_id, first, stop):
                if len(frames):
                    fields = locate(frames)
                    is_commit = (fields.sys_flags & TRANSACTION_MASK) == SysFlag.COMMIT
                    origins = fields.integer("preparedTransactionOffset").astype(np.int64)
                    rows = np.flatnonzero(is_commit & np.isin(origins, prepared))
                    if len(rows):
                        yield names_of(origins[rows], fields.properties.take(rows))
            if first > begin:
                return
            stop = begin


def _require_open(offsets: NDArray[np.int64], settled: SettledHalves, guard: Guard | None) -> None:
    """Raise SettledElsewhereError if a half message is settled. Runs under the store's lock."""
    # The guard first: it may know better than "look again" what has happened.
    if guard is not None:
        guard()
    settled.refresh()
    if settled.are_settled(offsets).any():
        raise SettledElsewhereError


def no_copies(_: NDArray[np.int64]) -> list[Batch]:
    """Return nothing: so a half message is settled that is rolled back."""
    return []


def _smaller(
    portion: NDArray[np.int64], way: int, error: IllegalMessageError
) -> list[tuple[NDArray[np.int64], int]]:
    """Return what to try with half messages of which one can't be copied, the first thing last."""
    middle = len(portion) // 2
    if middle:
        return [(portion[middle:], way), (portion[:middle], way)]
    log.warning("event=half_message_not_copied half_offset=%d error=%s", int(portion[0]), error)
    return [(portion, way + 1)]


def _queues(destinations: Destinations) -> set[tuple[str, int]]:
    """Return the distinct queues among destinations."""
    width = int(destinations.queue_ids.max(initial=0)) + 1
    codes = np.unique(destinations.topic_codes.astype(np.int64) * width + destinations.queue_ids)
    return {(destinations.topics[code // width], code % width) for code in codes.tolist()}
