"""Topics: how queues are spread over brokers."""

from __future__ import annotations

import pytest

from broker_core.clients.cluster.topics import grow, spread


@pytest.mark.parametrize(
    ("total", "has", "expected"),
    [
        (8, {"a": 4, "b": 4}, {"a": 4, "b": 4}),
        (9, {"a": 4, "b": 4}, {"a": 5, "b": 4}),
        (5, {"a": 5, "b": 0}, {"a": 5, "b": 0}),
        (10, {"a": 6, "b": 0}, {"a": 6, "b": 4}),
    ],
)
def test_growing_topic_evens_out_and_takes_nothing_away(
    total: int, has: dict[str, int], expected: dict[str, int]
) -> None:
    assert grow(total, has) == expected


def test_new_topic_is_spread_evenly() -> None:
    assert spread(7, ["c", "a", "b"]) == {"a": 3, "b": 2, "c": 2}
