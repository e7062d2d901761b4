"""What readers see of a pending tail while a writer appends, undoes and dispatches."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker_core.errors import StorageError
from broker_core.store.io.files import Failpoint
from broker_core.store.reader import StoreReader
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from tests.kit.batches import QuickFiles, batch, bodies, named, ticking

SETTINGS = StoreSettings(
    commit_log_file_bytes=1 << 16,
    consume_queue_file_bytes=2000,
    index_slots=50,
    index_entries=1000,
)
"""Files that hold enough for quick appends, which make none."""


class StoppingFiles(QuickFiles):
    """Files that call `then` once a failpoint is reached."""

    def __init__(self) -> None:
        super().__init__()
        self.point: Failpoint | None = None
        self.then: Callable[[], None] = lambda: None

    def reach(self, point: Failpoint) -> None:
        if point is self.point:
            self.point = None
            self.then()


@pytest.fixture
def files() -> StoppingFiles:
    return StoppingFiles()


@pytest.fixture
def writer(tmp_path: Path, files: StoppingFiles) -> Iterator[StoreWriter]:
    """A writer whose store has six messages in two queues, so that quick appends can follow."""
    options = replace(SessionOptions(), clock_ms=ticking(), lock_wait_s=10)
    root = tmp_path / "store"
    with StoreWriter.open(root, SETTINGS, create=True, files=files, options=options) as opened:
        opened.append(batch(named(6)))
        yield opened


@pytest.fixture
def reader(writer: StoreWriter) -> Iterator[StoreReader]:
    opened = StoreReader(writer.root)
    yield opened
    opened.close()


def seen(reader: StoreReader) -> list[list[bytes]]:
    return [bodies(reader, ("T", queue)) for queue in range(2)]


def expected(*names: list[str]) -> list[list[bytes]]:
    flat = [name.encode() for each in names for name in each]
    return [flat[queue::2] for queue in range(2)]


@pytest.mark.parametrize("later", [1, 2], ids=["one-behind-it", "two-behind-it"])
def test_an_append_that_was_undone_after_a_look_is_forgotten(
    writer: StoreWriter, reader: StoreReader, files: StoppingFiles, later: int
) -> None:
    def look_and_fail() -> None:
        assert seen(reader) == expected(named(7))
        raise OSError(errno.EIO, "the disk is gone for a moment")

    files.point, files.then = Failpoint.PENDING_WRITTEN, look_and_fail
    with pytest.raises(StorageError):
        writer.append(batch(named(1, 6), first=6))
    # As long as what was undone, so that no end tells; and the first for the other queue.
    others = [f"x{number}".ljust(20, ".") for number in range(later)]
    for number, body in enumerate(others):
        writer.append(batch([body], first=7 + number))

    even, odd = expected(named(6))
    assert seen(reader) == [
        even + [body.encode() for body in others[1::2]],
        odd + [body.encode() for body in others[0::2]],
    ]
