"""Space for bytes of a file before they are written, by Linux's fallocate.

Python has posix_fallocate only. Where a file system can't do it, that one writes a byte to every
block instead, which is what it is meant to save.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache

_KEEP_SIZE = 1
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def fallocate(descriptor: int, offset: int, size: int) -> bool:
    """Whether the bytes have their place on the disk now; False if the system can't see to it.

    OSError if it can and the disk refuses.
    """
    call = _call()
    if call is None:
        return False
    while call(descriptor, _KEEP_SIZE, offset, size):
        number = ctypes.get_errno()
        if number in _DISK_ERRORS:
            raise OSError(number, os.strerror(number))
        if number != errno.EINTR:
            return False
    return True


@cache
def _call() -> Callable[[int, int, int, int], int] | None:
    """The C library's function; None where it has none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    return function
