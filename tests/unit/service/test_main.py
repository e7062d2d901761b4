"""A signal that ends the process is noticed whichever thread gets it, and whenever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from broker_core.service.main import StopSignals

PATIENCE_S = 60


def ended_by(script: str) -> str:
    """What a process prints that waits for signals, and is sent one by its script."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        check=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_another_thread_gets_wakes_the_main_thread(name: str) -> None:
    # Its pause lets the main thread block first; if it should not, the test passes all the same.
    said = ended_by(f"""
        import signal, threading, time
        from broker_core.service.main import StopSignals

        def get_it():
            time.sleep(0.3)
            signal.pthread_kill(threading.get_ident(), signal.{name})
            time.sleep({PATIENCE_S})

        with StopSignals() as signals:
            threading.Thread(target=get_it, daemon=True).start()
            print(signals.wait().name)
    """)

    assert said == name


def test_a_signal_that_came_before_the_wait_is_not_missed() -> None:
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)

        assert signals.wait() == signal.SIGTERM


def test_other_signals_do_not_end_the_wait() -> None:
    outer = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGINT)

            assert signals.wait() == signal.SIGINT
    finally:
        signal.signal(signal.SIGUSR1, outer)


def test_handlers_are_what_they_were_afterwards() -> None:
    before = [signal.getsignal(number) for number in StopSignals.NUMBERS]

    with StopSignals():
        within = [signal.getsignal(number) for number in StopSignals.NUMBERS]

    assert [signal.getsignal(number) for number in StopSignals.NUMBERS] == before
    assert within != before
