"""Scratch memory: room for temporaries that ask for far more than they use.

Such temporaries are beyond what glibc keeps (process_settings.py). Each thread has a `scratch` for
them, of which only what was used is ever in memory.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SCRATCH_KEPT_BYTES = 16 << 20


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
