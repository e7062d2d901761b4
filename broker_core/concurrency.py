"""Concurrency: work in one other thread, and a queue that one of its waiting threads serves.

    run_ahead        a writer appends a batch while its caller composes the next one
    compute_beside   one value is computed while a block waits for files
    map_ahead        items are prepared while their consumer appends the ones before
    GroupQueue       requests that wait at the same time are served together, by one of them
    let_come         the leader of a group waits for requests that it can serve with its own

The first three use one thread that lives as long as their block. Two rules hold for each:

- However the block is left, by its end, an error or a closed generator, no call goes on after it.
- An error raised in the thread is raised again in the caller, at the next `do`, `wait`, result or
  item; none is lost while the block itself succeeds.

One thread, not a pool: calls must run in order, and the caller's thread is busy too.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Generic, TypeVar

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


class _Seat(Generic[_Item]):
    """One item in the queue. `turn` is locked until the item is served or its thread is to lead."""

    __slots__ = ("error", "is_served", "item", "turn")

    def __init__(self, item: _Item) -> None:
        self.item = item
        self.is_served = False
        self.error: BaseException | None = None
        # A bare lock, not an Event: that is three objects, and one is made for every item.
        self.turn = threading.Lock()
        self.turn.acquire()


class GroupQueue(Generic[_Item]):
    """Items of many threads, served in groups by one of the threads that wait. Thread-safe.

    Problem: an append, to a log or over a network, costs much the same for one request as for many.
    Requests that wait at the same time should share one, and a lone request should wait for nobody.

    Invariants: `serve` runs in one thread at a time. Items are served in the order in which they
    came, each once, each in one group. The thread that leads has its own item at the head of the
    queue, so every leader serves itself, and a leader serves one group only: no thread works for
    others for longer than one call.

    Outline: a thread that finds no leader leads. It takes the items that wait, up to `most_bytes`
    or one item if that is larger, calls `serve`, hands the lead to the first thread that waits, and
    wakes the threads of its group. While groups have more than one item, the next leader first
    waits up to `pauses` times `pause_s`, as long as the queue grows: senders that were just
    answered tend to send again.

    Rejected: a thread of its own. It costs a lone sender two switches of threads for each request.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[_Item]], None],
        size_bytes: Callable[[_Item], int],
        *,
        most_bytes: int,
        pause_s: float,
        pauses: int,
    ) -> None:
        self._serve = serve
        self._size_bytes = size_bytes
        self._most_bytes = most_bytes
        self._pause_s = pause_s
        self._pauses = pauses
        self._lock = threading.Lock()
        self._waiting: deque[_Seat[_Item]] = deque()
        self._is_led = False
        self._is_busy = False

    def __len__(self) -> int:
        """Return how many items wait; those that are being served do not count."""
        return len(self._waiting)

    def do(self, item: _Item) -> None:
        """Return when `serve` was called with a group that the item is in.

        `serve` keeps results and errors in the items. An error that it raises all the same is
        raised by `do` for every item of that group.
        """
        mine = _Seat(item)
        with self._lock:
            self._waiting.append(mine)
            leads, self._is_led = not self._is_led, True
        if not leads:
            mine.turn.acquire()
        if not mine.is_served:
            self._lead()
        if mine.error is not None:
            raise mine.error

    def _lead(self) -> None:
        if self._is_busy:
            let_come(self._waiting, pause_s=self._pause_s, most=self._pauses)
        group = self._take()
        try:
            self._serve([seat.item for seat in group])
        except BaseException as error:  # noqa: BLE001 - raised by every thread of the group
            for seat in group:
                seat.error = error
        finally:
            # The next leader begins first: the threads of this group only have answers to take.
            with self._lock:
                self._is_led = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].turn.release()
            for seat in group:
                seat.is_served = True
                seat.turn.release()

    def _take(self) -> list[_Seat[_Item]]:
        group: list[_Seat[_Item]] = []
        held_bytes = 0
        with self._lock:
            while self._waiting:
                held_bytes += self._size_bytes(self._waiting[0].item)
                if group and held_bytes > self._most_bytes:
                    break
                group.append(self._waiting.popleft())
        self._is_busy = len(group) > 1
        return group
