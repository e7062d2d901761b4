"""One message at a time: sends to a `file:` store beside inserts into SQLite.

One process sends messages of 100 bytes with a key each and no tag, and waits for each before the
next. The peer inserts as many rows (key, body) by autocommit, so one a transaction, into a SQLite
database with a write-ahead log, synchronous off, and an index on the key; all else is as SQLite
comes. The store indexes two keys a message, its own unique one too, and the database one.

Another process (send_reader.py) looks for every hundredth message once it is acknowledged: in a
store that it has opened for reading, at the message's queue and offset; in SQLite over a connection
of its own, by the key. The sender only writes to a pipe, in either turn alike, and waits for no
answer; the measurement fails if one look did not find its message. So both bear the same number of
looks beside them, on cores that they share; how late those began is in the note.

The clock starts after a first message, which makes files and warms the reader, and stops at the
last acknowledgement: what either leaves for later, as SQLite the last pages of its write-ahead log,
is not counted.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from broker_core import open_broker
from tests.bench.data import QUEUES, TOPIC
from tests.bench.figure import Figure, Seconds, Turn, rate_figure, take_turns, tell
from tests.bench.send_reader import DATABASE, body_of
from tests.kit.served import ROOT

NAME = "send.embedded.vs_sqlite"
NAMES = (NAME,)
ROWS = 20_000
LOOK_EVERY = 100
"""All notes of a turn are some 10 KB, which a pipe holds, so the sender never waits for it."""

_CREATE = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE messages (id INTEGER PRIMARY KEY, key TEXT, body BLOB);
CREATE INDEX messages_by_key ON messages (key);
"""
_INSERT = "INSERT INTO messages (key, body) VALUES (?, ?)"

Place = tuple[int, int]
"""Queue and offset of a message; 0 and the id of a row."""
Send = Callable[[str, bytes], Any]
"""Sends a key and a body; returns when that is acknowledged."""
Sender = tuple[Send, Callable[[Any], Place]]
"""A send, and what tells the place of a message from the answer."""
Opening = Callable[[Path], AbstractContextManager[Sender]]


def run(scratch: Path, _: frozenset[str]) -> Iterator[Figure]:
    """The only figure."""
    yield compare(scratch)


def compare(scratch: Path, rows: int = ROWS) -> Figure:
    """Send and insert in turns, each time into a new store and a new database."""
    tell(f"{NAME}: {rows:,} messages, one by one")
    store, database = scratch / "send-store", scratch / "send-sqlite"
    late_ms: dict[str, list[float]] = {"file": [], "sqlite": []}
    times = take_turns(
        {
            "file": _sending("file", store, _open_store, rows, late_ms["file"]),
            "sqlite": _sending("sqlite", database, _open_sqlite, rows, late_ms["sqlite"]),
        }
    )
    note = "; ".join(f"{kind}: {_lateness(each)}" for kind, each in late_ms.items())
    return rate_figure(NAME, rows, times["file"], times["sqlite"], columns="keys,body", note=note)


def _lateness(late_ms: Sequence[float]) -> str:
    last = sorted(late_ms)[int(len(late_ms) * 0.99)]
    return f"looks began {statistics.median(late_ms):.1f} ms (p99 {last:.1f}) after the answer"


def _sending(kind: str, folder: Path, opening: Opening, rows: int, late_ms: list[float]) -> Turn:
    keys = [f"order-{number}" for number in range(1, rows + 1)]
    messages = [(key, body_of(key)) for key in keys]

    def turn() -> Seconds:
        folder.mkdir()
        with opening(folder) as (send, place), _Reader(kind, folder) as reader:
            first = "order-0"
            reader.meet(place(send(first, body_of(first))), first)
            begin = time.perf_counter()
            for number, (key, body) in enumerate(messages, start=1):
                answer = send(key, body)
                if number % LOOK_EVERY == 0:
                    reader.look(place(answer), key)
            seconds = time.perf_counter() - begin
            late_ms.extend(reader.end(rows // LOOK_EVERY))
        shutil.rmtree(folder)
        return seconds

    return turn


@contextmanager
def _open_store(folder: Path) -> Iterator[Sender]:
    with open_broker(f"file:{folder}", mode="rw", create=True) as broker:
        broker.create_topic(TOPIC, queues=QUEUES)
        yield (
            lambda key, body: broker.send(TOPIC, body, keys=key),
            lambda sent: (sent.queue_id, sent.queue_offset),
        )


@contextmanager
def _open_sqlite(folder: Path) -> Iterator[Sender]:
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as connection:
        connection.executescript(_CREATE)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        yield (
            lambda key, body: connection.execute(_INSERT, (key, body)),
            lambda cursor: (0, cursor.lastrowid),
        )


class _Reader:
    """The process that looks for messages."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.send_reader", kind, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a note is one write to the pipe
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def meet(self, place: Place, key: str) -> None:
        """Wait until it has opened the store and found the first message."""
        assert self._process.stdout is not None
        self.look(place, key)
        assert self._process.stdout.readline() == b"ready\n"

    def look(self, place: Place, key: str) -> None:
        """Let it look for a message that is acknowledged; do not wait for it."""
        assert self._process.stdin is not None
        note = f"{place[0]} {place[1]} {key} {time.monotonic_ns()}\n"
        self._process.stdin.write(note.encode())

    def end(self, expected: int) -> list[float]:
        """Wait for its looks: all were done and found the message. How late they began, in ms."""
        output, _ = self._process.communicate()
        assert self._process.returncode == 0
        answer = json.loads(output)
        assert answer["missing"] == []
        assert answer["looked"] == expected
        late_ms: list[float] = answer["late_ms"]
        return late_ms
