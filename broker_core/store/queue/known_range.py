"""Known range: where a queue began and ended at the last look, and how to tell that it still does.

A queue to which nothing was written is asked for its range again and again: by a consumer that
waits, and before each read. Finding a range reads a dozen entries and a record (view.py); telling
that it is as it was takes one file and two small reads.

The bytes of three entries tell. The last one leads to another record if the topic was made anew,
and the one behind it is written when a message comes. The first readable one is the first for as
long as it is there and the log begins where it did, for entries never change.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from broker_core.store.queue.consume_queue import ENTRY_BYTES

if TYPE_CHECKING:
    from broker_core.store.queue.consume_queue import ConsumeQueue


class KnownRange(NamedTuple):
    """The range [start, end) of a queue's files, for a log that begins at `log_start`.

    `edge` are the bytes of the last entry and the one behind it, `first` those of the first; both
    lie at a position of a file.
    """

    start: int
    end: int
    log_start: int
    edge_path: str
    edge_position: int
    edge: bytes
    first_path: str
    first_position: int
    first: bytes

    @classmethod
    def of(
        cls, queue: ConsumeQueue, start: int, end: int, edge: bytes, log_start: int
    ) -> KnownRange | None:
        """Return a range that was just found; None if it can't be told again so easily.

        That is an empty one, and one whose last entry ends its file: the next is in no file yet.
        """
        lies = queue.file_of(end - 1, end + 1)
        first_lies = queue.file_of(start, start + 1)
        if start >= end or lies is None or first_lies is None:
            return None
        first = queue.read_bytes(start, start + 1)
        return cls(start, end, log_start, *lies, edge, *first_lies, first) if first else None

    def is_current(self, log_start: int) -> bool:
        """Tell whether the range is as it was; False also where it must be found again to tell."""
        if log_start != self.log_start:
            return False
        try:
            return self._is_same()
        except OSError:
            return False

    def _is_same(self) -> bool:
        descriptor = os.open(self.edge_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.pread(descriptor, len(self.edge), self.edge_position) != self.edge:
                return False
            if self.first_path == self.edge_path:
                return os.pread(descriptor, ENTRY_BYTES, self.first_position) == self.first
        finally:
            os.close(descriptor)
        descriptor = os.open(self.first_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, ENTRY_BYTES, self.first_position) == self.first
        finally:
            os.close(descriptor)
