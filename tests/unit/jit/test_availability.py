"""The door to the kernels: which modules it loads, and for which batches."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import broker_core
from broker_core.jit import availability

PACKAGE = Path(broker_core.__file__).parent


def test_every_module_of_kernels_is_listed() -> None:
    paths = PACKAGE.rglob("*_kernels.py")
    named = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in paths}

    assert named == set(availability.KERNEL_MODULES)
    assert len(availability.KERNEL_MODULES) == len(named)


def test_small_batches_do_not_load_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bool:
        raise AssertionError("a small batch loads kernels")

    monkeypatch.setattr(availability, "is_available", refuse)

    assert not availability.is_worth(availability.WORTH_ROWS - 1)


def test_without_numba_no_batch_is_worth_a_kernel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in availability.KERNEL_MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(sys.modules, "broker_core.jit.compiler", raising=False)

    with caplog.at_level("INFO"):
        is_available = availability.is_available.__wrapped__()

    assert not is_available
    assert "event=kernels_unavailable" in caplog.text
