"""Temporary arrays without page faults.

Columns are computed through temporaries of up to some megabytes. glibc gives freed memory of that
size back to the system, which hands it out again zeroed, page by page, for the next batch; this can
cost more than the computation. Once glibc has seen a large block freed, it keeps up to twice that
size instead. Other allocators are not affected.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_BLOCK_BYTES = 31 << 20
"""The largest block that glibc learns from is 32 MiB."""


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Let the allocator keep up to 64 MiB of freed memory; only the first call does anything."""
    np.empty(_BLOCK_BYTES, dtype=np.uint8)
