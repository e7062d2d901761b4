"""A call in a thread of its own that pauses where a test wants it to; it goes on, or dies there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Self

from tests.kit.faulty_files import Died


class PausedCall:
    """A call under way. It runs up to where it first pauses, or to its end, before it is returned.

    `answer` is what it said last: "paused" or the name of the place, or what it returned.
    """

    def __init__(self, call: Callable[[Self], str]) -> None:
        self._is_over = False
        self._said: SimpleQueue[tuple[str, bool]] = SimpleQueue()
        self._told: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()
        self.answer = self._hear()

    @property
    def is_running_here(self) -> bool:
        """True for the thread of the call."""
        return threading.current_thread() is self._thread

    def _run(self, call: Callable[[Self], str]) -> None:
        try:
            answer = call(self)
        except Died:
            answer = "died"
        except BaseException as error:  # noqa: BLE001  # told to the test, as its answer
            answer = repr(error)
        self._said.put((answer, True))

    def _hear(self) -> str:
        answer, self._is_over = self._said.get()
        if self._is_over:
            self._thread.join()
        return answer

    def pause(self, place: str = "paused") -> None:
        """Wait, in the call, to be resumed; or die."""
        self._said.put((place, False))
        if not self._told.get():
            raise Died

    def resume(self) -> str:
        """Let the call go on to where it pauses again, or to its end; return where that is."""
        if not self._is_over:
            self._told.put(True)
            self.answer = self._hear()
        return self.answer

    def kill(self) -> None:
        """Let the call die where it is."""
        if not self._is_over:
            self._told.put(False)
            self.answer = self._hear()
