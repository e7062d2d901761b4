"""Process settings: everything process-wide that this library changes, and the switch for it.

Nothing here changes a result. Each setting makes the process it runs in wait less, and each is
made once, when it first pays. ROCKETMQ_PROCESS_SETTINGS=off in the environment of a driver, a
worker or a server leaves all of them as they were.

`keep_freed_memory`, made by the first batch that is decoded or encoded:

- Columns are computed through temporaries of many megabytes. Allocators give freed memory of that
  size back to the system, which hands it out again zeroed, page by page, for the next batch; this
  can cost as much as the computation. So glibc is told by mallopt to keep 192 MiB of it, and Arrow
  to use glibc, unless ARROW_DEFAULT_MEMORY_POOL says what Arrow has to use. Where the C library is
  another one, nothing is changed.

`tune_worker`, made by the first task of a Spark worker (decision 0009). Spark forks a worker and
lets it do one task after another, with a full collection of garbage after each; workers that plan
reads and writes for it are alike. Two things make every task wait, and both can be helped from
inside, by a callback of the collector:

- The collector goes through some hundred thousand objects that belong to modules and stay for the
  life of the process. Frozen (gc.freeze), they are left alone. That is done whenever there are
  many new ones, since modules are loaded one after another while tasks run.
- Spark sends a task in two writes, without TCP_NODELAY: what is to be done, then its input. The
  second leaves when the first has been acknowledged, and Linux puts that off by 40 ms once a socket
  has answered to something it received. TCP_QUICKACK makes it forget that, up to the next answer;
  so it is set after each task.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

SWITCH = "ROCKETMQ_PROCESS_SETTINGS"
"""The environment variable; `off` leaves the process as it is."""

_KEPT_BYTES = 192 << 20
_LARGEST_KEPT_BYTES = (48 << 20, 32 << 20)  # glibc before 2.35 takes the second only
# Names of mallopt's parameters in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_OPEN_FILES = Path("/proc/self/fd")
_OLDEST = 2
_MANY_OBJECTS = 20_000
_MOST_TIMES = 8
"""Objects of tasks may be frozen along, so this is not done for ever."""


def is_switched_off() -> bool:
    """Tell whether the environment asks to leave the process as it is."""
    return os.environ.get(SWITCH, "").strip().lower() == "off"


@cache
def keep_freed_memory() -> None:
    """Keep freed memory from here on, a bounded amount; only the first call does anything."""
    if is_switched_off():
        return
    try:
        libc = ctypes.CDLL(None)
        is_kept = any(libc.mallopt(_M_MMAP_THRESHOLD, size) for size in _LARGEST_KEPT_BYTES)
        is_kept = is_kept and bool(libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
    except (OSError, AttributeError):
        return
    if is_kept and "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        import pyarrow as pa

        pa.set_memory_pool(pa.system_memory_pool())


@cache
def tune_worker() -> None:
    """Make later tasks of this worker start sooner; only the first call does anything.

    A task calls it before it opens connections of its own: those that are open now are Spark's.
    """
    if is_switched_off():
        return
    gc.callbacks.append(_BetweenTasks(_tcp_connections()).collected)


class _BetweenTasks:
    """The callback that runs when all garbage has been collected, as Spark does after a task."""

    def __init__(self, connections: list[socket.socket]) -> None:
        self._connections = connections
        self._times_left = _MOST_TIMES

    def collected(self, phase: str, info: dict[str, Any]) -> None:
        """Freeze what stays and hurry the connections, after a collection of all objects."""
        if phase != "stop" or info["generation"] != _OLDEST:
            return
        if self._times_left and len(gc.get_objects(_OLDEST)) > _MANY_OBJECTS:
            gc.freeze()
            self._times_left -= 1
        for each in self._connections:
            with suppress(OSError):  # the other side is gone
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _tcp_connections() -> list[socket.socket]:
    """Return the TCP connections of this process, none where they can't be helped.

    They are descriptors of our own: Spark closes and duplicates its own from task to task.
    """
    if not hasattr(socket, "TCP_QUICKACK") or not _OPEN_FILES.is_dir():
        return []
    found: dict[int, socket.socket] = {}
    for path in list(_OPEN_FILES.iterdir()):
        with suppress(OSError):  # closed meanwhile, as the one that was listed is
            status = path.stat()
            if stat.S_ISSOCK(status.st_mode) and status.st_ino not in found:
                each = socket.socket(fileno=os.dup(int(path.name)))
                if _is_tcp_connection(each):
                    found[status.st_ino] = each
                else:
                    each.close()
    return list(found.values())


def _is_tcp_connection(each: socket.socket) -> bool:
    if each.type != socket.SOCK_STREAM or each.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    with suppress(OSError):
        each.getpeername()
        return True
    return False
