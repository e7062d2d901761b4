"""Log first: the quick way into the log, for few records; queues and index follow later.

Problem. An append of many records marks, writes log, queues and index, and marks again. For one
record that is a hundred times the work that acknowledging it needs: it is in the log.

Invariants (docs/decisions/0019-log-first-dispatch-after.md).

- What lies between the marker's `dispatched_end` and the end of what counts is the pending tail. It
  has at most MOST_PENDING_RECORDS and MOST_PENDING_BYTES, and lies in one segment.
- [log_end, pending_end) counts if and only if it has the CRC-32 that the marker says. So an append
  of several records is there as a whole or not at all, and needs no second marker.
- Room for the tail's queue entries and index keys is allocated before it is acknowledged.
- Only this session's records are pending: those of others are dispatched when the lock is taken.

Outline, under the lock: number the records, claim room, mark PENDING, write the log once; with
flush="sync" one fsync. An append that fails marks APPENDING, zeroes what it wrote, and marks the
tail as it was. What the quick way can't take, because it needs a new file for one, is left to
writer.py; so is all that is appended within a turn, or under a guard.

session.py dispatches. Readers lay the tail over the queues: pending_tail.py.
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING

from broker_core.codec import layout
from broker_core.jit import availability
from broker_core.store.io.files import Failpoint
from broker_core.store.recovery.tail_marker import TailMarker, TailState

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.store.components import StoreComponents
    from broker_core.store.few_records import FewRecords
    from broker_core.store.queue.writer import QueueKey
    from broker_core.store.session import StoreSession

MOST_PENDING_RECORDS = 4096
MOST_PENDING_BYTES = 1 << 20
_UNCOMPILED_RECORDS = 2000
"""Records to dispatch at a time where no kernels are loaded: too few to load them, which takes as
long as 100,000 records take without."""
_KEYS_AHEAD = 1000
log = logging.getLogger(__name__)

Placed = tuple[list[int], int, int]
"""Where few records lie: their queue offsets, the first's physical offset, their store time."""


class LogFirst:
    """The quick way into one store's log, for one session. To be used in its turns."""

    def __init__(self, session: StoreSession, clock_ms: Callable[[], int]) -> None:
        self._session = session
        self._components: StoreComponents = session.components
        self._clock_ms = clock_ms
        self._ends: dict[QueueKey, int] = {}
        self.changes = 0
        """Grows whenever somebody has written anything else than quick appends of this session."""
        # The tail that the fields below speak of; another one was marked by somebody else.
        self._tail: TailMarker | None = None
        self._end = 0
        self._last_start = 0
        self._last_store_ms = 0
        self._records = 0
        self._most_records = 0
        self._keys = 0
        self._claimed_keys = 0

    def append(self, few: FewRecords, *, is_sync: bool) -> Placed | None:
        """Append records, and return where they lie; None if they must go the way of many.

        In a turn that began without dispatching. OSError if the disk refuses: nothing was written.
        """
        session = self._session
        if session.tail is not self._tail:
            self.begin()
        size = len(few.data)
        start = self._end
        file_bytes = self._components.log.file_bytes
        used = start % file_bytes
        if not used or size + layout.BLANK_BYTES > file_bytes - used:
            return None
        self._bound(len(few.sizes), size)
        queue_offsets = self._numbers(few.queues)
        if not self._claim(few, queue_offsets):
            return None
        # Asked again: numbering a queue for the first time may have repaired the store.
        if self._end != start:
            return None
        store_ms = max(self._clock_ms(), self._last_store_ms)
        few.place(queue_offsets, start, store_ms)
        self._write(few, start, is_sync=is_sync)
        for queue, offset in zip(few.queues, queue_offsets, strict=True):
            self._ends[queue] = offset + 1
        self._tail, self._end = session.tail, start + size
        self._last_start = start + size - few.sizes[-1]
        self._last_store_ms = store_ms
        self._records += len(few.sizes)
        self._keys += few.keys
        return queue_offsets, start, store_ms

    def look(self) -> int:
        """Return `changes` as of now; in a turn that began without dispatching."""
        if self._session.tail is not self._tail:
            self.begin()
        return self.changes

    def begin(self) -> None:
        """Go on behind a marker that was not written here."""
        self.changes += 1
        # Nothing that this session has not written can be pending, and what was is dispatched, or
        # queues and index would not tell where to go on.
        self._session.dispatch()
        self._ends.clear()
        self._note()

    def _note(self) -> None:
        """Take note of a tail without anything pending."""
        tail = self._session.tail
        self._tail, self._end = tail, tail.end
        self._last_start, self._last_store_ms = tail.last_start, tail.last_store_ms
        self._records = self._keys = self._claimed_keys = 0
        is_compiled = availability.is_loaded()
        self._most_records = MOST_PENDING_RECORDS if is_compiled else _UNCOMPILED_RECORDS

    def _bound(self, records: int, size: int) -> None:
        """Dispatch what is pending if with so much more it would be too much."""
        size += self._end - self._session.tail.dispatched_end
        if self._records + records > self._most_records or size > MOST_PENDING_BYTES:
            self._session.dispatch()
            self._note()

    def _numbers(self, queues: list[QueueKey]) -> list[int]:
        """Return the queue offset that each record gets."""
        offsets: list[int] = []
        ends: dict[QueueKey, int] = {}
        for queue in queues:
            end = ends.get(queue)
            if end is None:
                end = self._ends.get(queue)
            if end is None:
                end = self._find_end(queue)
            offsets.append(end)
            ends[queue] = end + 1
        return offsets

    def _find_end(self, queue: QueueKey) -> int:
        """Return the end of a queue of which nothing is pending."""
        if not self._components.queues.is_known(queue):
            # Its last entry is compared with the log, and the store may be repaired.
            self._session.dispatch()
            if self._session.tail is not self._tail:
                self._note()
        (end,) = self._session.queue_ends([queue])
        if self._session.tail is not self._tail:
            self.begin()
        return end

    def _claim(self, few: FewRecords, queue_offsets: list[int]) -> bool:
        """Allocate room for queue entries and index keys; False if there are no files for them."""
        claim = self._components.queues.claim
        for queue, offset in zip(few.queues, queue_offsets, strict=True):
            if not claim(queue, offset, offset + 1):
                return False
        keys = self._keys + few.keys
        if keys > self._claimed_keys and not self._claim_keys(keys):
            return False
        self._session.files.reach(Failpoint.ROOM_CLAIMED)
        return True

    def _claim_keys(self, keys: int) -> bool:
        """Allocate room for so many keys that are pending, or more."""
        index = self._components.index
        if index is None:
            return True
        for wanted in (keys + _KEYS_AHEAD, keys):  # near a file's end there is no room for more
            if index.claim(wanted):
                self._claimed_keys = wanted
                return True
        return False

    def _write(self, few: FewRecords, start: int, *, is_sync: bool) -> None:
        """Mark, write, and undo it if that fails."""
        session = self._session
        files, log, tail = session.files, self._components.log, session.tail
        end = start + len(few.data)
        if tail.state is not TailState.PENDING:
            session.mark_unclosed()
        try:
            session.mark_pending(
                start, self._last_start, self._last_store_ms, end, zlib.crc32(few.data)
            )
            files.reach(Failpoint.MARKED_PENDING)
            log.write_behind(start, few.data)
            files.reach(Failpoint.PENDING_WRITTEN)
            if is_sync:
                log.fsync(session.tail.log_durable_end, end)
                files.reach(Failpoint.LOG_SYNCED)
                session.note_durable(end)
        except BaseException:
            self._undo(tail, start, end)
            raise

    def _undo(self, before: TailMarker, start: int, end: int) -> None:
        """Take back what was written of an append; if that fails, the next turn does it."""
        session = self._session
        self._tail = None
        kept = {
            "log_end": start,
            "last_start": self._last_start,
            "last_store_ms": self._last_store_ms,
            "pending_crc": 0,
        }
        try:
            session.mark(TailState.APPENDING, **kept, pending_end=end)
            self._components.log.take_back(start, end)
            state = TailState.PENDING if before.has_pending else TailState.CLEAN
            session.mark(state, **kept, pending_end=start)
        except OSError as error:
            session.distrust_memory()
            log.warning("event=append_not_undone repair=next_write error=%s", error)
        except BaseException:
            session.distrust_memory()
            raise
