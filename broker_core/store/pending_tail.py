"""Pending tail, read side: the records that are in the log and not yet in queues and index.

Problem. A writer acknowledges a message once it is in the log (log_first.py), and dispatches it
later. A reader without the lock must see it at once, also while the writer lives, and must not pay
where nothing is pending.

Invariants.

- A look sees all that was acknowledged before it began: the marker that it reads is at least as new
  as those messages, and what the marker calls dispatched is in the queues.
- What is not whole is not seen: [log_end, pending_end) counts only with the marker's CRC-32.
- The last append that a look saw may be undone, for it may have failed all the same, and others be
  written in its place: the next look goes on behind it only if it still has its CRC-32.
- A marker is believed as recovery believes it: written since this boot, and no foreign broker has
  started since. Else there is no tail, and the queues alone tell.

Outline of a look: read the marker's page, 700 bytes. If it is as it was, so is the tail. Else read
the log from where the last look ended, or from `dispatched_end` if that has moved: a few records
one by one, many as columns. What was found is laid over the queues (queue/view.py). It is searched
before the index files (index/view.py); its index keys are hashed at the first search.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.store.io.segments import is_path_part, unreadable
from broker_core.store.lock import LOCK_NAME
from broker_core.store.queue.consume_queue import pack_entry
from broker_core.store.recovery.shutdown_state import CHECKPOINT_NAME
from broker_core.store.recovery.tail_marker import (
    PAGE_BYTES,
    PAGE_START,
    TailMarker,
    boot_id,
    decode_page,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from broker_core.codec.dispatch_request import DispatchRequests
    from broker_core.store.log.commit_log import CommitLog
    from broker_core.store.log.scan import LogScan
    from broker_core.store.queue.pending import PendingQueue
    from broker_core.store.queue.writer import QueueKey
    from broker_core.store.settings import StoreSettings

FEW_BYTES = 64 << 10
"""More bytes of new records are read as columns."""
_ATTEMPTS = 100


class PendingTail:
    """The pending tail of one store, as of the last `look`. Not thread-safe.

    `boot` None asks the machine.
    """

    def __init__(
        self, root: Path, log: CommitLog, settings: StoreSettings, *, boot: bytes | None = None
    ) -> None:
        self._log = log
        self._settings = settings
        self._path = os.fspath(root / CHECKPOINT_NAME)
        self._lock_path = os.fspath(root / LOCK_NAME)
        self._boot = boot_id() if boot is None else boot
        self._descriptor: int | None = None
        self._page = b""
        self._is_whole = True
        self.is_lost = False
        """True if the last look found no valid marker, or a log that is not as the marker says."""
        self._queues: dict[QueueKey, PendingQueue] = {}
        self.start = self.end = 0
        self.log_end: int | None = None
        """Where the log ends, behind which bytes do not count; None where no marker tells."""
        # The part that may be undone: [_last_start, end) with this CRC-32.
        self._last_start, self._last_crc = 0, 0
        # Index keys of the records before _keys_end.
        self._keys_end = 0
        self._hashes: list[NDArray[np.int32]] = []
        self._offsets: list[NDArray[np.int64]] = []

    def queue(self, key: QueueKey) -> PendingQueue | None:
        """Return what lies behind the entries of a queue's files; None if nothing does."""
        return self._queues.get(key)

    def look(self) -> bool:
        """Look at the store as it is now; return True if the tail may have changed."""
        page = self._read_page()
        if page == self._page and self._is_whole:
            return False
        self.is_lost = False
        for _ in range(_ATTEMPTS):
            tail = decode_page(page)
            # A slot that is just being written is not valid: it will be.
            if (tail is not None or not page.strip(b"\0")) and self._follow(tail):
                self._page = page
                return True
            page = self._read_page()
        # Damaged, or not as the marker says: recovery has to look (recovery/inspect.py).
        self._page, self._is_whole, self.is_lost = page, True, True
        self.log_end = None
        self._clear(0)
        return True

    def keys_under(self, wanted: int) -> Iterator[int]:
        """Yield the physical offsets of records with an index key of some hash, newest first."""
        if not self._settings.index_enabled:
            return
        if self._keys_end < self.end:
            for requests in self._scan(self._keys_end, self.end).batches():
                self._add_keys(requests)
            self._keys_end = self.end
        for hashes, offsets in zip(reversed(self._hashes), reversed(self._offsets), strict=True):
            yield from offsets[(hashes == wanted).nonzero()[0][::-1]].tolist()

    def _read_page(self) -> bytes:
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, self._descriptor)
            return os.pread(self._descriptor, PAGE_BYTES, PAGE_START)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise unreadable(Path(self._path), error) from error

    def _follow(self, tail: TailMarker | None) -> bool:
        """Read what a marker calls pending; False if it is not there any more, or not yet."""
        self._is_whole = True
        self.log_end = None
        if tail is None or not tail.has_pending or not self._is_believable(tail):
            self._clear(0 if tail is None else tail.log_end)
            return True
        # Where nothing is pending, which is usual, a reader needs none of this.
        from broker_core.store.log.scan import counted_end

        end = counted_end(self._log, tail)
        # What is being written may be whole at the next look, with the same marker.
        self._is_whole = end == tail.end
        if tail.dispatched_end != self.start or end < self.end or not self._is_last_there():
            self._clear(tail.dispatched_end)
        if end == self.end:
            self.log_end = end
            return True
        if not (self._add_few(end) or self._add_many(end)):
            return False
        self.log_end = self.end = end
        self._last_start, self._last_crc = end, 0
        if end > tail.log_end:
            self._last_start, self._last_crc = tail.log_end, tail.pending_crc
        return True

    def _is_last_there(self) -> bool:
        """Tell whether the last append that was seen is still there."""
        if self._last_start == self.end:
            return True
        from broker_core.store.log.scan import has_crc

        return has_crc(self._log, self._last_start, self.end, self._last_crc)

    def _is_believable(self, tail: TailMarker) -> bool:
        if tail.boot != self._boot or not any(self._boot):
            return False
        try:
            return os.stat(self._lock_path).st_mtime_ns == tail.lock_modified_ns  # noqa: PTH116
        except FileNotFoundError:
            return False

    def _clear(self, at: int) -> None:
        self.start = self.end = self._last_start = self._keys_end = at
        self._queues = {}
        self._hashes, self._offsets = [], []

    def _add_few(self, end: int) -> bool:
        """Lay the records up to `end` behind those that are known, if they are a few plain ones."""
        start = self.end
        found = self._log.locate(start) if end - start <= FEW_BYTES else None
        if found is None or end > found[0].end:
            return False
        from broker_core.codec.few_requests import queue_requests

        base = found[0].base
        requests = queue_requests(found[1][start - base : end - base].tobytes(), start)
        if requests is None or not all(
            (request.topic, request.queue_id) in self._queues
            or (request.queue_id >= 0 and is_path_part(request.topic))
            for request in requests
        ):
            return False
        for request in requests:
            queue = self._queue_from((request.topic, request.queue_id), request.queue_offset)
            queue.add(pack_entry(request.physical_offset, request.size, request.tags_code))
        return True

    def _add_many(self, end: int) -> bool:
        """Lay the records up to `end` behind those that are known; False if they are not there."""
        from broker_core.store.recovery.queue_plan import records_by_queue

        scan = self._scan(self.end, end)
        found = list(scan.batches())
        if scan.end != end:
            return False
        has_keys = self._keys_end == self.end
        for requests in found:
            for key, offsets, entries in records_by_queue(requests):
                self._queue_from(key, int(offsets[0])).extend(entries)
            if has_keys:
                self._add_keys(requests)
        if has_keys:
            self._keys_end = end
        return True

    def _queue_from(self, key: QueueKey, start: int) -> PendingQueue:
        """Return what is pending of a queue; of one that is new it begins at `start`."""
        known = self._queues.get(key)
        if known is None:
            from broker_core.store.queue.pending import PendingQueue

            known = self._queues[key] = PendingQueue(start)
        return known

    def _scan(self, start: int, end: int) -> LogScan:
        from broker_core.store.log.scan import LogScan

        return LogScan(self._log, self._settings, start, verify=False, stop=end)

    def _add_keys(self, requests: DispatchRequests) -> None:
        self._hashes.append(requests.index_hashes)
        self._offsets.append(requests.physical_offsets[requests.index_rows])
