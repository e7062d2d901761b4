"""Batches of messages for tests of the store's write side, and stores seen as plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from broker_core.codec.dispatch_request import dispatch_requests
from broker_core.codec.frames import FrameBatch
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from broker_core.codec.record import Record, decode_record
from broker_core.store.index.file import list_index_files
from broker_core.store.index.writer import IndexWriter
from broker_core.store.io.file_handles import FileHandles
from broker_core.store.io.files import OsFiles
from broker_core.store.log.commit_log import CommitLog
from broker_core.store.reader import StoreReader
from broker_core.store.settings import StoreSettings

SMALL = StoreSettings(
    commit_log_file_bytes=4096,
    consume_queue_file_bytes=200,
    index_slots=50,
    index_entries=40,
)
"""Files so small that a few dozen messages roll over all three kinds."""


class QuickFiles(OsFiles):
    """Real files that skip what only loss of power would show: most tests are about the rest."""

    def fsync(self, descriptor: int) -> None:
        del descriptor

    def fsync_dir(self, path: Path) -> None:
        del path


View = dict[tuple[str, int], list[bytes]]
"""The bodies of every queue, in order."""


def batch(
    bodies: Sequence[str],
    *,
    topic: str = "T",
    queues: int = 2,
    first: int = 0,
    sys_flag: int = 0,
) -> MessageBatch:
    """Messages that go round the queues; each has a tag, a key and a unique key of its own."""
    count = len(bodies)
    numbers = range(first, first + count)
    return MessageBatch(
        topics=[topic],
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=(np.arange(first, first + count) % queues).astype(np.int32),
        bodies=pa.array([body.encode() for body in bodies], type=pa.binary()),
        properties=join_properties(
            [
                ("TAGS", pa.array([f"tag{number % 3}" for number in numbers])),
                ("KEYS", pa.array([f"key-{number}" for number in numbers])),
                ("UNIQ_KEY", pa.array([f"{topic}{number:030d}" for number in numbers])),
            ],
            count,
        ),
        born_timestamps=1_700_000_000_000,
        sys_flags=sys_flag,
    )


def named(count: int, first: int = 0, width: int = 20) -> list[str]:
    """Bodies that tell which one they are."""
    return [f"m{number}".ljust(width, ".") for number in range(first, first + count)]


def view(root: Path, settings: StoreSettings | None = None) -> View:
    """Every message that a reader sees, by queue."""
    reader = StoreReader(root, settings)
    try:
        return {queue: bodies(reader, queue) for queue in reader.queues()}
    finally:
        reader.close()


def bodies(reader: StoreReader, queue: tuple[str, int]) -> list[bytes]:
    """The bodies of one queue, each record checked to be the message it should be."""
    found = []
    start, end = reader.queue_range(*queue)
    for frames in reader.frames(*queue, start, end, verify=True):
        for raw, offset in zip(frames.records(), frames.offsets.tolist(), strict=True):
            record: Record = decode_record(raw)
            assert (record.topic, record.queue_id, record.queue_offset) == (*queue, offset)
            assert b"\0" not in record.properties, "torn, and nothing in the format tells"
            found.append(record.body)
    assert len(found) == end - start
    return found


def index_bytes(root: Path) -> list[bytes]:
    """The content of every index file, oldest first; names are times and do not compare."""
    return [path.read_bytes() for path in list_index_files(root / "index")]


def rebuilt_index(root: Path, scratch: Path, settings: StoreSettings) -> list[bytes]:
    """What the index files would be if the whole log were indexed from its first record."""
    handles = FileHandles(OsFiles())
    writer = IndexWriter(
        scratch / "index",
        handles,
        slots=settings.index_slots,
        entries=settings.index_entries,
    )
    log = CommitLog(*settings.commit_log_directories(root))
    for stretch in log.walk(log.start, verify=True):
        if len(stretch.starts):
            frames = FrameBatch(
                stretch.buffer,
                stretch.starts,
                stretch.sizes,
                np.zeros(len(stretch.starts), dtype=np.int64),
                origin=stretch.segment.base,
            )
            fields = dispatch_requests(frames)
            rows = fields.index_rows
            writer.put(
                fields.index_hashes, fields.physical_offsets[rows], fields.store_timestamps[rows]
            )
    handles.close_all()
    return index_bytes(scratch)


def ticking(start_ms: int = 1_700_000_000_000, step_ms: int = 7) -> Callable[[], int]:
    """A clock that moves a little each time it is read."""
    now = [start_ms]

    def clock_ms() -> int:
        now[0] += step_ms
        return now[0]

    return clock_ms
