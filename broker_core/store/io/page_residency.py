"""Page residency: how much of a store a reader keeps mapped in its own memory.

Pages of a map that were touched count as the process's own, so a reader would grow with the store.
Dropped (`let_go`), they stay in the system's cache, but the next touch pays for mapping them again,
which can cost as much as decoding their records.

Records smaller than a page share it with records of other queues, which a reader of several queues
soon comes to. Their pages are kept until the process holds an eighth of the machine's memory in
mapped files more than it began with; pages read after that are dropped at once. Pages of larger
records are always dropped. None of this is private memory: processes that read one store share the
pages, and the system takes them back when it needs to.
"""

from __future__ import annotations

import mmap
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.store.io.segments import let_go

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_KEPT_BYTES = 512 << 20
_SHARE = 8
_LOOK_EVERY_BYTES = 4 << 20
_STATM = Path("/proc/self/statm")


class PageResidency:
    """The budget of one reader: keeps or drops pages that it has read. Not thread-safe."""

    def __init__(self, kept_bytes: int | None = None) -> None:
        self._limit = (held_bytes() or 0) + (kept_bytes or max(LEAST_KEPT_BYTES, _share()))
        self._unseen_bytes = 0
        self._spare_bytes = 0

    def has_read(
        self, mapped: NDArray[np.uint8], start: int, end: int, record_bytes: float
    ) -> None:
        """Note that [start, end) of a map was read, records of `record_bytes` on average."""
        self._unseen_bytes += end - start
        # A look reads /proc: not again before the spare bytes of the last look can be used up.
        if self._unseen_bytes >= max(_LOOK_EVERY_BYTES, self._spare_bytes):
            self._unseen_bytes = 0
            held = held_bytes()
            self._spare_bytes = -len(mapped) if held is None else self._limit - held
        if record_bytes > mmap.PAGESIZE:
            let_go(mapped, start, end)
        elif self._spare_bytes < 0:
            let_go(mapped, max(start, end + self._spare_bytes), end)


@cache
def _share() -> int:
    """Return the part of the machine's memory that mapped pages may take; 0 if unknown."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0
    return max(0, whole // _SHARE)


def held_bytes() -> int | None:
    """Return how many bytes of mapped files this process holds in memory; None if unknown."""
    try:
        return int(_STATM.read_bytes().split()[2]) * mmap.PAGESIZE
    except (OSError, IndexError, ValueError):
        return None
