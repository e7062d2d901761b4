"""A server from start to end, and the one place where it is put together.

Start: settings, store (recovered if it was not closed), background services, port; one line
`event=ready` when clients can connect. End, on SIGTERM or SIGINT: no new calls, calls under way may
end within 5 s, then everything is flushed and the store is marked closed, so that the next process
to open it, ours or Apache's, needs no recovery.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from broker_core.clock import now_ms
from broker_core.errors import ConfigError
from broker_core.service.auth.credentials import Credentials
from broker_core.service.auth.tls import server_credentials
from broker_core.service.background import Background, services
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.core.rpc import Identify
from broker_core.service.metrics import Metrics, MetricsPort
from broker_core.service.server import BrokerServer, anyone
from broker_core.service.tail_dispatch import TailDispatcher
from broker_core.service.transient_pool import Committer, PooledWriter
from broker_core.types import Closing

if TYPE_CHECKING:
    from broker_core.service.settings import ServiceSettings
    from broker_core.store.io.files import Files
    from broker_core.store.recovery.plan import Progress

log = logging.getLogger(__name__)
GRACE_S = 5.0
"""Time that calls under way have to end when the server stops."""


class RecoveryLog:
    """Progress of a recovery, written to the log once a second at most."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._told_s = monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Report recovery progress in bytes."""
        now_s = self._monotonic()
        if now_s - self._told_s >= 1.0:
            self._told_s = now_s
            percent = 100 * done // max(total, 1)
            log.info("event=recovering percent=%d done=%d total=%d", percent, done, total)


class BrokerProcess:
    """A broker pool, its server and its background services, started and stopped together.

    They stop from the outside in: calls, services, the pool's committer, the dispatch of what is
    pending, metrics, the store. Each uses those that stop after it.
    """

    def __init__(
        self,
        root: Path,
        settings: ServiceSettings,
        *,
        create: bool = False,
        files: Files | None = None,
        clock_ms: Callable[[], int] = now_ms,
        progress: Progress | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._metrics_port: MetricsPort | None = None
        self.pool = BrokerPool.open(
            root,
            settings.store,
            create=create,
            files=files,
            clock_ms=clock_ms,
            progress=progress,
            is_pooled=settings.is_pooled,
        )
        try:
            identify, recognise = _identity(settings)
            self.server = BrokerServer(
                self.pool,
                settings,
                credentials=server_credentials(settings),
                identify=identify,
                recognise=recognise,
                observe=self.metrics.observe,
            )
            self._watch()
        except BaseException:
            self.pool.close()
            raise
        self.background = Background(services(self), self.pool.clock_ms)
        self._committer = committer(self)
        self._dispatcher = TailDispatcher(self.pool.writer)

    def _watch(self) -> None:
        writer, commit = self.pool.writer, self.server.group_commit
        for name, kind, read in (
            ("rocketmq_append_requests_total", "counter", lambda: commit.requests),
            ("rocketmq_append_groups_total", "counter", lambda: commit.groups),
            ("rocketmq_append_bytes_in_flight", "gauge", lambda: commit.held_bytes),
            ("rocketmq_pool_bytes", "gauge", lambda: writer.held_bytes),
            ("rocketmq_log_bytes", "counter", lambda: writer.log_end),
            ("rocketmq_durable_lag_bytes", "gauge", lambda: writer.durable_lag_bytes),
            ("rocketmq_dispatch_behind_bytes", "gauge", lambda: writer.dispatch_behind_bytes),
        ):
            self.metrics.gauge(name, kind, read)
        if self.settings.metrics_listen:
            self._metrics_port = MetricsPort(self.metrics, self.settings.metrics_listen)

    @property
    def metrics_port(self) -> int | None:
        """The port of metrics, None if they are not served."""
        return self._metrics_port.port if self._metrics_port else None

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.server.port

    @property
    def address(self) -> str:
        """The address that clients on this machine open."""
        scheme = "grpcs" if self.settings.tls_cert else "grpc"
        return f"{scheme}://{self.settings.listen.rpartition(':')[0]}:{self.port}"

    def start(self) -> None:
        """Begin to serve; clients can connect when this returns."""
        self.background.start()
        self._dispatcher.start()
        if self._committer is not None:
            self._committer.start()
        self.server.start()

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Let calls end within `grace_s`, then flush and close the store."""
        self.server.stop(grace_s)
        self.background.stop()
        if self._committer is not None:
            self._committer.stop()
        self._dispatcher.stop()
        if self._metrics_port is not None:
            self._metrics_port.stop()
        self.pool.close()


def _identity(settings: ServiceSettings) -> tuple[Identify, Identify]:
    """Return how callers are identified, and how they are recognised while their calls last."""
    if not settings.credentials_file:
        return anyone, anyone
    credentials = Credentials(Path(settings.credentials_file))
    return credentials.identify, credentials.recognise


def committer(broker: BrokerProcess) -> Committer | None:
    """Return the thread that commits a transient pool, None without one."""
    writer, settings = broker.pool.writer, broker.settings
    if not isinstance(writer, PooledWriter):
        return None
    writer.pool_bytes = settings.in_flight_bytes
    return Committer(writer, settings.commit_interval_ms, settings.commit_least_bytes)


def serve(
    root: Path,
    settings: ServiceSettings,
    *,
    create: bool = False,
    is_insecure: bool = False,
) -> None:
    """Serve a store until a signal ends it; raise a BrokerError if it can't begin."""
    if not (settings.is_loopback or settings.is_secure or is_insecure):
        message = (
            f"{settings.listen} can be reached by other machines, but TLS and credentials are not "
            f"both set up (grpcTlsCert, grpcTlsKey, and grpcCredentialsFile or grpcTlsClientCa); "
            f"add --insecure if that is meant, or listen at 127.0.0.1."
        )
        raise ConfigError(message)
    for line in settings.warnings():
        log.warning("event=config %s", line)
    broker = BrokerProcess(root, settings, create=create, progress=RecoveryLog())
    with StopSignals() as signals:
        broker.start()
        log.info("event=ready store=%s address=%s pid=%d", root, broker.address, os.getpid())
        log.info("event=stopping signal=%s", signals.wait().name)
        broker.stop()
    log.info("event=stopped store=%s", root)


class StopSignals(Closing):
    """SIGTERM and SIGINT from the beginning of a `with` on, so that none is missed.

    To be made in the main thread. Python runs a signal's handler in the main thread, when that next
    executes Python code. A main thread that is blocked would not notice a signal that another
    thread has got, nor one that came just before it blocked, and the process would go on for ever.
    Python's own C handler runs at once, in any thread, and can write the signal's number into a
    pipe (`signal.set_wakeup_fd`): reading that pipe misses nothing.
    """

    NUMBERS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._writes, False)
        self._outer_wakeup = signal.set_wakeup_fd(self._writes)
        self._outer = [signal.signal(number, _noted_in_the_pipe) for number in self.NUMBERS]

    def close(self) -> None:
        """Restore the handlers that were set before."""
        for number, handler in zip(self.NUMBERS, self._outer, strict=True):
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._outer_wakeup)
        os.close(self._reads)
        os.close(self._writes)

    def wait(self) -> signal.Signals:
        """Wait for one of the signals, and return it."""
        while True:
            [number] = os.read(self._reads, 1)
            if number in self.NUMBERS:
                return signal.Signals(number)


def _noted_in_the_pipe(number: int, frame: FrameType | None) -> None:
    """Do nothing: a handler has to be set for Python to look at the signal at all."""
    del number, frame
