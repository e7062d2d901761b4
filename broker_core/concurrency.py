"""Concurrency: work in one other thread, and a leader's pause for followers.

    run_ahead        a writer appends a batch while its caller composes the next one
    compute_beside   one value is computed while a block waits for files
    map_ahead        items are prepared while their consumer appends the ones before
    let_come         a leader waits for requests that it can serve together with its own

The first three use one thread that lives as long as their block. Two rules hold for each:

- However the block is left, by its end, an error or a closed generator, no call goes on after it.
- An error raised in the thread is raised again in the caller, at the next `do`, `wait`, result or
  item; none is lost while the block itself succeeds.

One thread, not a pool: calls must run in order, and the caller's thread is busy too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Ahead:
    """Calls in one other thread, in order, one at a time; made by `run_ahead`.

    An error of a call is raised by the next `do` or `wait`.
    """

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._pending: Future[None] | None = None

    def do(self, call: Callable[[], None]) -> None:
        """Wait until the call before has ended, then begin this one."""
        self.wait()
        self._pending = self._thread.submit(call)

    def wait(self) -> None:
        """Wait until the call that is under way has ended."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


@contextmanager
def run_ahead() -> Iterator[Ahead]:
    """Run calls in another thread while the block goes on.

    >>> done: list[int] = []
    >>> with run_ahead() as ahead:
    ...     for number in range(3):
    ...         ahead.do(lambda number=number: done.append(number))
    >>> done
    [0, 1, 2]
    """
    with ThreadPoolExecutor(1, thread_name_prefix="run-ahead") as thread:
        ahead = Ahead(thread)
        yield ahead
        ahead.wait()


@contextmanager
def compute_beside(
    compute: Callable[[], _Result], *, is_worth: bool
) -> Iterator[Callable[[], _Result]]:
    """Compute a value while the block runs, or on request if it is not worth a thread.

    The yielded function returns the value, or raises the error, also after the block.

    >>> with compute_beside(lambda: 42, is_worth=True) as answer:
    ...     pass
    >>> answer()
    42
    """
    if not is_worth:
        yield compute
        return
    with ThreadPoolExecutor(1, thread_name_prefix="compute-beside") as thread:
        yield thread.submit(compute).result


def map_ahead(
    make: Callable[[_Item], _Result], items: Iterable[_Item], *, depth: int = 2
) -> Generator[_Result, None, None]:
    """Yield make(item) for each item, in order, computing up to `depth` of them in advance.

    Items are drawn in the caller's thread. With fewer items than `depth` no thread is started.

    >>> list(map_ahead(str, range(5)))
    ['0', '1', '2', '3', '4']
    """
    rest = iter(items)
    first = list(islice(rest, depth))
    if len(first) < depth:
        yield from map(make, first)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="map-ahead") as thread:
        pending = deque(thread.submit(make, item) for item in first)
        while pending:
            made = pending.popleft().result()
            pending.extend(thread.submit(make, item) for item in islice(rest, 1))
            yield made


def let_come(waiting: Sized, *, pause_s: float, most: int) -> None:
    """Pause while `waiting` keeps growing, up to `most` times; not at all if it is empty."""
    count = 0
    for _ in range(most):
        if len(waiting) <= count:
            return
        count = len(waiting)
        time.sleep(pause_s)
