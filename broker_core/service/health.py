"""The health service that load balancers and orchestrators know (grpc.health.v1).

    Check   HealthCheckRequest {string service = 1}  ->  HealthCheckResponse {status = 1}
    Watch   the same messages; one answer now, and one whenever the status changes

Both messages have one field and are read and written here by hand: the generated modules for them
belong to another package (grpcio-health-checking), and could not be loaded beside a copy of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

import grpc

from broker_core.wire.core.methods import SERVICE

if TYPE_CHECKING:
    from broker_core.service.broker_pool import BrokerPool

HEALTH_SERVICE = "grpc.health.v1.Health"
_KNOWN = frozenset({"", SERVICE})
_SERVICE_FIELD = 0x0A  # field 1, length-delimited
_STATUS_FIELD = 0x08  # field 1, varint
_WATCHED = ("", -1)  # a queue that none has: only the stop of the broker wakes its watches
_LOOK_S = 5.0


class Status(IntEnum):
    """ServingStatus."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


def health_handler(pool: BrokerPool) -> grpc.GenericRpcHandler:
    """Return the handler of the health service for a broker pool."""

    def status_of(request: bytes) -> Status:
        if requested_service(request) not in _KNOWN:
            return Status.SERVICE_UNKNOWN
        return Status.NOT_SERVING if pool.is_stopping else Status.SERVING

    def check(request: bytes, context: grpc.ServicerContext) -> bytes:
        status = status_of(request)
        if status is Status.SERVICE_UNKNOWN:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return response(status)

    def watch(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        told = None
        with pool.arrivals.watch([_WATCHED]) as watching:
            context.add_callback(watching.wake)
            while context.is_active() and told is not Status.NOT_SERVING:
                status = status_of(request)
                if status is not told:
                    yield response(status)
                    told = status
                watching.wait(_LOOK_S)

    return grpc.method_handlers_generic_handler(
        HEALTH_SERVICE,
        {
            "Check": grpc.unary_unary_rpc_method_handler(check),
            "Watch": grpc.unary_stream_rpc_method_handler(watch),
        },
    )


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
