"""Calls: the boundary between gRPC and the handlers.

A handler is a plain function of a request and a Call. The boundary identifies the caller, parses
the request, asks for rights (auth/method_rules.py), runs the handler, and counts the call. An error
that the broker raises on purpose becomes a status with its detail (wire/core/status.py). Any other
error is a bug: it is logged here with its trace, and here only, and the client learns no more than
that it happened.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from broker_core.codec.hosts import pack_host
from broker_core.errors import BrokerError, RequestError
from broker_core.service.auth.method_rules import RULES
from broker_core.wire.core.methods import Method, Shape
from broker_core.wire.core.status import DETAIL_KEY, code_of, detail_of

if TYPE_CHECKING:
    from broker_core.service.auth.user_rights import UserIdentity

log = logging.getLogger(__name__)
_IPV4_PEER = re.compile(r"ipv4:([0-9.]+):[0-9]+\Z")
_MAX_DETAILS = 300

Handler = Callable[[Any, "Call"], Any]


class Call:
    """One call: its caller, the time left, and whether the client still waits."""

    def __init__(self, context: grpc.ServicerContext, identity: UserIdentity) -> None:
        self._context = context
        self.identity = identity

    @property
    def is_active(self) -> bool:
        """True while the client waits for the answer."""
        return bool(self._context.is_active())

    @property
    def left_s(self) -> float | None:
        """Seconds until the client gives up, None if it never will."""
        left: float | None = self._context.time_remaining()
        return left

    @property
    def deadline_s(self) -> float | None:
        """Time at which the client gives up, on the monotonic clock; None if it never will."""
        left_s = self.left_s
        return None if left_s is None else time.monotonic() + left_s

    @property
    def born_host(self) -> bytes | None:
        """The client's address as records carry it; None unless it is IPv4.

        Without the port, which means nothing later: so batches of several connections can be
        joined.
        """
        match = _IPV4_PEER.match(self._context.peer())
        return pack_host(str(ipaddress.IPv4Address(match[1])), 0) if match else None

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call a function when the call ends, however it does."""
        if not self._context.add_callback(callback):
            callback()


Observe = Callable[[Method, float, str], None]
"""Called for every call that ended: its method, seconds and status."""


class Boundary:
    """Turns handlers of ours into gRPC's: identity, rights, errors, metrics."""

    def __init__(
        self, identify: Callable[[grpc.ServicerContext], UserIdentity], observe: Observe
    ) -> None:
        self._identify = identify
        self._observe = observe

    def rpc_handler(self, method: Method, handler: Handler) -> grpc.RpcMethodHandler:
        """Return the gRPC handler of a method."""
        make = {
            Shape.UNARY: grpc.unary_unary_rpc_method_handler,
            Shape.REPLIES: grpc.unary_stream_rpc_method_handler,
            Shape.REQUESTS: grpc.stream_unary_rpc_method_handler,
        }[method.shape]
        wrap = self._streaming if method.shape is Shape.REPLIES else self._single
        return make(
            wrap(method, _guarded(method, handler)),
            request_deserializer=None,  # parsed within the boundary, where errors are ours
            response_serializer=method.reply.serialize,
        )

    def _single(
        self, method: Method, handler: Handler
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            started_s = time.perf_counter()
            try:
                call = Call(context, self._identify(context))
                reply = handler(request, call)
            except Exception as error:  # noqa: BLE001 - the boundary: all of it is translated
                self._end(method, started_s, code_name(error))
                refuse(context, method, error)
            self._end(method, started_s, "OK")
            return reply

        return answer

    def _streaming(
        self, method: Method, handler: Handler
    ) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
        def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            started_s = time.perf_counter()
            status = "CANCELLED"  # stays so if gRPC closes this generator before its end
            try:
                call = Call(context, self._identify(context))
                replies: Iterable[Any] = handler(request, call)
                yield from replies
                status = "OK"
            except Exception as error:  # noqa: BLE001 - the boundary: all of it is translated
                status = code_name(error)
                refuse(context, method, error)
            finally:
                self._end(method, started_s, status)

        return answer

    def _end(self, method: Method, started_s: float, status: str) -> None:
        self._observe(method, time.perf_counter() - started_s, status)


def _guarded(method: Method, handler: Handler) -> Handler:
    """Return a handler of raw requests, which parses them and asks for the caller's rights."""
    rule = RULES[method]  # looked up when the server is made: no method is served without a rule

    def handle(request: Any, call: Call) -> Any:
        parsed = _parsed(method, request)
        rule(call.identity, parsed)
        return handler(parsed, call)

    return handle


def _parsed(method: Method, request: Any) -> Any:
    if method.shape is Shape.REQUESTS:
        return request
    try:
        return method.request.parse(request)
    except DecodeError as error:
        message = f"The request of {method.name} can't be read; both ends must be of one version."
        raise RequestError(message) from error


def code_name(error: Exception) -> str:
    """Return the name of the status code for an error."""
    code = code_of(error) if isinstance(error, BrokerError) else grpc.StatusCode.INTERNAL
    return str(code.name)


def refuse(context: grpc.ServicerContext, method: Method, error: Exception) -> NoReturn:
    """End a call with an error's status and detail."""
    if not isinstance(error, BrokerError):
        log.error("event=bug method=%s", method.name, exc_info=error)
        error = BrokerError(
            f"The broker failed at {method.name} in a way that it should not: "
            f"{type(error).__name__}. Its log has the details."
        )
    context.set_trailing_metadata(((DETAIL_KEY, detail_of(error)),))
    context.abort(code_of(error), str(error).partition("\n")[0][:_MAX_DETAILS])
    raise AssertionError("abort raises")
