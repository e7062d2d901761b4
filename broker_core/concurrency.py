"""One call ahead: the next rows are read and composed while the last ones are being written.

A writer waits for its turn at the store, or for a server's answer; Spark would wait with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager


class OneAhead:
    """Does calls in a thread of its own, in order, one at a time; see `one_ahead`.

    What a call raised is raised by whoever asks next.
    """

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
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


@contextmanager
def one_ahead() -> Iterator[OneAhead]:
    """Calls that are done ahead of a block; however it is left, none goes on after it."""
    with ThreadPoolExecutor(1, thread_name_prefix="one-ahead") as thread:
        ahead = OneAhead(thread)
        yield ahead
        ahead.wait()
