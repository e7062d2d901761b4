"""Metrics in Prometheus's text format, on a port of their own.

    rocketmq_calls_total{method,status}      calls that ended
    rocketmq_call_seconds{method}            how long they took, as a histogram
    rocketmq_append_requests_total           appends of clients
    rocketmq_append_groups_total             the appends to the log that they were joined to
    rocketmq_append_bytes_in_flight          bytes of requests being served
    rocketmq_pool_bytes                      bytes acknowledged and not in the log yet
    rocketmq_flush_seconds                   how long flushes took, as a histogram
    rocketmq_log_bytes                       the physical offset at which the log ends
    rocketmq_durable_lag_bytes               how much of it is not flushed yet
    rocketmq_dispatch_behind_bytes           how much of it queues and index do not have yet
    rocketmq_start_time_seconds              when the server was started

Counting takes a lock for a few additions; the text is composed for each scrape. The port asks for
no credentials: a connection has 5 s for each step, and beyond 16 connections the oldest is closed.
"""

from __future__ import annotations

import bisect
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from broker_core.errors import ConfigError

if TYPE_CHECKING:
    from broker_core.wire.core.methods import Method

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MOST_CONNECTIONS = 16
STEP_S = 5.0
"""Time that a scraper has to send its request, and to take more of the answer."""
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """Durations by upper bound. Not thread-safe."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect.bisect_left(BOUNDS_S, seconds)] += 1
        self._sum_s += seconds

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """Yield its lines in the text format; `labels` without braces."""
        seen = 0
        comma = "," if labels else ""
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            seen += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {seen}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self._sum_s:.6f}"
        yield f"{name}_count{braces} {seen}"


class Metrics:
    """Counters and histograms since the start, and gauges that are read. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[tuple[str, str], int] = {}
        self._durations: dict[str, Histogram] = {}
        self._flushes = Histogram()
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        started_s = time.time()
        self.gauge("rocketmq_start_time_seconds", "gauge", lambda: started_s)

    def gauge(self, name: str, kind: str, read: Callable[[], float]) -> None:
        """Add a number that is read by a function at each scrape."""
        self._gauges[name] = (kind, read)

    def observe(self, method: Method, seconds: float, status: str) -> None:
        """Count a call that ended."""
        with self._lock:
            key = (method.name, status)
            self._calls[key] = self._calls.get(key, 0) + 1
            self._durations.setdefault(method.name, Histogram()).add(seconds)

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Time a flush over a block; one that fails is not counted."""
        started_s = time.perf_counter()
        yield
        with self._lock:
            self._flushes.add(time.perf_counter() - started_s)

    def text(self) -> str:
        """Return all metrics in the text format."""
        lines = ["# TYPE rocketmq_calls_total counter"]
        with self._lock:
            for (method, status), count in sorted(self._calls.items()):
                labels = f'method="{method}",status="{status}"'
                lines.append(f"rocketmq_calls_total{{{labels}}} {count}")
            lines.append("# TYPE rocketmq_call_seconds histogram")
            for method, histogram in sorted(self._durations.items()):
                lines += histogram.lines("rocketmq_call_seconds", f'method="{method}"')
            lines.append("# TYPE rocketmq_flush_seconds histogram")
            lines += self._flushes.lines("rocketmq_flush_seconds")
        for name, (kind, read) in self._gauges.items():
            lines += [f"# TYPE {name} {kind}", f"{name} {read():.15g}"]
        return "\n".join(lines) + "\n"


class _Server(ThreadingHTTPServer):
    """A server with a thread for each of the newest MOST_CONNECTIONS connections."""

    daemon_threads = True
    request_queue_size = 128  # connections that come faster than they are accepted

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[socket.socket, None] = {}  # the oldest first
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for a connection; close the oldest one if there are too many."""
        self._open[request] = None
        for oldest in list(self._open)[:-MOST_CONNECTIONS]:
            self._open.pop(oldest, None)
            with suppress(OSError):  # it has just ended by itself
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that was served."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error's trace, but not that a connection was closed: that is no event."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class MetricsPort:
    """A port that serves GET /metrics until it is stopped."""

    def __init__(self, metrics: Metrics, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), _handler(metrics))
        except OSError as error:
            message = f"Can't listen for metrics at {listen}: {error.strerror}."
            raise ConfigError(message) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens at."""
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = STEP_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            body = metrics.text().encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", _CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name for it
            """Log nothing: scrapes are no events."""

    return Handler
