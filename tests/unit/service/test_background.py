from __future__ import annotations

import pytest

from broker_core.errors import DiskFullError
from broker_core.service.background import Background, Service
from tests.kit.transactions import ManualClock


def test_services_run_when_they_are_due() -> None:
    clock = ManualClock(0)
    runs: list[tuple[str, int]] = []
    background = Background(
        [
            Service("often", 10, lambda: runs.append(("often", clock()))),
            Service("seldom", 25, lambda: runs.append(("seldom", clock()))),
        ],
        clock,
    )

    pauses = []
    for _ in range(6):
        pauses.append(background.run_due())
        clock.advance(5)

    assert runs == [("often", 10), ("often", 20), ("seldom", 25)]
    assert pauses == [0.01, 0.005, 0.01, 0.005, 0.005, 0.005]


def test_a_service_that_fails_is_told_of_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(0)
    tries = []

    def fail() -> None:
        tries.append(clock())
        raise DiskFullError("no space") if len(tries) == 1 else ValueError("a bug")

    background = Background([Service("clean", 10, fail)], clock)

    for _ in range(2):
        clock.advance(10)
        background.run_due()

    assert tries == [10, 20]
    assert "service=clean error=no space" in caplog.text
    assert "ValueError: a bug" in caplog.text


def test_stopping_waits_for_the_service_at_work() -> None:
    clock = ManualClock(0)
    runs = []
    background = Background([Service("now", 0, lambda: runs.append(1))], clock)

    background.start()
    background.stop()

    assert background._thread is not None
    assert not background._thread.is_alive()
