"""Background services: the broker's periodic work, on a clock that tests can turn.

    flush       make the log durable                     flushIntervalCommitLog, 500 ms
    retention   delete expired files                     cleanResourceInterval, 10 s
    trim        close readers that no call uses          30 s
    delay       deliver delayed messages that are due    100 ms
    check-back  ask producers about open half messages   transactionCheckInterval, 30 s

A service is a function and an interval. One thread runs them in turn, each when it is due. One that
fails is logged and run again at its next time: a broker must not stop serving because a file could
not be deleted. Tests call `run_due` with a clock of their own and need no thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.codec.property_names import SCHEDULE_TOPIC
from broker_core.errors import BrokerError

if TYPE_CHECKING:
    from broker_core.service.broker_pool import BrokerPool
    from broker_core.service.main import BrokerProcess

log = logging.getLogger(__name__)
DELAY_INTERVAL_MS = 100
TRIM_INTERVAL_MS = 30_000


@dataclass(frozen=True, slots=True)
class Service:
    """A function to be run every `interval_ms`, counted from the end of its last run."""

    name: str
    interval_ms: int
    run: Callable[[], object]


class Background:
    """Services, and the time at which each is due. `clock_ms` must not go back."""

    def __init__(self, services: Sequence[Service], clock_ms: Callable[[], int]) -> None:
        self._services = services
        self._clock_ms = clock_ms
        now = clock_ms()
        self._due_ms = {service.name: now + service.interval_ms for service in services}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def run_due(self) -> float:
        """Run the services that are due; return the seconds until one is due again."""
        for service in self._services:
            if self._due_ms[service.name] <= self._clock_ms():
                self._run(service)
                self._due_ms[service.name] = self._clock_ms() + service.interval_ms
        next_ms = min(self._due_ms.values(), default=self._clock_ms() + 1000)
        return max(0.0, (next_ms - self._clock_ms()) / 1000)

    def start(self) -> None:
        """Run services in a thread until `stop`."""
        self._thread = threading.Thread(target=self._loop, name="background", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the service that it is running."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        pause_s = 0.0
        while not self._stopped.wait(pause_s):
            pause_s = self.run_due()

    def _run(self, service: Service) -> None:
        try:
            service.run()
        except BrokerError as error:
            log.warning("event=service_failed service=%s error=%s", service.name, error)
        except Exception:
            log.exception("event=service_failed service=%s", service.name)


def services(broker: BrokerProcess) -> list[Service]:
    """Return the background services of a broker."""
    pool, settings = broker.pool, broker.settings

    def flush() -> None:
        # Without new bytes there is nothing to time: metrics count real flushes only.
        if pool.writer.durable_lag_bytes:
            with broker.metrics.flushing():
                pool.writer.flush()

    check_ms = pool.settings.transaction_check_interval_ms
    return [
        Service("flush", settings.flush_interval_ms, flush),
        Service("retention", settings.clean_interval_ms, pool.writer.delete_expired),
        Service("trim", TRIM_INTERVAL_MS, pool.trim),
        Service("delay", DELAY_INTERVAL_MS, lambda: _deliver_delayed(pool)),
        Service("check-back", check_ms, broker.server.listeners.check_back),
    ]


def _deliver_delayed(pool: BrokerPool) -> None:
    with pool.broker() as broker:
        broker.reader.refresh()
        # A store without delayed messages is not asked for a turn at its lock ten times a second.
        if broker.reader.queue_ids(SCHEDULE_TOPIC):
            broker.transactions.deliver_due()
