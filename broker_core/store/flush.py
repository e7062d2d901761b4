"""Flush: which fsync makes which promise.

    append, flush="sync"   fsyncs the log's segments (and their names, if new) before anything
                           refers to the records: an acknowledged message survives loss of power.
                           Consume queues and index are rebuilt from the log.
    flush                  fsyncs all files that hold anything up to the log's end at that time,
                           then writes the checkpoint that says so: recovery need not look there.
    close                  flushes and, if no other writer appended during it, marks the store
                           CLOSED and removes `abort`: the next open, ours or Apache's, trusts it.

Without any of them an acknowledged message survives the death of every process, because the page
cache does, but not that of the machine.

The checkpoint is written after the fsyncs it vouches for, and fsynced itself. Several processes may
have written since the last flush. The marker's durable_end says from where on, and the log itself
says which files that touched.

The turns around a flush are in session.py (`begin_flush`, `end_flush`), the call in writer.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.store.dispatch import group_by_queue
from broker_core.store.index.file import list_index_files, read_header
from broker_core.store.io.file_handles import Dirty
from broker_core.store.io.segments import segment_name
from broker_core.store.log.scan import LogScan
from broker_core.store.queue.consume_queue import ENTRY_BYTES

if TYPE_CHECKING:
    from broker_core.store.components import StoreComponents
    from broker_core.store.io.files import Files


def dirty_since(components: StoreComponents, durable_end: int) -> Dirty:
    """Return all files that hold records from `durable_end` on: log, consume queues, index."""
    dirty = Dirty()
    log = components.read_log()
    for segment in log.segments:
        if segment.end > durable_end:
            dirty.created.add(segment.path)
    file_bytes = components.settings.consume_queue_file_bytes
    # The log is the only record of what other processes wrote: their own notes died with them.
    scan = LogScan(log, components.settings, max(durable_end, log.start), verify=False)
    for requests in scan.batches():
        groups = group_by_queue(
            requests.topics, requests.topic_codes, requests.queue_ids, requests.in_queue
        )
        offsets = requests.queue_offsets[groups.rows]
        for number, queue in enumerate(groups.queues):
            first, last = int(groups.bounds[number]), int(groups.bounds[number + 1]) - 1
            low = int(offsets[first]) * ENTRY_BYTES // file_bytes * file_bytes
            high = int(offsets[last]) * ENTRY_BYTES
            for base in range(low, high + 1, file_bytes):
                dirty.created.add(components.queues.directory_of(queue) / segment_name(base))
    for path in list_index_files(components.root / "index"):
        if read_header(path).end_physical_offset >= durable_end:
            dirty.created.add(path)
    dirty.written |= dirty.created
    return dirty


def make_durable(files: Files, dirty: Dirty, root: Path) -> None:
    """Fsync files and, for new ones, the directories up to the root; missing files are skipped."""
    for path in sorted(dirty.written):
        try:
            descriptor = files.open(path)
        except FileNotFoundError:
            continue
        try:
            files.fsync(descriptor)
        finally:
            files.close(descriptor)
    # Names after bytes, the deepest directory first: a durable name never leads to a file or a
    # directory that is not durable itself.
    directories = {parent for path in dirty.created for parent in _up_to(path.parent, root)}
    for directory in sorted(directories, reverse=True):
        try:
            files.fsync_dir(directory)
        except FileNotFoundError:
            continue


def _up_to(directory: Path, root: Path) -> list[Path]:
    """Return a directory and those above it, up to the store's root if it lies below that."""
    found = [directory]
    while found[-1] != root and found[-1].is_relative_to(root):
        found.append(found[-1].parent)
    return found


def filled_index_time(components: StoreComponents) -> int:
    """Return the end time of the newest full index file, 0 if none is full."""
    for path in reversed(list_index_files(components.root / "index")):
        header = read_header(path)
        if header.entry_count >= components.settings.index_entries:
            return header.end_timestamp
    return 0
