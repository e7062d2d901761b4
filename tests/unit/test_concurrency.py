from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from broker_core.concurrency import one_ahead


def raising(error: Exception) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_calls_are_done_in_order_in_another_thread() -> None:
    done: list[tuple[int, bool]] = []
    here = threading.current_thread()

    def call(number: int) -> None:
        done.append((number, threading.current_thread() is here))

    with one_ahead() as ahead:
        for number in range(5):
            ahead.do(partial(call, number))

    assert done == [(number, False) for number in range(5)]


def test_the_caller_goes_on_while_a_call_is_under_way() -> None:
    may_end = threading.Event()
    done: list[str] = []

    with one_ahead() as ahead:
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

    with one_ahead() as ahead:
        for _ in range(50):
            ahead.do(call)

    assert most == [1] * 50


def test_what_a_call_raised_is_raised_to_whoever_asks_next() -> None:
    done: list[str] = []
    with one_ahead() as ahead:
        ahead.do(raising(ValueError("first")))
        with pytest.raises(ValueError, match="first"):
            ahead.do(lambda: done.append("second"))
        ahead.wait()

    assert done == []


def test_what_the_last_call_raised_is_raised_at_the_end() -> None:
    with pytest.raises(ValueError, match="last"), one_ahead() as ahead:
        ahead.do(raising(ValueError("last")))


def test_a_block_that_fails_leaves_no_call_behind_and_keeps_its_own_error() -> None:
    may_end = threading.Event()
    done: list[bool] = []

    def fail() -> None:
        with one_ahead() as ahead:
            ahead.do(lambda: done.append(may_end.wait(60)))
            may_end.set()
            raise KeyError(0)

    with pytest.raises(KeyError, match="0"):
        fail()
    assert done == [True]
