"""Columns without page faults: freed memory stays with the process, for the next batch.

Columns are computed through temporaries of many megabytes. Allocators give freed memory of that
size back to the system, which hands it out again zeroed, page by page, for the next batch; this
can cost as much as the computation. So glibc is told to keep some, and Arrow to use glibc, unless
ARROW_DEFAULT_MEMORY_POOL says what Arrow has to use. Where the C library is another one, nothing is
changed.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

import pyarrow as pa

_KEPT_BYTES = 192 << 20
_LARGEST_KEPT_BYTES = 48 << 20
# Names of mallopt's parameters in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Keep freed memory from here on, a bounded amount; only the first call does anything."""
    try:
        libc = ctypes.CDLL(None)
        is_kept = libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES) and libc.mallopt(
            _M_TRIM_THRESHOLD, _KEPT_BYTES
        )
    except (OSError, AttributeError):
        return
    if is_kept and "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
