from __future__ import annotations

import threading

import pytest

from broker_core.store.meanwhile import meanwhile


@pytest.mark.parametrize("is_worth", [True, False])
def test_what_is_computed_is_there_behind_the_block(is_worth: bool) -> None:
    threads = []

    def compute() -> int:
        threads.append(threading.current_thread())
        return 42

    with meanwhile(compute, is_worth=is_worth) as answer:
        pass

    assert answer() == 42
    assert (threads[0] is not threading.current_thread()) is is_worth


def test_it_is_computed_while_the_block_runs() -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def compute() -> int:
        has_begun.set()
        assert may_end.wait(30)
        return 7

    with meanwhile(compute, is_worth=True) as answer:
        assert has_begun.wait(30)
        may_end.set()

    assert answer() == 7


@pytest.mark.parametrize("is_worth", [True, False])
def test_an_error_is_raised_to_whoever_asks(is_worth: bool) -> None:
    def compute() -> int:
        raise ValueError("no")

    with meanwhile(compute, is_worth=is_worth) as answer:
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
        with meanwhile(compute, is_worth=True):
            begun.wait(30)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()

    assert done.is_set()
