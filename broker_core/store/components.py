"""Store components: the write side of one store: files, log, consume queues, index, dispatch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.store.dispatch import Dispatcher
from broker_core.store.index.writer import IndexPosition, IndexWriter
from broker_core.store.io.file_handles import FileHandles
from broker_core.store.log.commit_log import CommitLog
from broker_core.store.log.writer import LogWriter
from broker_core.store.queue.deletions import QueueOrigins
from broker_core.store.queue.writer import QueueWriter

if TYPE_CHECKING:
    from broker_core.store.io.files import Files
    from broker_core.store.settings import StoreSettings


@dataclass(frozen=True, slots=True)
class StoreComponents:
    """All that writes one store; they share one set of open files. `index` is None if it is off."""

    root: Path
    settings: StoreSettings
    handles: FileHandles
    log: LogWriter
    queues: QueueWriter
    index: IndexWriter | None
    dispatcher: Dispatcher

    @property
    def files(self) -> Files:
        """The operating system."""
        return self.handles.files

    @property
    def index_position(self) -> IndexPosition:
        """The end of the index; an empty position if it is off."""
        return self.index.position if self.index is not None else IndexPosition()

    def read_log(self) -> CommitLog:
        """Return the log's read side, listed now."""
        return CommitLog(*self.settings.commit_log_directories(self.root))

    def forget(self) -> None:
        """Drop all that is remembered of the files: another process may have changed them."""
        self.handles.close_all()
        self.queues.forget()
        if self.index is not None:
            self.index.forget()


def open_components(root: Path, settings: StoreSettings, files: Files) -> StoreComponents:
    """Return the components of the store at `root`; opens no file yet."""
    handles = FileHandles(files)
    log = LogWriter(
        settings.commit_log_directories(root), handles, file_bytes=settings.commit_log_file_bytes
    )
    queues = QueueWriter(
        root / "consumequeue",
        handles,
        file_bytes=settings.consume_queue_file_bytes,
        origin=QueueOrigins(root).of,
    )
    index = None
    if settings.index_enabled:
        index = IndexWriter(
            root / "index",
            handles,
            slots=settings.index_slots,
            entries=settings.index_entries,
        )
    return StoreComponents(root, settings, handles, log, queues, index, Dispatcher(queues, index))
