"""Hooks for every suite: marks by folder, and how hard hypothesis tries."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from broker_core.jit import availability
from broker_core.store import writer
from broker_core.store.io import file_handles

TESTS = Path(__file__).parent
MARKED_FOLDERS = frozenset({"property", "crash", "spark", "interop", "bench"})

# Spark's launcher adds this to each JVM it starts, child drivers' and Connect's too. Most live for
# a minute or less: the second compiler takes half of their processor time and gains nothing.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# No deadlines and no "too slow": a shared machine's clock decides nothing here.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("everyday", UNTIMED, derandomize=True)  # the same examples on every run
settings.register_profile("search", UNTIMED, max_examples=2000)  # new examples, many of them
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let Spark suites run on another kind of broker."""
    parser.addoption(
        "--transport",
        choices=("file", "grpc"),
        default="file",
        help="the broker that Spark tests read from and write to: embedded, or behind gRPC",
    )


@pytest.hookimpl(tryfirst=True)  # before -m selects by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the mark of the folder it lies in, so that none can be forgotten."""
    for item in items:
        if item.path.is_relative_to(TESTS):
            for folder in MARKED_FOLDERS.intersection(item.path.relative_to(TESTS).parts):
                item.add_marker(folder)


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a module's tests twice: by NumPy and Arrow alone, and by kernels wherever there is one.

    What is done for many rows only, or for many bytes, is done for any by the second way. Both are
    held to what the tests say, mostly to what the code for one record does.
    """
    rows = sys.maxsize
    if request.param == "compiled":
        pytest.importorskip("numba", reason="Numba has no release for this Python yet")
        assert availability.is_available()
        rows = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(availability, "WORTH_ROWS", rows)
        patch.setattr(writer, "WORTH_A_THREAD", rows)
        patch.setattr(file_handles, "WORTH_RESERVING", rows)
        patch.setattr(availability, "is_loaded", lambda: request.param == "compiled")
        yield
