"""Tests of the connector that run a task do it in their own process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pyspark_rocketmq.worker_process import settle_in


@pytest.fixture(autouse=True)
def unsettled() -> Iterator[None]:
    """Undo what a task does for its process: hypothesis does not find objects that are frozen."""
    before = list(gc.callbacks)
    yield
    gc.callbacks[:] = before
    gc.unfreeze()
    settle_in.cache_clear()
