"""A process that reads a store without pause, and holds what it sees to what was promised before.

Each look reads the promises first. Then the end of every queue is at least what was promised, the
newest promised messages of a queue are the right ones, and one of them is found by its key. Every
few looks are those of a reader that is opened anew.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from operator import ge
from pathlib import Path
from random import Random

from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec.record import decode_record
from broker_core.store.reader import StoreReader
from tests.kit import promising_writer, stores
from tests.kit.promises import QUEUES, TOPIC, Promises, body_of, key_of

MOST = 20
"""Messages of a queue that are read at a look."""
ANEW = 25
"""Every so many looks a reader is opened anew; every other one of these is a broker."""


@dataclass(frozen=True)
class Report:
    """What a reader did: looks, how many of them saw more than the one before; or its error."""

    looks: int
    changes: int
    error: str = ""


class DemandingReader:
    """See the module. With `is_steady` whatever is visible stays, and is right, promised or not.

    Visible to one reader, that is. Another one, opened when a writer had just died, may see what
    recovery will do about an append that was promised to nobody.
    """

    def __init__(self, root: Path, promises: Path, *, is_steady: bool) -> None:
        self._root = root
        self._promises = Promises(promises)
        self._is_steady = is_steady
        self._reader = StoreReader(root)
        self._chance = Random(1)
        self._ends = self._last = [0] * QUEUES
        self.looks = self.changes = 0

    def look(self) -> None:
        """Look once."""
        self.looks += 1
        if self.looks % ANEW:
            self._look(self._reader)
        elif self.looks % (2 * ANEW):
            reader = StoreReader(self._root)
            self._look(reader)
            reader.close()
        else:
            with stores.open_r(self._root) as broker:
                self._ask(broker)

    def _look(self, reader: StoreReader) -> None:
        promised = self._promises.all()
        reader.refresh()
        ends = [reader.queue_range(TOPIC, queue_id)[1] for queue_id in range(QUEUES)]
        self._judge(promised, ends)
        if self._is_steady and reader is self._reader:
            assert all(map(ge, ends, self._ends)), (
                f"the queues ended at {self._ends}, now at {ends}"
            )
            self._ends = ends
        queue_id = self._chance.randrange(QUEUES)
        end = ends[queue_id] if self._is_steady else promised[queue_id]
        if not end:
            return
        start = max(0, end - self._chance.randint(1, MOST))
        bodies = [
            decode_record(raw).body
            for frames in reader.frames(TOPIC, queue_id, start, end, verify=True)
            for raw in frames.records()
        ]
        assert bodies == [body_of(queue_id, offset) for offset in range(start, end)]
        if promised[queue_id]:
            offset = self._chance.randint(max(0, promised[queue_id] - MOST), promised[queue_id]) - 1
            self._find(reader, queue_id, max(0, offset))

    def _find(self, reader: StoreReader, queue_id: int, offset: int) -> None:
        found = [
            reader.record_at(at) for at in reader.lookup(TOPIC, key_of(queue_id, offset), limit=9)
        ]
        places = [(record.queue_id, record.queue_offset) for record in found]
        assert (queue_id, offset) in places, f"key of {queue_id}/{offset}: {places}"

    def _ask(self, broker: EmbeddedBroker) -> None:
        """Look through a broker's own calls."""
        promised = self._promises.all()
        ends = [end for _, end in broker.offsets(TOPIC).values()]
        self._judge(promised, [int(end) for end in ends])
        queue_id = self._chance.randrange(QUEUES)
        if offset := promised[queue_id]:
            read = broker.read(TOPIC, queue_id, offset - 1, offset).column("body").to_pylist()
            assert read == [body_of(queue_id, offset - 1)]
            found = broker.query(TOPIC, key_of(queue_id, offset - 1))
            assert read[0] in found.column("body").to_pylist()

    def _judge(self, promised: Sequence[int], ends: list[int]) -> None:
        for queue_id, (count, end) in enumerate(zip(promised, ends, strict=True)):
            assert end >= count, f"queue {queue_id} ends at {end}, {count} were promised before"
        self.changes += ends != self._last
        self._last = ends


def read(root: Path, promises: Path, is_steady: bool, told: Connection) -> None:
    """Look until a word comes, and report."""
    reader = DemandingReader(root, promises, is_steady=is_steady)
    error = ""
    try:
        while not told.poll():
            reader.look()
        reader.look()
    except BaseException:  # noqa: BLE001 - told to the test, which raises it
        error = traceback.format_exc()
    told.send(Report(reader.looks, reader.changes, error))


@contextlib.contextmanager
def reading(root: Path, promises: Path, *, is_steady: bool) -> Iterator[list[Report]]:
    """Read beside a block; the list has the report after it. An error of the reader is raised."""
    Promises(promises)  # made before two processes could make it at once
    here, there = multiprocessing.Pipe()
    child = promising_writer.context().Process(
        target=read, args=(root, promises, is_steady, there), daemon=True
    )
    child.start()
    there.close()
    reports: list[Report] = []
    try:
        yield reports
        with contextlib.suppress(BrokenPipeError):  # it has met an error, and said so
            here.send("stop")
        try:
            reports.append(here.recv())
        except EOFError:
            child.join(5)
            raise AssertionError(f"the reader ended with {child.exitcode}") from None
        assert not reports[0].error, reports[0].error
    finally:
        child.kill()
        child.join()
