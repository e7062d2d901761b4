"""The signals that end a process, waited for so that none is missed.

Python runs a signal's handler in the main thread, when that next executes Python code. A main
thread that is blocked would not notice a signal that another thread has got, nor one that came
just before it blocked, and the process would go on for ever. Python's own C handler, which runs
at once and in whatever thread, can write the signal's number into a pipe; reading that pipe misses
nothing.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

from broker_core.closing import Closing


class StopSignals(Closing):
    """SIGTERM and SIGINT, from the beginning of a `with` on; to be made in the main thread."""

    NUMBERS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._writes, False)
        self._outer_wakeup = signal.set_wakeup_fd(self._writes)
        self._outer = [signal.signal(number, _noted_in_the_pipe) for number in self.NUMBERS]

    def close(self) -> None:
        """Let signals do what they did before."""
        for number, handler in zip(self.NUMBERS, self._outer, strict=True):
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._outer_wakeup)
        os.close(self._reads)
        os.close(self._writes)

    def wait(self) -> signal.Signals:
        """Wait for one of them; which it was."""
        while True:
            [number] = os.read(self._reads, 1)
            if number in self.NUMBERS:
                return signal.Signals(number)


def _noted_in_the_pipe(number: int, frame: FrameType | None) -> None:
    """Do nothing: a handler has to be set for Python to look at the signal at all."""
    del number, frame
