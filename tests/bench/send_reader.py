"""Looks for messages that another process has just been acknowledged, for send.py.

    python -m tests.bench.send_reader (file | sqlite) FOLDER

Each line of input is the queue, the offset and the key of a message, and when it was acknowledged
by the machine's monotonic clock, in nanoseconds. The store is opened at the first line; that
message is there, or this ends with an error, and says `ready`. At the end of input it prints one
line of JSON: how many were looked for after the first, the keys of those that were missing or other
than they should be, and how many milliseconds after its acknowledgement each look began.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from broker_core import open_broker
from broker_core.errors import OffsetRangeError
from tests.bench.data import BODY_BYTES, TOPIC

DATABASE = "messages.db"

Look = Callable[[int, int, str], bool]
"""Tells whether the message at a queue and offset is there and has this key and its body."""


def body_of(key: str) -> bytes:
    """Return the body of the message with this key."""
    return key.rjust(BODY_BYTES, "x").encode()


@contextmanager
def look_in_store(folder: Path) -> Iterator[Look]:
    """Open a store for reading."""
    with open_broker(f"file:{folder}", mode="r") as broker:

        def look(queue_id: int, offset: int, key: str) -> bool:
            try:
                found = broker.read(TOPIC, queue_id, offset, offset + 1, columns=["keys", "body"])
            except OffsetRangeError:
                return False
            rows: list[dict[str, object]] = found.to_pylist()
            return rows == [{"keys": key, "body": body_of(key)}]

        yield look


@contextmanager
def look_in_sqlite(folder: Path) -> Iterator[Look]:
    """Open a connection to the database."""
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as connection:

        def look(_queue_id: int, _offset: int, key: str) -> bool:
            found = connection.execute("SELECT body FROM messages WHERE key = ?", (key,))
            return found.fetchall() == [(body_of(key),)]

        yield look


def main(kind: str, folder: str) -> None:
    """Look for one message after another."""
    opened = look_in_store if kind == "file" else look_in_sqlite
    first = sys.stdin.readline().split()
    missing: list[str] = []
    late_ms: list[float] = []
    with opened(Path(folder)) as look:
        assert look(int(first[0]), int(first[1]), first[2])
        print("ready", flush=True)
        for line in sys.stdin:
            queue_id, offset, key, acknowledged_ns = line.split()
            late_ms.append((time.monotonic_ns() - int(acknowledged_ns)) / 1e6)
            if not look(int(queue_id), int(offset), key):
                missing.append(key)
    print(json.dumps({"looked": len(late_ms), "missing": missing, "late_ms": late_ms}))


if __name__ == "__main__":
    main(*sys.argv[1:])
