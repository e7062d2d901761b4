from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from broker_core.concurrency import GroupQueue, compute_beside, let_come, map_ahead, run_ahead


def raising(error: Exception) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_calls_are_done_in_order_in_another_thread() -> None:
    done: list[tuple[int, bool]] = []
    here = threading.current_thread()

    def call(number: int) -> None:
        done.append((number, threading.current_thread() is here))

    with run_ahead() as ahead:
        for number in range(5):
            ahead.do(partial(call, number))

    assert done == [(number, False) for number in range(5)]


def test_the_caller_goes_on_while_a_call_is_under_way() -> None:
    may_end = threading.Event()
    done: list[str] = []

    with run_ahead() as ahead:
        ahead.do(lambda: done.append(f"ended {may_end.wait(60)}"))
        done.append("went on")
        may_end.set()
        ahead.wait()

    assert done == ["went on", "ended True"]


def test_the_next_call_waits_for_the_one_before() -> None:
    under_way: list[int] = []
    most: list[int] = []

    def call() -> None:
        under_way.append(1)
        most.append(len(under_way))
        under_way.pop()

    with run_ahead() as ahead:
        for _ in range(50):
            ahead.do(call)

    assert most == [1] * 50


def test_what_a_call_raised_is_raised_to_whoever_asks_next() -> None:
    done: list[str] = []
    with run_ahead() as ahead:
        ahead.do(raising(ValueError("first")))
        with pytest.raises(ValueError, match="first"):
            ahead.do(lambda: done.append("second"))
        ahead.wait()

    assert done == []


def test_what_the_last_call_raised_is_raised_at_the_end() -> None:
    with pytest.raises(ValueError, match="last"), run_ahead() as ahead:
        ahead.do(raising(ValueError("last")))


def test_a_block_that_fails_leaves_no_call_behind_and_keeps_its_own_error() -> None:
    may_end = threading.Event()
    done: list[bool] = []

    def fail() -> None:
        with run_ahead() as ahead:
            ahead.do(lambda: done.append(may_end.wait(60)))
            may_end.set()
            raise KeyError(0)

    with pytest.raises(KeyError, match="0"):
        fail()
    assert done == [True]


@pytest.mark.parametrize("is_worth", [True, False])
def test_what_is_computed_is_there_behind_the_block(is_worth: bool) -> None:
    threads = []

    def compute() -> int:
        threads.append(threading.current_thread())
        return 42

    with compute_beside(compute, is_worth=is_worth) as answer:
        pass

    assert answer() == 42
    assert (threads[0] is not threading.current_thread()) is is_worth


def test_it_is_computed_while_the_block_runs() -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def compute() -> int:
        has_begun.set()
        assert may_end.wait(30)
        return 7

    with compute_beside(compute, is_worth=True) as answer:
        assert has_begun.wait(30)
        may_end.set()

    assert answer() == 7


@pytest.mark.parametrize("is_worth", [True, False])
def test_an_error_is_raised_to_whoever_asks(is_worth: bool) -> None:
    def compute() -> int:
        raise ValueError("no")

    with compute_beside(compute, is_worth=is_worth) as answer:
        pass

    with pytest.raises(ValueError, match="no"):
        answer()


def test_nothing_goes_on_behind_a_block_that_fails() -> None:
    begun, done = threading.Event(), threading.Event()

    def compute() -> None:
        begun.set()
        done.wait(0.2)
        done.set()

    def fail() -> None:
        with compute_beside(compute, is_worth=True):
            begun.wait(30)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()

    assert done.is_set()


def test_items_are_made_in_another_thread_in_order_and_not_far_ahead() -> None:
    drawn: list[int] = []
    threads: set[threading.Thread] = set()

    def items() -> Iterator[int]:
        for number in range(6):
            drawn.append(number)
            yield number

    def make(number: int) -> int:
        threads.add(threading.current_thread())
        return number * number

    made = map_ahead(make, items())
    assert next(made) == 0
    assert len(drawn) <= 3
    assert list(made) == [1, 4, 9, 16, 25]
    assert threading.current_thread() not in threads


def test_an_item_that_fails_raises_where_it_is_asked_for_and_none_is_made_after() -> None:
    def make(number: int) -> int:
        return 6 // (number - 1)

    made = map_ahead(make, range(5))
    assert next(made) == -6
    with pytest.raises(ZeroDivisionError):
        next(made)
    assert list(made) == []


def test_a_generator_that_is_closed_leaves_no_call_behind() -> None:
    begun, done = threading.Event(), threading.Event()

    def make(number: int) -> int:
        if number == 1:
            begun.set()
            done.wait(0.2)
            done.set()
        return number

    made = map_ahead(make, range(2))
    next(made)
    assert begun.wait(30)
    made.close()

    assert done.is_set()


def test_a_single_item_starts_no_thread() -> None:
    assert list(map_ahead(lambda _: threading.current_thread(), [0])) == [
        threading.current_thread()
    ]


def test_a_leader_pauses_while_more_come_and_not_for_nobody() -> None:
    began_s = time.monotonic()
    let_come([], pause_s=60, most=5)
    assert time.monotonic() - began_s < 30

    waiting = Growing(until=3)
    let_come(waiting, pause_s=0, most=100)
    assert waiting.looks <= 8


class Growing:
    def __init__(self, until: int) -> None:
        self._until = until
        self.looks = 0

    def __len__(self) -> int:
        self.looks += 1
        return min(self.looks, self._until)


class Served:
    """A queue whose first group is held until the others wait behind it."""

    def __init__(self, *, most_bytes: int = 100, error: Exception | None = None) -> None:
        self.groups: list[list[int]] = []
        self.errors: list[Exception] = []
        self._error = error
        self._began, self._go = threading.Event(), threading.Event()
        self._queue = GroupQueue(
            self._serve, lambda item: item, most_bytes=most_bytes, pause_s=0, pauses=1
        )

    def _serve(self, group: Sequence[int]) -> None:
        self._began.set()
        assert self._go.wait(30)
        self.groups.append(list(group))
        if self._error is not None and len(group) > 1:
            raise self._error

    def _do(self, item: int) -> None:
        try:
            self._queue.do(item)
        except ValueError as error:
            self.errors.append(error)

    def run(self, *items: int) -> list[list[int]]:
        threads = [threading.Thread(target=self._do, args=(item,)) for item in items]
        threads[0].start()
        assert self._began.wait(30)
        for waiting, thread in enumerate(threads[1:], 1):
            thread.start()
            while len(self._queue) < waiting:
                pass
        self._go.set()
        for thread in threads:
            thread.join(30)
        return self.groups


def test_items_that_wait_together_are_served_together_and_in_order() -> None:
    assert Served().run(1, 2, 3, 4) == [[1], [2, 3, 4]]


def test_a_group_ends_before_its_limit_but_has_one_item() -> None:
    assert Served(most_bytes=5).run(1, 2, 3, 9, 1) == [[1], [2, 3], [9], [1]]


def test_an_error_of_a_group_is_raised_for_each_of_its_items() -> None:
    error = ValueError("no")
    served = Served(error=error)

    served.run(1, 2, 3)

    assert served.errors == [error, error]
