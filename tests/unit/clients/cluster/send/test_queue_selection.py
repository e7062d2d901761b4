"""Which broker to prefer."""

from __future__ import annotations

from broker_core.clients.cluster.send.queue_selection import FaultTolerance


def test_slow_broker_is_left_alone_for_a_while() -> None:
    now = [0.0]
    faults = FaultTolerance(lambda: now[0])

    faults.note("slow", 600)
    faults.note("quick", 20)
    faults.note_failure("failing")

    assert faults.preferred(["slow", "quick", "failing", "new"]) == ["quick", "new"]
    now[0] = 2.5
    assert faults.preferred(["slow", "failing"]) == ["slow"]
    now[0] = 11
    assert faults.preferred(["slow", "failing"]) == ["slow", "failing"]


def test_when_all_are_slow_all_are_taken() -> None:
    faults = FaultTolerance(lambda: 0.0)
    faults.note_failure("a")
    faults.note_failure("b")

    assert faults.preferred(["a", "b"]) == ["a", "b"]
