"""Columns without page faults: freed memory stays with the process, for the next batch.

Columns are computed through temporaries of many megabytes. Allocators give freed memory of that
size back to the system, which hands it out again zeroed, page by page, for the next batch; this
can cost as much as the computation. So glibc is told to keep some, and Arrow to use glibc, unless
ARROW_DEFAULT_MEMORY_POOL says what Arrow has to use. Where the C library is another one, nothing is
changed.

Temporaries that ask for far more room than they use are beyond what glibc keeps. Each thread has a
`scratch` for them, of which only what was used is ever in memory.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KEPT_BYTES = 192 << 20
_LARGEST_KEPT_BYTES = (48 << 20, 32 << 20)  # glibc before 2.35 takes the second only
_SCRATCH_KEPT_BYTES = 16 << 20
# Names of mallopt's parameters in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Keep freed memory from here on, a bounded amount; only the first call does anything."""
    try:
        libc = ctypes.CDLL(None)
        is_kept = any(libc.mallopt(_M_MMAP_THRESHOLD, size) for size in _LARGEST_KEPT_BYTES)
        is_kept = is_kept and bool(libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
    except (OSError, AttributeError):
        return
    if is_kept and "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())


class _Scratch(threading.local):
    """The room of one thread."""

    def __init__(self) -> None:
        self.room = np.empty(0, dtype=np.uint8)


_scratch = _Scratch()


def scratch(size_bytes: int) -> NDArray[np.uint8]:
    """Room for the calling thread to work in, until it asks again; what is in it is no matter."""
    if len(_scratch.room) < size_bytes:
        _scratch.room = np.empty(size_bytes, dtype=np.uint8)
    return _scratch.room[:size_bytes]


def has_used_scratch(size_bytes: int) -> None:
    """Take note of how much was written there; much is given back to the system."""
    if size_bytes > _SCRATCH_KEPT_BYTES:
        _scratch.room = np.empty(0, dtype=np.uint8)
