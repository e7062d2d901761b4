"""The product's sink, in processes that die where a test says: once, then never again.

Spark's workers are forked long before a test knows what it wants, so what is to happen lies in a
file: `arm` puts it there, the process that does it takes it away first. It is meant for the run of
the query that begins next: a task of the one before, which Spark has given up, may still begin or
go on writing, and must not take it.

    phase   plan (a writer is made), write (a task), commit, abort
    point   begin, end, or a failpoint of the store, for the nth time in that phase
    deed    kill (this process), kill-driver (the driver and its JVM too), raise, wait (until the
            test says `go`)
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from broker_core.store.io.files import Failpoint, OsFiles
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.data_source import RocketMQDataSource
from pyspark_rocketmq.sink import task
from pyspark_rocketmq.sink.writer import RocketMQStreamWriter

NAME = "rocketmq-dying"
PATIENCE_S = 240


@dataclass(frozen=True)
class Deed:
    """What one process is to do, where."""

    phase: str
    point: str = "begin"
    nth: int = 1
    deed: str = "kill"

    def __str__(self) -> str:
        times = f"-{self.nth}" if self.nth > 1 else ""
        return f"{self.deed}-{self.phase}-{self.point}{times}"


class Control:
    """The folder through which a test and the processes of its query speak."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def arm(self, deed: Deed) -> None:
        (self.folder / "run").unlink(missing_ok=True)
        fresh = self.folder / "new"
        fresh.write_text(json.dumps(asdict(deed)))
        fresh.rename(self.folder / f"deed-{uuid.uuid4().hex}")

    def begin_run(self) -> str:
        """A name for the run that begins now, the only one that does what is armed."""
        name = uuid.uuid4().hex
        (self.folder / "run").write_text(name)
        return name

    def disarm(self) -> None:
        for path in self._armed():
            path.unlink(missing_ok=True)

    @property
    def is_done(self) -> bool:
        """Whether the deed was done, or begun."""
        return not self._armed()

    def _armed(self) -> list[Path]:
        return list(self.folder.glob("deed-*"))

    def wait_until_done(self) -> None:
        self._wait(lambda: self.is_done)

    def go(self) -> None:
        """Let a process that waits go on."""
        (self.folder / "go").touch()

    def driver_is(self, *pids: int) -> None:
        (self.folder / "driver").write_text(json.dumps(pids))

    def deed(self, run: str, phase: str) -> tuple[Path, Deed] | None:
        """What a run is to do in a phase, and the file that says so."""
        for path in self._armed():
            with suppress(FileNotFoundError):
                found = Deed(**json.loads(path.read_text()))
                is_meant = (self.folder / "run").read_text() == run
                return (path, found) if is_meant and found.phase == phase else None
        return None

    def do(self, path: Path, deed: Deed) -> None:
        """Do it, if no other process was faster."""
        try:
            path.rename(self.folder / f"taken-{os.getpid()}")
        except FileNotFoundError:
            return
        if deed.deed == "raise":
            message = f"the test wants {deed.phase} to fail"
            raise RuntimeError(message)
        if deed.deed == "wait":
            self._wait((self.folder / "go").exists)
            (self.folder / "go").unlink(missing_ok=True)
            return
        if deed.deed == "kill-driver":
            for pid in json.loads((self.folder / "driver").read_text()):
                os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def _wait(is_so: object) -> None:
        assert callable(is_so)
        deadline = time.monotonic() + PATIENCE_S
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert is_so(), "nobody came"


@contextmanager
def watched(options: Mapping[str, str], phase: str) -> Iterator[None]:
    """Do the deed of this phase where it is to be done."""
    control = Control(Path(options["control"]))
    found = control.deed(options["run"], phase)
    if found is None:
        yield
        return
    path, deed = found
    if deed.point == "begin":
        control.do(path, deed)
    with _failpoints(deed, lambda: control.do(path, deed)):
        yield
    if deed.point == "end":
        control.do(path, deed)


@contextmanager
def _failpoints(deed: Deed, do: Callable[[], None]) -> Iterator[None]:
    """Let the store's real files tell where its writer is; this process does nothing else.

    A task makes more than one append of its few rows, so that it can die between two of them.
    """
    passed = 0

    def reach(self: OsFiles, point: Failpoint) -> None:
        nonlocal passed
        passed += point == deed.point
        if point == deed.point and passed == deed.nth:
            do()

    # A writer that this worker has open already remembers the real files: let it open another.
    client_cache._cached.clear()
    original, rows = OsFiles.reach, task.APPEND_ROWS
    OsFiles.reach = reach  # type: ignore[method-assign]  # in a worker that is about to die
    task.APPEND_ROWS = 2
    try:
        yield
    finally:
        OsFiles.reach = original  # type: ignore[method-assign]  # as it was
        task.APPEND_ROWS = rows


class DyingStreamWriter(RocketMQStreamWriter):
    """The product's writer, watched."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._watched = {name: options[name] for name in ("control", "run")}
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows = (batch.slice(row, 1) for batch in iterator for row in range(batch.num_rows))
        with watched(self._watched, "write"):
            return super().write(rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        with watched(self._watched, "commit"):
            super().commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        with watched(self._watched, "abort"):
            super().abort(messages, batchId)


class DyingSource(RocketMQDataSource):
    """The product's source and sink, with the other writer."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingStreamWriter:  # noqa: N802 - Spark's name
        del overwrite
        with watched(self.options, "plan"):
            return DyingStreamWriter(self.options, schema)
