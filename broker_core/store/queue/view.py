"""Queue view: one queue as messages, made of its consume queue and the commit log behind it.

Bytes in a consume queue are not yet messages. This module decides which entries count:

- The queue ends after its last entry whose record really is that message: the record names this
  topic, queue and LogicalOffset. Entries behind it are left from before a crash (Apache's broker
  does not clear what it cuts), or are ahead of a log whose end was lost.
- It begins with the first entry whose record is still in the log; fillers never count.
- An entry that should count and does not, because it or its record is damaged, stays in the range,
  so that reading it reports the damage instead of skipping the message.

After an unclean stop, entries that recovery would write are laid over the files (`overlay`), so
that everything in the log can be read without writing anything. On a living store what is pending
lies behind the files' entries (`pending`), which catch up with it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.fields import locate
from broker_core.codec.frames import FrameBatch
from broker_core.codec.record import decode_record
from broker_core.errors import CorruptRecordError, OffsetRangeError
from broker_core.store.queue.consume_queue import (
    ENTRY,
    FILLER_SIZE,
    ConsumeQueue,
    EntryColumns,
    is_damaged,
    is_filler,
    iter_entries,
    join_entries,
)
from broker_core.store.queue.known_range import KnownRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.record import Record
    from broker_core.store.log.commit_log import CommitLog, Stretch
    from broker_core.store.queue.pending import PendingQueue
    from broker_core.store.recovery.queue_plan import QueuePlan

EntrySelect = Callable[["NDArray[np.void]"], "NDArray[np.intp]"]
"""Returns which rows of a stretch of entries are wanted; damaged ones (`is_damaged`) always are."""
# How many entries before the first readable one are looked at for a sign of damage.
_WINDOW = 16
# Entries that are selected from at a time: most of them share a file, so they need not be copied.
_SELECTED_ENTRIES = 1 << 17


class QueueView:
    """The messages of one queue. Not thread-safe; see the module for which entries count.

    `pending` tells what is pending, as of the last look at the store, `origin` where a queue
    without files begins, `has_entry` whether the queue that a record names has an entry for it.
    """

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        log: CommitLog,
        overlay: QueuePlan | None = None,
        *,
        pending: Callable[[], PendingQueue | None] = lambda: None,
        origin: Callable[[], int] = lambda: 0,
        has_entry: Callable[[Record], bool] = lambda _record: True,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._queue = ConsumeQueue(directory, origin)
        self._log = log
        self._overlay = overlay
        self._pending = pending
        self._has_entry = has_entry
        self._end: int | None = None
        self._edge = b""
        self._known: KnownRange | None = None

    @property
    def directory(self) -> Path:
        """The directory of the queue's files."""
        return self._queue.directory

    # Range

    def range(self) -> tuple[int, int]:
        """Return (min, max) as of now; equal, and 0 if no topic of that name had any, if empty.

        The commit log must have been refreshed: its first file decides the min.
        """
        known = self._known
        if known is None or not known.is_current(self._log.start):
            return self._find_range()
        # Files whose range is known have an entry before what is pending.
        pending = self._pending()
        return known.start, known.end if pending is None else max(known.end, pending.end)

    def _find_range(self) -> tuple[int, int]:
        end = self._find_end()
        start = self._find_start(end)
        self._known = None
        if self._overlay is None and self._end is not None:
            log_start = self._log.start
            self._known = KnownRange.of(self._queue, start, self._end, self._edge, log_start)
        return start, end

    def _first(self) -> int:
        is_anew = self._overlay is not None and self._overlay.keep == 0
        return self._overlay.start if self._overlay and is_anew else self._queue.first

    def _find_end(self) -> int:
        if self._overlay is not None:
            return self._overlay.end
        end = self._find_written_end()
        pending = self._pending()
        return end if pending is None else max(end, pending.end)

    def _find_written_end(self) -> int:
        """Find the end of the entries in the files."""
        if self._end is not None and self._is_unchanged(self._end):
            return self._end
        self._queue.refresh()
        known = self._end if self._end is not None and self._is_same_queue(self._end) else None
        written = self._queue.written_end(known)
        end = self._counted_end(written)
        if end < written:
            # An entry that does not count may be ahead of what we know of the log: its file was
            # made, or made anew, after we looked at it.
            self._log.refresh()
            end = self._counted_end(written)
        self._edge = self._edge_at(end)
        # The edge may already hold an entry that was written since: then the end is looked up again
        # next time, or that entry would pass for one that was examined.
        self._end = None if self._is_new(end) else end
        return end

    def _is_new(self, offset: int) -> bool:
        entry = self._queue.read(offset, offset + 1)
        return bool(len(entry)) and int(entry[0]["size"]) > 0 and self._counts(offset)

    def _edge_at(self, end: int) -> bytes:
        """Return the last entry that counts and the one behind it; if equal, so is the end."""
        first = max(self._queue.first, end - 1)
        before = self._queue.read(first, end).tobytes().rjust(ENTRY.itemsize, b"\0")
        return before + self._queue.read(end, end + 1).tobytes()

    def _is_unchanged(self, end: int) -> bool:
        # A full last file says nothing: the next entry goes to a file that was not listed yet.
        return end < self._queue.capacity and self._edge_at(end) == self._edge

    def _is_same_queue(self, end: int) -> bool:
        """Tell whether the last entry is the one it was: a topic made anew has others."""
        return self._edge_at(end)[: ENTRY.itemsize] == self._edge[: ENTRY.itemsize]

    def _counted_end(self, written: int) -> int:
        first = self._queue.first
        if written <= first or self._counts(written - 1):
            return written
        # Entries that count come before those that do not: search the border by halves.
        low, high = first - 1, written - 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._counts(middle):
                low = middle
            else:
                high = middle
        # The damaged entry stays in the range, where reading it tells what is wrong.
        return written if self._is_damaged(high) else high

    def _counts(self, offset: int) -> bool:
        """Tell whether an entry leads to its message, or to a record that the log no longer has."""
        entry = self._queue.read(offset, offset + 1)
        if not len(entry):
            return False
        physical_offset, size = int(entry[0]["physical_offset"]), int(entry[0]["size"])
        if bool(is_filler(entry)[0]) or 0 <= physical_offset < self._log.start:
            return True
        return self._is_message(physical_offset, size, offset)

    def _is_message(self, physical_offset: int, size: int, offset: int) -> bool:
        found = self._log.locate(physical_offset) if physical_offset >= 0 and size > 0 else None
        if found is None:
            return False
        segment, buffer = found
        position = physical_offset - segment.base
        try:
            record = decode_record(buffer[position : position + size].data, verify=False)
        except CorruptRecordError:
            return False
        return (
            record.queue_offset == offset
            and record.queue_id == self.queue_id
            and record.topic == self.topic
            and record.physical_offset == physical_offset
        )

    def _is_damaged(self, offset: int) -> bool:
        """Tell whether the log has message `offset`, or something unreadable where it could be.

        Walks the log from the message before it. A record that the entry leads to and that no
        other queue knows of is taken for the message, damaged. Only for entries that do not count,
        so on a sound store never; one that a live writer was just completing is looked at again.
        """
        at = self._log.start
        if offset > self._queue.first:
            before = self._queue.read(offset - 1, offset)
            if len(before) and not is_filler(before)[0]:
                after = int(before[0]["physical_offset"]) + int(before[0]["size"])
                at = max(at, after)
        entry = self._queue.read(offset, offset + 1)
        led_to = int(entry[0]["physical_offset"]) if len(entry) else -1
        for stretch in self._log.walk(at):
            is_suspect = stretch.stop_reason == "invalid" or self._is_orphan(stretch, led_to)
            if is_suspect or self._holds(stretch, offset):
                return not self._counts(offset)
            at = stretch.next_offset
        return self._log.is_missing(at)

    def _is_orphan(self, stretch: Stretch, physical_offset: int) -> bool:
        """Tell whether a record of the stretch begins at an offset without an entry in a queue."""
        position = physical_offset - stretch.segment.base
        if not (stretch.starts == position).any():
            return False
        record = decode_record(stretch.buffer.data, position, verify=False)
        return not self._has_entry(record)

    def _holds(self, stretch: Stretch, offset: int) -> bool:
        frames = FrameBatch(
            buffer=stretch.buffer,
            starts=stretch.starts,
            sizes=stretch.sizes,
            offsets=np.zeros(len(stretch.starts), dtype=np.int64),
        )
        if not len(frames):
            return False
        fields = locate(frames)
        is_match = fields.integer("queueOffset") == offset
        is_match &= fields.integer("queueId") == self.queue_id
        topic = self.topic.encode()
        for row in np.flatnonzero(is_match).tolist():
            start = int(fields.topics.starts[row])
            length = int(fields.topics.lengths[row])
            if stretch.buffer[start : start + length].tobytes() == topic:
                return True
        return False

    def _find_start(self, end: int) -> int:
        first = self._first()
        if end <= first:
            return end
        if self._is_readable(first):
            return first
        if not self._is_readable(end - 1):
            self._check_window(first, end)
            return end
        low, high = first, end - 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_readable(middle):
                high = middle
            else:
                low = middle
        self._check_window(first, high + 1)
        return high

    def _check_window(self, first: int, end: int) -> None:
        """Raise if damage has led a search astray: the entries there would not be in order."""
        window = self._read(max(first, end - _WINDOW), end)
        messages = window[~is_filler(window)]
        self._check_order(EntryColumns.of(messages, end - len(messages)))

    def _is_readable(self, offset: int) -> bool:
        """Tell whether an entry points at or behind the log's first byte."""
        entry = self._read(offset, offset + 1)
        if not len(entry) or is_filler(entry)[0]:
            return False
        physical_offset, size = int(entry[0]["physical_offset"]), int(entry[0]["size"])
        if physical_offset < 0 or size <= 0:
            raise self._bad_entry(offset, physical_offset, size)
        return physical_offset >= self._log.start

    # Entries

    def last_record_end(self) -> int:
        """Return the physical offset after the last message's record, 0 if there is none."""
        end = self._find_end()
        entry = self._read(max(self._first(), end - 1), end)
        if not len(entry) or is_filler(entry)[0]:
            return 0
        return int(entry[0]["physical_offset"]) + int(entry[0]["size"])

    def entries(self, start: int, end: int) -> NDArray[np.void]:
        """Return the entries [start, end), all of them pointing forward into the log.

        OffsetRangeError if some are gone, CorruptRecordError if some can't be entries.
        """
        entries = self._whole(start, end)
        self._check_sizes(EntryColumns.of(entries, start))
        return entries

    def columns(self, start: int, end: int, select: EntrySelect | None = None) -> EntryColumns:
        """Return the entries [start, end) that `select` wants, all by default.

        Errors as for `entries`, and CorruptRecordError if those that are left are not in order.
        """
        if select is None or start == end:
            columns = EntryColumns.of(self._whole(start, end), start)
        else:
            selected = []
            for at in range(start, end, _SELECTED_ENTRIES):
                entries = self._whole(at, min(end, at + _SELECTED_ENTRIES))
                selected.append(EntryColumns.of_rows(entries, at, select(entries)))
            columns = EntryColumns.join(selected)
        self._check_sizes(columns)
        self._check_order(columns)
        return columns

    def few(self, start: int, end: int) -> tuple[list[int], list[int]] | None:
        """Return the physical offsets and sizes of the entries [start, end), one by one.

        None if they are not right, or lie in several files: then `columns` decides.
        """
        starts, sizes, behind = [], [], 0
        for physical_offset, size, _ in iter_entries(self._few_bytes(start, end)):
            if physical_offset < behind or not 0 < size < FILLER_SIZE:
                return None
            behind = physical_offset + size
            starts.append(physical_offset)
            sizes.append(size)
        return (starts, sizes) if len(starts) == end - start else None

    def _few_bytes(self, start: int, end: int) -> bytes:
        """Return the bytes of the entries [start, end); too few if it is not so simple."""
        if self._overlay is not None:
            return b""
        pending = self._pending()
        # Where files have more than what was pending, they have all of it.
        if pending is None or end <= pending.keep or end > pending.end:
            return self._queue.read_bytes(start, end)
        if start >= pending.keep:
            return pending.part(start, end)
        return self._queue.read_bytes(start, pending.keep) + pending.part(pending.keep, end)

    def _whole(self, start: int, end: int) -> NDArray[np.void]:
        """Return the entries [start, end); OffsetRangeError if some are gone."""
        entries = self._read(start, end)
        if len(entries) < end - start:
            self._queue.refresh()
            entries = self._read(start, end)
        if len(entries) < end - start:
            raise self._gone(start, end)
        return entries

    def _check_sizes(self, entries: EntryColumns) -> None:
        """Raise CorruptRecordError for the first entry whose size no message has."""
        damaged = is_damaged(entries.sizes)
        if damaged.any():
            row = int(damaged.argmax())
            physical_offset, size = int(entries.physical_offsets[row]), int(entries.sizes[row])
            raise self._bad_entry(int(entries.offsets[row]), physical_offset, size)

    def _read(self, start: int, end: int) -> NDArray[np.void]:
        overlay = self._overlay or self._pending()
        # Where files have more than what was pending, they have all of it.
        if overlay is None or end <= overlay.keep or (end > overlay.end and not self._overlay):
            return self._queue.read(start, end)
        above = overlay.entries[max(0, start - overlay.start) : max(0, end - overlay.start)]
        if start >= overlay.keep:
            return above
        below = self._queue.read(start, overlay.keep)
        return join_entries([below, above]) if len(below) == overlay.keep - start else below

    def _check_order(self, entries: EntryColumns) -> None:
        """Raise unless each record begins where the one before ends, or later; none below 0."""
        starts = entries.physical_offsets
        ends = starts + entries.sizes
        backward = starts[1:] < ends[:-1]
        if backward.any() or (starts[:1] < 0).any():
            row = int(backward.argmax()) + 1 if backward.any() else 0
            expected = int(ends[row - 1]) if row else 0
            offset, size = int(entries.offsets[row]), int(entries.sizes[row])
            raise self._bad_entry(offset, int(starts[row]), size, expected)

    def _bad_entry(
        self, offset: int, physical_offset: int, size: int, expected: int | None = None
    ) -> CorruptRecordError:
        position = offset * ENTRY.itemsize
        path = next(
            (s.path for s in self._queue.segments if s.base <= position < s.end), self.directory
        )
        wanted = "" if expected is None else f", expected {expected} or more"
        message = (
            f"Entry {offset} of queue {self.topic}/{self.queue_id} in {path} points to physical "
            f"offset {physical_offset}{wanted}, size {size}: it or its neighbour is "
            f"damaged. Run `rocketmq-broker check` on the store."
        )
        return CorruptRecordError(message, path, physical_offset)

    def _gone(self, start: int, end: int) -> OffsetRangeError:
        minimum, maximum = self.range()
        message = (
            f"Queue {self.topic}/{self.queue_id} holds {minimum} to {maximum}, but {start} to "
            f"{end} was asked for; its files were deleted. Start at {minimum}."
        )
        return OffsetRangeError(message, minimum, maximum)
