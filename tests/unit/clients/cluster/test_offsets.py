"""The search for an offset by time."""

from __future__ import annotations

import pytest

from broker_core.clients.cluster.offsets import first_at


@pytest.mark.parametrize("guess", range(7))
@pytest.mark.parametrize(
    ("time", "expected"), [(0, 1), (10, 1), (11, 3), (20, 3), (21, 5), (30, 5), (31, 6)]
)
def test_search_by_time_survives_any_guess(time: int, expected: int, guess: int) -> None:
    times = [10, 10, 10, 20, 20, 30]

    assert first_at(times.__getitem__, time, 1, 6, guess) == expected
