"""Settling half messages: whatever is done to one, its op message is written in the same append.

So a half message without an op message is open, whoever looks at it and whenever its broker died.
Several processes may be about to settle the same one: each append looks first, under the store's
lock, and nothing happens if someone was faster.

Only losing power in the middle of an append breaks the pair, for then the log is cut anywhere: a
visible copy can be left without its op, also some of a block and not the rest. `copied` finds such
copies by the prepared offset that they carry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from broker_core.broker.transactions.decisions import runs_of
from broker_core.broker.transactions.half import HALF_QUEUE
from broker_core.broker.transactions.op import op_messages
from broker_core.broker.transactions.unpack import visible
from broker_core.codec.fields import locate
from broker_core.codec.property_names import HALF_TOPIC
from broker_core.store.batch import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.transactions.resolved import ResolvedHalves
    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.record_copy import Destinations
    from broker_core.store.reader import StoreReader
    from broker_core.store.writer import StoreWriter
    from broker_core.types import AppendResult

PIECE_ROWS = 100_000
PIECE_BYTES = 32 << 20
_STRETCH_ENTRIES = 100_000
_AHEAD = 2
_NOTHING = np.zeros(0, dtype=np.int64)

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class SettledElsewhereError(Exception):
    """Someone else decided or settled something in between: look again. Never leaves the broker."""


@dataclass(frozen=True)
class Settlement:
    """What settles some half messages: copies of them, if any, and `ops` messages that say so."""

    offsets: NDArray[np.int64]
    records: Batch
    ops: int

    def __len__(self) -> int:
        return len(self.offsets)


class HalfSettler:
    """Reads half messages of one store and settles them. Not thread-safe.

    A piece, the unit of an append, has at most so many messages, and about so many bytes.
    """

    def __init__(
        self,
        reader: StoreReader,
        writer: StoreWriter,
        clock_ms: Callable[[], int],
        *,
        piece_rows: int = PIECE_ROWS,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._clock_ms = clock_ms
        self._piece_rows = piece_rows
        self._piece_bytes = piece_bytes

    def settle(
        self,
        settlement: Settlement,
        fates: ResolvedHalves,
        *,
        opening: Sequence[Batch] = (),
        closing: Sequence[Batch] = (),
        guard: Callable[[], None] | None = None,
        flush: str | None = None,
    ) -> AppendResult:
        """Append what settles half messages, between other records, if all of them are open.

        SettledElsewhereError if one is not; what `guard` raises under the lock, if it does.
        """
        offsets = settlement.offsets

        def look_first() -> None:
            if guard is not None:
                guard()
            fates.refresh()
            if fates.are_decided(offsets).any():
                raise SettledElsewhereError

        whole = Batch.join([*opening, settlement.records, *closing])
        placed = self._writer.append(whole, flush=flush, guard=look_first)
        fates.skip(settlement.ops)
        return placed

    def settlement(self, offsets: NDArray[np.int64], copies: Sequence[Batch] = ()) -> Settlement:
        """What settles some half messages: copies of them, or none, and their ops."""
        ops = self._ops(offsets)
        return Settlement(offsets, Batch.join([*copies, ops]), len(ops))

    def commits(
        self, offsets: NDArray[np.int64], copied: NDArray[np.int64] = _NOTHING
    ) -> Generator[Settlement, None, None]:
        """What makes half messages visible, in their order, piece by piece.

        What was prepared at places in `copied` is visible already. The next pieces are made
        ready in another thread while one is being appended.
        """
        pieces = ((piece, list(self.frames(piece))) for piece in self.pieces(offsets))
        return ahead(lambda piece: self._commit(*piece, copied), pieces)

    def _commit(
        self,
        offsets: NDArray[np.int64],
        frames: Sequence[FrameBatch],
        copied: NDArray[np.int64],
    ) -> Settlement:
        """Pure but for the time of day, so that any thread may do it."""
        missing = [each.without(copied) for batch in frames for each in visible(batch)]
        settlement = self.settlement(offsets, [each.batch() for each in missing if len(each)])
        settlement.records.make_ready()
        return settlement

    def pieces(self, offsets: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Half messages, in their order, in pieces of a bounded size."""
        sizes = [
            self._reader.entries(HALF_TOPIC, HALF_QUEUE, start, end)["size"]
            for start, end in runs_of(offsets)
        ]
        filled = np.cumsum(np.concatenate(sizes), dtype=np.int64) if sizes else np.zeros(0)
        found = []
        first = 0
        while first < len(offsets):
            limit = (int(filled[first - 1]) if first else 0) + self._piece_bytes
            last = max(first + 1, int(np.searchsorted(filled, limit, side="right")))
            last = min(last, first + self._piece_rows)
            found.append(offsets[first:last])
            first = last
        return found

    def frames(self, offsets: NDArray[np.int64]) -> Iterator[FrameBatch]:
        """The records of half messages, in the order of the offsets."""
        for start, end in runs_of(offsets):
            yield from self._reader.frames(
                HALF_TOPIC,
                HALF_QUEUE,
                start,
                end,
                batch_rows=self._piece_rows,
                batch_bytes=self._piece_bytes,
            )

    def copied(self, offsets: NDArray[np.int64], place: int) -> NDArray[np.int64]:
        """What is visible of half messages though no op says so, by where it was prepared.

        The copies lie in the log behind `place`. Of a block some may be there and the rest not.
        """
        queues: set[tuple[str, int]] = set()
        for frames in self.frames(offsets):
            for each in visible(frames):
                queues |= _queues(each.route)
        found = [
            prepared
            for topic, queue_id in sorted(queues)
            for prepared in self._prepared_offsets(topic, queue_id, place)
        ]
        return np.concatenate(found) if found else _NOTHING

    def _prepared_offsets(
        self, topic: str, queue_id: int, place: int
    ) -> Iterator[NDArray[np.int64]]:
        """The prepared offsets of a queue's records that lie behind an offset of the log."""
        start, stop = self._reader.queue_range(topic, queue_id)
        while stop > start:
            begin = max(start, stop - _STRETCH_ENTRIES)
            places = self._reader.entries(topic, queue_id, begin, stop)["physical_offset"]
            first = begin + int(np.searchsorted(places.astype(np.int64), place))
            for frames in self._reader.frames(topic, queue_id, first, stop):
                if len(frames):
                    yield locate(frames).integer("preparedTransactionOffset").astype(np.int64)
            if first > begin:
                return
            stop = begin

    def _ops(self, offsets: NDArray[np.int64]) -> Batch:
        host = self._writer.settings.store_host
        return Batch.of_messages(op_messages(offsets, self._clock_ms(), host))


def ahead(make: Callable[[_Item], _Made], items: Iterable[_Item]) -> Generator[_Made, None, None]:
    """Yield what is made of each item, in order, making the next ones in another thread.

    Items are drawn in the caller's thread, at most a few before they are asked for.

    >>> list(ahead(str, range(5)))
    ['0', '1', '2', '3', '4']
    """
    rest = iter(items)
    first = list(islice(rest, _AHEAD))
    if len(first) < _AHEAD:
        yield from map(make, first)
        return
    # One thread: the caller's is busy too, and so is one beside it while the log is written.
    with ThreadPoolExecutor(1) as thread:
        pending = deque(thread.submit(make, item) for item in first)
        while pending:
            done = pending.popleft().result()
            pending.extend(thread.submit(make, item) for item in islice(rest, 1))
            yield done


def _queues(route: Destinations) -> set[tuple[str, int]]:
    """The distinct queues of a route."""
    width = int(route.queue_ids.max(initial=0)) + 1
    codes = np.unique(route.topic_codes.astype(np.int64) * width + route.queue_ids)
    return {(route.topics[code // width], code % width) for code in codes.tolist()}
