"""Broker pool: one writer that holds the store's lock, and brokers over it that calls borrow.

The writer is thread-safe, and there is one. Readers are not thread-safe and cost little, so each
call borrows a broker with a reader of its own and gives it back; there are never more of them than
calls at once. All read the same files: messages that the writer has acknowledged are there for the
next call that looks.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.broker.broker import EmbeddedBroker
from broker_core.clock import now_ms
from broker_core.errors import UnavailableError
from broker_core.service.arrival_notifier import ArrivalNotifier
from broker_core.service.notifying_writer import NotifyingWriter
from broker_core.service.transient_pool import PooledWriter
from broker_core.store.reader import StoreReader
from broker_core.store.session import SessionOptions

if TYPE_CHECKING:
    from broker_core.store.io.files import Files
    from broker_core.store.recovery.plan import Progress
    from broker_core.store.settings import StoreSettings

LOCK_WAIT_S = 2.0
"""Longer than an embedded writer's turn at the lock. Another server holds it for its life, and
waiting for that would only delay the error."""


class BrokerPool:
    """One store, open for a server's life. Thread-safe."""

    def __init__(self, writer: NotifyingWriter, clock_ms: Callable[[], int] = now_ms) -> None:
        self.writer = writer
        self.arrivals = writer.arrivals
        self.settings: StoreSettings = writer.settings
        self.instance = uuid.uuid4().bytes
        self.clock_ms = clock_ms
        self._lock = threading.Lock()
        self._idle: list[EmbeddedBroker] = []
        self._is_closed = False
        self.is_stopping = False

    @classmethod
    def open(
        cls,
        root: Path,
        settings: StoreSettings,
        *,
        create: bool = False,
        files: Files | None = None,
        clock_ms: Callable[[], int] = now_ms,
        progress: Progress | None = None,
        is_pooled: bool = False,
    ) -> BrokerPool:
        """Open a store for life; raise StoreLockedError if another process writes to it.

        `is_pooled` lets clients' messages wait in memory before they are written.
        """
        options = SessionOptions(clock_ms=clock_ms, lock_wait_s=LOCK_WAIT_S, progress=progress)
        kind = PooledWriter if is_pooled else NotifyingWriter
        writer = kind.open(root, settings, create=create, hold=True, files=files, options=options)
        assert isinstance(writer, NotifyingWriter)
        writer.arrivals = ArrivalNotifier()
        return cls(writer, clock_ms)

    @contextmanager
    def broker(self) -> Iterator[EmbeddedBroker]:
        """Borrow a broker over the store for a block; not to be closed, nor kept."""
        broker = self._take()
        try:
            yield broker
        finally:
            with self._lock:
                if not self._is_closed:
                    self._idle.append(broker)

    def trim(self) -> None:
        """Close the readers that are not on loan, and with them maps of files that were deleted."""
        with self._lock:
            idle, self._idle = self._idle, []
        for broker in idle:
            broker.reader.close()

    def begin_stop(self) -> None:
        """Let calls that wait for messages end."""
        self.is_stopping = True
        self.arrivals.wake_all()

    def stopping(self) -> UnavailableError:
        """Return the error that such calls end with."""
        return UnavailableError(f"The broker of store {self.writer.root} is stopping; try later.")

    def close(self) -> None:
        """Flush, mark the store closed, give the lock back; brokers on loan stay readable."""
        with self._lock:
            self._is_closed = True
        self.trim()
        self.writer.close()

    def _take(self) -> EmbeddedBroker:
        with self._lock:
            if self._is_closed:
                raise self.stopping()
            if self._idle:
                return self._idle.pop()
        reader = StoreReader(self.writer.root, self.settings)
        root = str(self.writer.root)
        broker = EmbeddedBroker(root, reader, self.writer, clock_ms=self.clock_ms, is_served=True)
        # An EmbeddedBroker makes itself the writer's hook. It may be on loan to a call when the
        # writer deletes files, so the hook borrows one that is not.
        self.writer.before_delete = self._keep_decisions
        return broker

    def _keep_decisions(self, log_start: int, *, is_locked: bool) -> None:
        with self.broker() as broker:
            broker.transactions.keep_decisions(log_start, is_locked=is_locked)
