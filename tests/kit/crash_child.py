"""A process that appends and acknowledges over a pipe until it is killed.

Each acknowledgement is sent after `append` returned, so whatever the parent has read was promised.
Started by a fork server that has everything imported, so that hundreds of kills take little time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from broker_core.store.io.files import Failpoint
from broker_core.store.session import SessionOptions
from broker_core.store.writer import StoreWriter
from tests.kit.batches import batch, named, ticking
from tests.kit.crash_script import GIVEN
from tests.kit.faulty_files import FaultyFiles, kill_self

SIZES = (1, 7, 3, 12, 2)
"""Messages in each batch, over and over."""


@dataclass(frozen=True)
class Orders:
    """What a child does: which topic it fills, how many batches, where it kills itself."""

    root: Path
    topic: str
    batches: int
    stop_at: tuple[Failpoint, int] | None = None
    flush: str = "async"
    removes_topic: bool = False


def bodies_of(number: int) -> list[str]:
    """The messages of a child's batch, which tell where they belong."""
    return named(SIZES[number % len(SIZES)], 100 * number, width=10)


def context() -> ForkServerContext:
    """Where children come from."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.kit.crash_child"])
    return found


def start(orders: Orders) -> tuple[ForkServerProcess, Connection]:
    """Start a child; the connection yields the number of each batch it was promised."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = context().Process(target=_run, args=(orders, there), daemon=True)
    child.start()
    there.close()
    return child, here


def acknowledged(child: ForkServerProcess, promises: Connection) -> int:
    """Read what a child promised until it is gone; how many batches that is."""
    count = 0
    try:
        while True:
            count = promises.recv() + 1
    except EOFError:
        child.join()
        return count


def kill(child: ForkServerProcess) -> None:
    """End a child as `kill -9` does."""
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()


def _run(orders: Orders, promises: Connection) -> None:
    files = FaultyFiles(stop_at=orders.stop_at, on_stop=kill_self)
    options = SessionOptions(clock_ms=ticking(), lock_wait_s=60)
    store = StoreWriter.open(orders.root, GIVEN, create=True, files=files, options=options)
    for number in range(orders.batches):
        if orders.removes_topic and number == 2:
            store.append(batch(["gone"], topic="Removed"))
            store.delete_queues("Removed")
        store.append(batch(bodies_of(number), topic=orders.topic), flush=orders.flush)
        promises.send(number)
        if number % 4 == 3:
            store.flush()
    if orders.removes_topic:
        store.delete_before(2048)
    store.close()
