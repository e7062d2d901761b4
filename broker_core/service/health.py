"""The health service that load balancers and orchestrators know (grpc.health.v1).

    Check   HealthCheckRequest {string service = 1}  ->  HealthCheckResponse {status = 1}
    Watch   the same messages; one answer now, and one whenever the status changes

Both messages have one field and are read and written here by hand: the generated modules for them
belong to another package (grpcio-health-checking), and could not be loaded beside a copy of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import grpc

from broker_core.errors import UnavailableError
from broker_core.service.auth.user_rights import ANYONE
from broker_core.service.call_limits import Slots, StallWatch, origin_of
from broker_core.wire.core.methods import SERVICE

if TYPE_CHECKING:
    from broker_core.service.broker_pool import BrokerPool

HEALTH_SERVICE = "grpc.health.v1.Health"
MOST_CHECKS = 8
MOST_WATCHES = 8
"""Calls of each kind under way at once, of all callers together. A watch beyond is refused. A check
beyond ends an older call that waits for its client."""
_TOO_MANY = (
    f"Too many health watches are open: {MOST_WATCHES} are the limit, of all callers together. "
    f"Watch over fewer connections, or check instead."
)
_STALL_S = 2.0
_KNOWN = frozenset({"", SERVICE})
_SERVICE_FIELD = 0x0A  # field 1, length-delimited
_STATUS_FIELD = 0x08  # field 1, varint
_WATCHED = ("", -1)  # a queue that none has: only the stop of the broker wakes its watches
_LOOK_S = 5.0

Behaviour = Callable[[Iterator[bytes], grpc.ServicerContext], Any]


class Status(IntEnum):
    """ServingStatus."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class HealthHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC has no types
    """The health service of a broker pool, with threads and limits of its own.

    Its callers need no credentials, so nothing that they do may cost the broker's callers a thread
    or a place among `grpcMaxCalls`. A thread is there for each call that is let in, and one more
    for refusing the others. A slot is taken in the thread, not in `service`: when the server is
    full gRPC refuses a call after that, and nobody would give the slot back.

    gRPC is told that both methods take a stream of requests: else it would wait for a request that
    never comes, for ever. Here such a call is ended after 2 s.
    """

    def __init__(self, pool: BrokerPool) -> None:
        self._pool = pool
        self._threads = _Uncounted(MOST_CHECKS + MOST_WATCHES + 1, "health")
        self._stalls = StallWatch(_STALL_S)
        self._watches = Slots("health watches at once", MOST_WATCHES, MOST_WATCHES)
        self._handlers = {
            "Check": grpc.stream_unary_rpc_method_handler(self._own(self._check)),
            "Watch": grpc.stream_stream_rpc_method_handler(self._own(self._watch)),
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a method of this service, None for any other."""
        _, service, method = (*details.method.split("/"), "", "")[:3]
        return self._handlers.get(method) if service == HEALTH_SERVICE else None

    def start(self) -> None:
        """Begin to end calls whose request does not come."""
        self._stalls.start()

    def stop(self) -> None:
        """End the threads; calls have ended before."""
        self._threads.shutdown(wait=True)
        self._stalls.stop()

    def _own(self, behaviour: Behaviour) -> Behaviour:
        """Return a behaviour that gRPC runs in the threads of this service."""

        def run(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            return behaviour(requests, context)

        run.experimental_thread_pool = self._threads  # type: ignore[attr-defined]  # gRPC's name
        return run

    def _status(self, request: bytes) -> Status:
        if requested_service(request) not in _KNOWN:
            return Status.SERVICE_UNKNOWN
        return Status.NOT_SERVING if self._pool.is_stopping else Status.SERVING

    @contextmanager
    def _watch_slot(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Hold a slot over a block; end the call if none is left."""
        try:
            self._watches.take(ANYONE)
        except UnavailableError:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_MANY)
        try:
            yield
        finally:
            self._watches.give(ANYONE)

    def _check(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        # To the end of the call, not of this handler: gRPC waits for the answer to be taken.
        unwatch = self._stalls.watch(origin_of(context.peer()), context.cancel)
        if not context.add_callback(unwatch):
            unwatch()
        if self._stalls.waiting > MOST_CHECKS:
            self._stalls.end_oldest()
        status = self._status(next(requests, b""))
        if status is Status.SERVICE_UNKNOWN:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return response(status)

    def _watch(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        with self._watch_slot(context):
            with self._stalls.watching(origin_of(context.peer()), context.cancel):
                request = next(requests, b"")
            yield from self._changes(request, context)

    def _changes(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        told = None
        with self._pool.arrivals.watch([_WATCHED]) as watching:
            context.add_callback(watching.wake)
            while context.is_active() and told is not Status.NOT_SERVING:
                status = self._status(request)
                if status is not told:
                    yield response(status)
                    told = status
                watching.wait(_LOOK_S)


class _Uncounted(ThreadPoolExecutor):
    """Threads whose calls gRPC does not count among those that the server may have.

    gRPC counts a call until the future that `submit` returns is done: this one is done at once.
    """

    def __init__(self, threads: int, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)

    def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
        """Run a call in one of the threads."""
        super().submit(*arguments, **options)
        done: Future[Any] = Future()
        done.set_result(None)
        return done


def requested_service(request: bytes) -> str:
    r"""Return the service that a request asks about; "unknown" for one that can't be read.

    >>> requested_service(b"\x0a\x01x")
    'x'
    """
    if not request:
        return ""
    is_short = len(request) > 1 and request[0] == _SERVICE_FIELD and request[1] < 0x80
    if not is_short or len(request) != 2 + request[1]:
        return "unknown"
    return request[2:].decode("utf-8", "replace")


def response(status: Status) -> bytes:
    r"""Return a HealthCheckResponse.

    >>> response(Status.SERVING)
    b'\x08\x01'
    """
    return bytes((_STATUS_FIELD, status))
