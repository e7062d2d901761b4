"""Consume queues, write side: writes entries where the records say they belong, and cuts them.

The layout is consume_queue.py's: entry n of a queue lies at byte 20 * n, so writing an entry twice
changes nothing, and repair can write again whatever may be missing. A queue that has no files yet
and whose first message is not number 0 (older ones went with their segments, or the topic was
deleted and made again: deletions.py) begins with fillers up to that message. Entries that would
leave a gap are refused: RocketMQ would put them at the wrong position.

Next in an append: index/writer.py. Not thread-safe; only the holder of the store's lock may use it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.errors import CorruptRecordError
from broker_core.store.io.files import Failpoint
from broker_core.store.io.segments import segment_name
from broker_core.store.queue.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    ConsumeQueue,
    fillers,
    is_filler,
    is_written,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from broker_core.store.io.file_handles import FileHandles

QueueKey = tuple[str, int]
"""A queue: topic and queue id."""
_CLAIMED_AHEAD = 1024
"""Entries for which room is claimed at a time: 20 KB."""


class QueueWriter:
    """All consume queues of one store, open for appending. See the module.

    `directory` is the store's consumequeue/, `origin` tells where a queue without files begins.
    Ends are remembered until `forget`, to be called after another process may have written.
    """

    def __init__(
        self,
        directory: Path,
        handles: FileHandles,
        *,
        file_bytes: int,
        origin: Callable[[str, int], int],
    ) -> None:
        self._directory = directory
        self._origin = origin
        self._handles = handles
        self._reach = handles.files.reach
        self._file_bytes = file_bytes
        self._ends: dict[QueueKey, int] = {}
        self._hints: dict[QueueKey, int] = {}
        self._claimed: dict[QueueKey, int] = {}

    def end(self, queue: QueueKey) -> int:
        """Return the offset that the queue's next message gets."""
        known = self._ends.get(queue)
        if known is None:
            known = self._find_end(queue)
            self._ends[queue] = self._hints[queue] = known
        return known

    def _find_end(self, queue: QueueKey) -> int:
        """Find the end in the files, from where it was last seen if that is still written."""
        view = ConsumeQueue(self.directory_of(queue), partial(self._origin, *queue))
        hint = self._hints.get(queue, 0)
        # The queue may have been cut since: then the search begins anew.
        is_useful = hint > view.first and is_written(view.read(hint - 1, hint)).any()
        return view.written_end(hint if is_useful else None)

    def is_known(self, queue: QueueKey) -> bool:
        """Tell whether the queue's end is remembered."""
        return queue in self._ends

    def last_entry(self, queue: QueueKey) -> tuple[int, int] | None:
        """Return (physical offset, size) of the newest entry, None if there is none."""
        end = self.end(queue)
        entries = ConsumeQueue(self.directory_of(queue)).read(max(end - 1, 0), end)
        if not len(entries):
            return None
        return int(entries[0]["physical_offset"]), int(entries[0]["size"])

    def forget(self, queue: QueueKey | None = None) -> None:
        """Forget the end of a queue, or of all queues."""
        if queue is None:
            self._ends.clear()
            self._claimed.clear()
        else:
            self._ends.pop(queue, None)
            self._claimed.pop(queue, None)

    def claim(self, queue: QueueKey, start: int, end: int) -> bool:
        """Allocate disk blocks for entries [start, end), and some more; False if no file is there.

        OSError if the disk refuses. Nothing is written.
        """
        if end <= self._claimed.get(queue, 0):
            return True
        per_file = self._file_bytes // ENTRY_BYTES
        base = start - start % per_file
        path = _file_of(self._directory, *queue, base * ENTRY_BYTES)
        if end > base + per_file or not self._handles.is_whole(path, self._file_bytes):
            return False
        stop = min(base + per_file, end + _CLAIMED_AHEAD)
        self._handles.reserve(path, (start - base) * ENTRY_BYTES, (stop - start) * ENTRY_BYTES)
        self._claimed[queue] = stop
        return True

    def write(self, queue: QueueKey, start: int, entries: NDArray[np.void]) -> None:
        """Write entries `start`, `start` + 1, ...; CorruptRecordError if they leave a gap."""
        end = self.end(queue)
        if start > end > 0:
            topic, queue_id = queue
            message = (
                f"Queue {topic}/{queue_id} ends at {end}, but the log has its message {start} at "
                f"physical offset {int(entries[0]['physical_offset'])}: {start - end} entries are "
                f"missing. Remove {self.directory_of(queue)} and let the next writer rebuild it."
            )
            raise CorruptRecordError(message, self.directory_of(queue))
        assert entries.dtype == ENTRY, "bytes are written as they are"
        per_file = self._file_bytes // ENTRY_BYTES
        done = 0
        while done < len(entries):
            number = start + done
            count = min(len(entries) - done, per_file - number % per_file)
            path = self._file(queue, number)
            part = entries[done : done + count]
            self._handles.write(path, part.data.cast("B"), number % per_file * ENTRY_BYTES)
            done += count
        self._ends[queue] = self._hints[queue] = max(end, start + len(entries))
        self._reach(Failpoint.QUEUE_WRITTEN)

    def cut(self, queue: QueueKey, end: int, *, known_end: int | None = None) -> None:
        """Drop the entries from `end` on, and the files that hold nothing else; repeatable.

        No entry lies behind `known_end`, if given. A queue cut to 0, or to the fillers before its
        first message, keeps no file.
        """
        directory = self.directory_of(queue)
        self._handles.delete_empty(directory)
        view = ConsumeQueue(directory)
        is_bare = end == 0 or self._is_origin(queue, view, end)
        # From the back, so that a crash in between leaves a queue without a gap.
        for segment in reversed(view.segments):
            first = segment.base // ENTRY_BYTES
            if first > end or is_bare:
                self._handles.delete(segment.path)
            elif end * ENTRY_BYTES < segment.end:
                stop = segment.end if known_end is None else known_end * ENTRY_BYTES
                start = end * ENTRY_BYTES - segment.base
                self._handles.zero(segment.path, start, min(stop, segment.end) - segment.base)
        self._ends[queue] = end
        self._claimed.pop(queue, None)
        if is_bare:
            with contextlib.suppress(OSError):  # others may be in it, or it is not there
                self._handles.files.rmdir(directory)
                self._handles.files.rmdir(directory.parent)
        self._reach(Failpoint.QUEUE_CUT)

    def _is_origin(self, queue: QueueKey, view: ConsumeQueue, end: int) -> bool:
        """Tell whether a queue has no message before `end` and would begin there without files.

        Apache's broker takes the record of a queue's last entry for the end of what is dispatched,
        also if that is a filler, which seems to end at 2 GB: no queue may end with one.
        """
        if end != self._origin(*queue):
            return False
        before = view.read(end - 1, end)
        return not len(before) or bool(is_filler(before)[0])

    def directory_of(self, queue: QueueKey) -> Path:
        """Return the directory of a queue's files."""
        return _directory_of(self._directory, *queue)

    def _file(self, queue: QueueKey, number: int) -> Path:
        """Return the file that holds an entry, created if it is missing, with fillers before it."""
        at = number * ENTRY_BYTES
        path = _file_of(self._directory, *queue, at - at % self._file_bytes)
        if self._handles.ensure(path, self._file_bytes):
            if at % self._file_bytes:
                filler = fillers(at % self._file_bytes // ENTRY_BYTES)
                self._handles.write(path, filler.data.cast("B"), 0)
            self._reach(Failpoint.QUEUE_CREATED)
        return path


# Cached: joining paths takes longer than writing a few entries does.


@lru_cache(maxsize=4096)
def _directory_of(root: Path, topic: str, queue_id: int) -> Path:
    return root / topic / str(queue_id)


@lru_cache(maxsize=4096)
def _file_of(root: Path, topic: str, queue_id: int, base: int) -> Path:
    return _directory_of(root, topic, queue_id) / segment_name(base)
