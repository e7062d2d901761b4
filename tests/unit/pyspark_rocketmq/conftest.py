"""Tests of the connector that run a task do it in their own process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from broker_core.process_settings import tune_worker


@pytest.fixture(autouse=True)
def unsettled() -> Iterator[None]:
    """Undo what a task does for its process: hypothesis does not find objects that are frozen."""
    before = list(gc.callbacks)
    yield
    gc.callbacks[:] = before
    gc.unfreeze()
    tune_worker.cache_clear()
