"""One call ahead: the next rows are read and composed while the last ones are being written.

A writer waits for its turn at the store, or for a server's answer; Spark would wait with it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self


class OneAhead:
    """Does calls in a thread of its own, in order, one at a time; a context manager.

    What a call raised is raised by whoever asks next. However the block is left, no call goes on.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="one-ahead")
        self._pending: Future[None] | None = None

    def do(self, call: Callable[[], None]) -> None:
        """Begin a call, once the one before it has ended."""
        self.wait()
        self._pending = self._thread.submit(call)

    def wait(self) -> None:
        """Let the call that is under way end."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._thread.shutdown()
