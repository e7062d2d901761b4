"""The writes of a `foreachBatch` that this application has committed, one line for each name.

**Problem.** Two writes of one run with one identity have other rows each. If an earlier run has
written the first, the broker answers both "already done", and the second is lost. The broker knows
the run that decided a batch, not the runs that repeated it, and commits run in processes that Spark
starts, keeps and ends as it likes.

**Outline.** All of them run on the driver's machine, and Spark gives them its folder for temporary
files, which it deletes when the application ends (SPARK_LOCAL_DIRS). One file there for each
broker, query and name holds the number and run of the batch committed last. Its lock makes two
commits at once take turns. Where there is no such folder, the memory of this process has to do.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.types import BatchRef

log = logging.getLogger(__name__)

LOCAL_DIRS = "SPARK_LOCAL_DIRS"
FOLDER = "rocketmq-sink"

_memory: dict[str, str] = {}


class WrittenBatches:
    """The newest committed write of one query and name on one broker, in this application."""

    def __init__(self, address: str, batch: BatchRef, run: str) -> None:
        key = "\n".join((address, batch.owner, batch.name))
        self._key = hashlib.sha256(key.encode()).hexdigest()[:32]
        self._line = f"{batch.number} {run}"

    def has(self) -> bool:
        """Tell whether this run has committed a write of this identity."""
        if _memory.get(self._key) == self._line:
            return True
        path = self._path()
        try:
            return path is not None and path.read_text("utf-8") == self._line
        except OSError:
            return False

    def add(self) -> bool:
        """Note that this run has committed it; return False if it had before."""
        if _memory.get(self._key) == self._line:
            return False
        _memory[self._key] = self._line
        path = self._path()
        if path is None:
            return True
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with path.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                if file.read() == self._line:
                    return False
                file.truncate(0)
                file.write(self._line)
        except OSError as error:
            log.debug("event=write_not_noted path=%s error=%s", path, error)
        return True

    def _path(self) -> Path | None:
        folders = os.environ.get(LOCAL_DIRS, "").split(",")
        return Path(folders[0]) / FOLDER / self._key if folders[0] else None
