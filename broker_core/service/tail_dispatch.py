"""Tail dispatch: a server gives queues and index what its log is ahead of them, within 20 ms.

**Problem.** A few messages are acknowledged once they are in the log (store/log_first.py). What is
pending then costs every reader a look at the log, readers of an older release don't see it, and
after a crash recovery has to dispatch it. An embedded writer dispatches when it closes; a server
lives on.

**Invariants.**

- A record is pending for 20 ms and one dispatch at most, while dispatches succeed.
- Senders wait for no more than one dispatch of a bounded tail: 4,096 records and 1 MiB. Whoever
  sends more dispatches by himself.
- While nothing is pending, nothing happens: no timer, no polling.
- A dispatch that fails takes nothing back. The store refuses appends until it is repaired, which
  the next append tries, and this thread once a second.

**Outline.** The first append that leaves something pending arms the thread (`arm`), which waits for
20 ms, disarms, and takes a turn at the store's lock; that dispatches (store/session.py). Appends
within these 20 ms find it armed. A flush or a close dispatches by itself.

**Rejected.** *A service of background.py.* It would look fifty times a second at an idle store, and
wait for a flush or a retention that takes seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.service.notifying_writer import NotifyingWriter

log = logging.getLogger(__name__)
DELAY_S = 0.02
RETRY_S = 1.0


class TailDispatcher:
    """Dispatches the pending tail of a server's writer, in a thread between `start` and `stop`.

    `pause` waits for some seconds, and returns True if the server stops; tests give their own.
    """

    def __init__(
        self, writer: NotifyingWriter, pause: Callable[[float], bool] | None = None
    ) -> None:
        self._writer = writer
        self._armed = threading.Event()
        self._stopped = threading.Event()
        self._pause = self._stopped.wait if pause is None else pause
        self._thread = threading.Thread(target=self._loop, name="dispatch", daemon=True)
        writer.on_pending = self.arm

    def arm(self) -> None:
        """Let what is pending be dispatched in 20 ms. Called after every append that left some."""
        # Nearly always armed already: then it costs a look.
        if not self._armed.is_set():
            self._armed.set()

    def start(self) -> None:
        """Dispatch from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Dispatch no more; closing the store will."""
        self._stopped.set()
        self._armed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def step(self) -> bool:
        """Wait until something is pending, and dispatch it 20 ms later; False if the server stops.

        If it fails, wait until it may be tried again.
        """
        self._armed.wait()
        if self._stopped.is_set() or self._pause(DELAY_S):
            return False
        # Before the dispatch: what is appended behind it needs another one.
        self._armed.clear()
        # After that: it may have been `stop` that armed it, when the pause was just over.
        if self._stopped.is_set():
            return False
        try:
            self._writer.dispatch_pending()
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread has to live
            log.warning("event=dispatch_failed retry_s=%g error=%s", RETRY_S, error)
            self._armed.set()
            return not self._pause(RETRY_S)
        return True

    def _loop(self) -> None:
        while self.step():
            pass
