"""The process that tasks run in: what a task does for those that come after it.

Spark forks a worker and lets it do one task after another, with a full collection of garbage after
each; workers that plan reads and writes for it are alike. Two things make every task wait, and both
can be helped from inside:

- The collector goes through some hundred thousand objects that belong to modules and stay for the
  life of the process. Frozen, they are left alone. That is done whenever there are many new ones:
  modules come by and by, and the collector also runs in the middle of their coming.
- Spark sends a task in two pieces, without TCP_NODELAY: what is to be done, then its input. The
  second leaves when the first has been acknowledged, and Linux puts that off by 40 ms once a socket
  has answered to something it received. TCP_QUICKACK makes it forget that, up to the next answer;
  so it is set after each task.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_OPEN_FILES = Path("/proc/self/fd")
_OLDEST = 2
_MANY_OBJECTS = 20_000
_MOST_TIMES = 8
"""Objects of tasks may be frozen along, so this is not done for ever."""


@cache
def settle_in() -> None:
    """Called by a task, before it opens connections of its own; once is enough for a process."""
    gc.callbacks.append(_BetweenTasks(_tcp_connections()).collected)


class _BetweenTasks:
    """What is done whenever all garbage has been collected, as Spark does after a task."""

    def __init__(self, connections: list[socket.socket]) -> None:
        self._connections = connections
        self._times_left = _MOST_TIMES

    def collected(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the collector before (`start`) and after (`stop`) a collection."""
        if phase != "stop" or info["generation"] != _OLDEST:
            return
        if self._times_left and len(gc.get_objects(_OLDEST)) > _MANY_OBJECTS:
            gc.freeze()
            self._times_left -= 1
        for each in self._connections:
            with suppress(OSError):  # the other side is gone
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _tcp_connections() -> list[socket.socket]:
    """The TCP connections of this process, none where they can't be helped.

    They are descriptors of our own: Spark closes and duplicates its ones from task to task.
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
