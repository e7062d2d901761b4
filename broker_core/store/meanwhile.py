"""Meanwhile: something is computed in another thread while a block waits for files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

_Result = TypeVar("_Result")


@contextmanager
def meanwhile(compute: Callable[[], _Result], *, is_worth: bool) -> Iterator[Callable[[], _Result]]:
    """Compute while the block runs if that is worth a thread, else when it is asked for.

    However the block is left, nothing goes on behind it.

    >>> with meanwhile(lambda: 42, is_worth=True) as answer:
    ...     pass
    >>> answer()
    42
    """
    if not is_worth:
        yield compute
        return
    with ThreadPoolExecutor(1, thread_name_prefix="meanwhile") as thread:
        yield thread.submit(compute).result
