"""Waiting a little while others come along: work that is done for many costs less for each."""

from __future__ import annotations

import time
from collections.abc import Sized


def let_come(waiting: Sized, *, pause_s: float, most: int) -> None:
    """Pause while more keep coming, at most so many times; not at all if nobody waits."""
    count = 0
    for _ in range(most):
        if len(waiting) <= count:
            return
        count = len(waiting)
        time.sleep(pause_s)
