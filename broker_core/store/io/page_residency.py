"""Mapped memory: how much of a store a reader keeps in its own memory.

Pages of a map that were touched count as the process's own, so a reader would grow with the store;
taken out of its memory they stay in the system's cache, but the next to touch them pays for mapping
them again. Records that are smaller than a page share it with records of other queues, which a
reader of several queues soon comes to: their pages are kept until the process holds an eighth of
the machine's memory in mapped files more than it began with, and what is read after that is let go
of at once. Pages of larger records are always let go of. None of this is memory of its own:
processes that read the same store share those pages, and the system takes them back when it needs
to. Mapping a page again can cost as much as decoding its records.
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
    """Keeps or lets go of what one reader has read. Not thread-safe."""

    def __init__(self, kept_bytes: int | None = None) -> None:
        self._limit = (held_bytes() or 0) + (kept_bytes or max(LEAST_KEPT_BYTES, _share()))
        self._unseen_bytes = 0
        self._spare_bytes = 0

    def has_read(
        self, mapped: NDArray[np.uint8], start: int, end: int, record_bytes: float
    ) -> None:
        """Take note that records of such a size in [start, end) of a map have been handed out."""
        self._unseen_bytes += end - start
        # No look can tell anything new before what was spare at the last one may be used up.
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
    """The part of the machine's memory that mapped pages may take; 0 where it does not say."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0
    return max(0, whole // _SHARE)


def held_bytes() -> int | None:
    """How much of mapped files this process holds in memory; None where the system does not say."""
    try:
        return int(_STATM.read_bytes().split()[2]) * mmap.PAGESIZE
    except (OSError, IndexError, ValueError):
        return None
