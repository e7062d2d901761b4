from __future__ import annotations

from broker_core.service.arrival_notifier import ArrivalNotifier


def test_an_arrival_between_looking_and_waiting_is_not_missed() -> None:
    arrivals = ArrivalNotifier()

    with arrivals.watch([("t", 0)]) as watch:
        arrivals.announce([("t", 0)])

        assert watch.wait(0)
        assert not watch.wait(0)


def test_only_those_who_watch_the_queue_are_woken() -> None:
    arrivals = ArrivalNotifier()

    with arrivals.watch([("t", 0), ("t", 1)]) as one, arrivals.watch([("u", 0)]) as other:
        arrivals.announce([("t", 1)])

        assert one.wait(0)
        assert not other.wait(0)


def test_everyone_is_woken_when_the_broker_stops() -> None:
    arrivals = ArrivalNotifier()

    with arrivals.watch([("t", 0)]) as one, arrivals.watch([("u", 0)]) as other:
        arrivals.wake_all()

        assert one.wait(0)
        assert other.wait(0)


def test_a_watch_that_is_over_is_forgotten() -> None:
    arrivals = ArrivalNotifier()

    with arrivals.watch([("t", 0)]) as watch:
        pass
    arrivals.announce([("t", 0)])

    assert not watch.wait(0)
    assert not arrivals._watches
