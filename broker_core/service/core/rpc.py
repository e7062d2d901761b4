"""Calls: the boundary between gRPC and the handlers.

A handler is a plain function of a request and a Call. The boundary identifies the caller, waits for
the request, parses it, asks for rights (auth/method_rules.py), runs the handler, and counts the
call. An error that the broker raises on purpose becomes a status with its detail
(wire/core/status.py). A call that its client gave up is no error. Any other error is a bug: it is
logged here with its trace, and here only, and the client learns no more than that it happened.

gRPC is told that every method takes a stream of requests. On the wire that is the same; but gRPC
waits for the one request of a unary method before it calls anything of ours, for ever and with a
thread, also if the caller has no credentials. Here a caller is identified first, and call_limits.py
ends a call whose request does not come. gRPC also waits, for ever, for a client to take a reply,
with a thread if it is one of several: call_limits.py ends such a call too.

Credentials are looked at again while a call lasts: once a second, before each reply, while a reply
is not taken, and while a part of a request is waited for and after it. A user who could not begin
the call any more gets nothing more from it.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from broker_core.codec.hosts import pack_host
from broker_core.errors import BrokerError, RequestError
from broker_core.service.auth.method_rules import RULES
from broker_core.service.call_limits import TAKE_BYTES_S, peer_address
from broker_core.wire.core.methods import (
    ABORT_BATCH,
    AWAIT,
    COMMIT_BATCH,
    PREPARE_MESSAGE,
    RAW,
    Method,
    Shape,
)
from broker_core.wire.core.status import DETAIL_KEY, code_of, detail_of

if TYPE_CHECKING:
    from broker_core.service.auth.method_rules import RightsRule
    from broker_core.service.auth.user_rights import UserIdentity
    from broker_core.service.call_limits import CallLimits

log = logging.getLogger(__name__)
NO_HOST = pack_host("0.0.0.0", 0)  # noqa: S104 - stored in records, nothing listens there
"""The born host of messages whose sender has no IPv4 address."""
RECHECK_S = 1.0
"""Time after which a call that lasts looks at its caller's credentials again."""
MOST_CONTROL_BYTES = 320 << 10
"""The largest request that holds no messages: a filter of 65,536 characters, and its frame."""
_LARGE = frozenset((AWAIT, COMMIT_BATCH, ABORT_BATCH, PREPARE_MESSAGE))
"""They name all queues of a topic, or many receipts, which are counted, or hold a body."""
_MAX_DETAILS = 300

Handler = Callable[[Any, "Call"], Any]
Identify = Callable[[grpc.ServicerContext], "UserIdentity"]


class Call:
    """One call: its caller, the time left, and whether the client still waits."""

    def __init__(
        self,
        context: grpc.ServicerContext,
        identity: UserIdentity,
        recognise: Identify,
        limits: CallLimits,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self.identity = identity
        self._recognise = recognise
        self._limits = limits
        self._monotonic = monotonic
        self._checked_s = monotonic()
        self._guard: tuple[RightsRule, Any] | None = None
        self.unsent_bytes = 0
        """Bytes that gRPC still has to send when the handler is over."""

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
    def born_host(self) -> bytes:
        """The client's address as records carry it; 0.0.0.0 unless it is IPv4.

        An IPv6 address has no place in a record whose flags do not announce one, and those flags
        decide where every later field lies. Without the port, which means nothing later: so
        batches of several connections can be joined.
        """
        return peer_host(self._context.peer())

    def when_over(self, callback: Callable[[], object]) -> None:
        """Call a function when the call ends, however it does."""
        if not self._context.add_callback(callback):
            callback()

    @property
    def recheck_s(self) -> float:
        """Time that a wait may take before `require_still` is to be asked again."""
        return RECHECK_S

    def waiting(self) -> AbstractContextManager[None]:
        """Hold a slot for a call that waits over a block; UnavailableError if none is left."""
        return self._limits.waiting.hold(self.identity)

    def guard(self, rule: RightsRule, request: Any) -> None:
        """Ask for the caller's right now, and whenever `require_still` asks again."""
        rule(self.identity, request)
        self._guard = (rule, request)

    def require_still(self) -> None:
        """Raise unless the caller could begin this call now; looked at once a second."""
        now_s = self._monotonic()
        if now_s - self._checked_s < RECHECK_S:
            return
        self._checked_s = now_s
        identity = self._recognise(self._context)
        if self._guard is not None:
            rule, request = self._guard
            rule(identity, request)
        self.identity = identity

    def received(self, requests: Iterator[Any]) -> Iterator[Any]:
        """Yield what the client sends; the call is ended if that takes too long."""
        # Not a generator: one would keep each part until the next is asked for, perhaps for long.
        return iter(lambda: self._receive(requests), None)

    def _receive(self, requests: Iterator[Any]) -> Any:
        """Return the next part of a request, None if there is none."""
        unwatch = self._limits.stalls.watch(
            self.identity.name, self._context.cancel, self.require_still
        )
        try:
            request = next(requests, None)
        finally:
            unwatch()
        if request is not None:
            self.require_still()
        return request

    def sent(self, replies: Iterable[Any]) -> Iterator[Any]:
        """Yield replies to gRPC; the call is ended if the client does not take one in time.

        While gRPC sends a reply this thread waits in the `yield`, and the watch asks for rights.
        """
        for reply in replies:
            self.require_still()
            with self._limits.stalls.watching(
                self.identity.name, self._context.cancel, self.require_still
            ):
                yield reply

    def finish(self) -> None:
        """End the call if the client does not take what is still to be sent."""
        self.when_over(
            self._limits.stalls.watch(
                self.identity.name,
                self._context.cancel,
                self.require_still,
                more_s=self.unsent_bytes / TAKE_BYTES_S,
            )
        )


@lru_cache(maxsize=1024)
def peer_host(peer: str) -> bytes:
    """Return the host of gRPC's text for a peer as records carry it.

    >>> peer_host("ipv4:10.1.2.3:5000") == pack_host("10.1.2.3", 0)
    True
    >>> peer_host("ipv6:%5B::ffff:10.1.2.3%5D:5000") == pack_host("10.1.2.3", 0)
    True
    >>> peer_host("ipv6:[::1]:5000") == peer_host("unix:") == NO_HOST
    True
    """
    address = peer_address(peer)
    if isinstance(address, ipaddress.IPv4Address):
        return pack_host(str(address), 0)
    return NO_HOST


Observe = Callable[[Method, float, str], None]
"""Called for every call that ended: its method, seconds and status."""


class Boundary:
    """Turns handlers of ours into gRPC's: identity, limits, rights, errors, metrics.

    `identify` names the caller of a call that begins; `recognise` names it again, later, and does
    so without work that is slow on purpose.
    """

    def __init__(
        self, identify: Identify, recognise: Identify, limits: CallLimits, observe: Observe
    ) -> None:
        self._identify = identify
        self._recognise = recognise
        self._limits = limits
        self._observe = observe

    def rpc_handler(self, method: Method, handler: Handler) -> grpc.RpcMethodHandler:
        """Return the gRPC handler of a method."""
        is_streaming = method.shape is Shape.REPLIES
        make = (
            grpc.stream_stream_rpc_method_handler
            if is_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        wrap = self._streaming if is_streaming else self._single
        return make(
            wrap(method, _guarded(method, handler)),
            # Parsed and serialized within the boundary, where errors are ours.
            request_deserializer=None,
            response_serializer=None,
        )

    @contextmanager
    def _admitted(self, context: grpc.ServicerContext) -> Iterator[Call]:
        identity = self._identify(context)
        self._limits.take(identity)
        call = Call(context, identity, self._recognise, self._limits)
        # Not when the handler is over: gRPC keeps a reply until the client has taken it.
        call.when_over(lambda: self._limits.calls.give(identity))
        try:
            yield call
        finally:
            call.finish()

    def _single(
        self, method: Method, handler: Handler
    ) -> Callable[[Iterator[Any], grpc.ServicerContext], Any]:
        def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            started_s = time.perf_counter()
            try:
                with self._admitted(context) as call:
                    reply = method.reply.serialize(handler(call.received(requests), call))
                    call.unsent_bytes = len(reply)
            except grpc.RpcError:
                # gRPC's own, raised where a request is waited for: the client gave up.
                self._end(method, started_s, "CANCELLED")
                raise
            except Exception as error:  # noqa: BLE001 - the boundary: all of it is translated
                self._end(method, started_s, code_name(error))
                refuse(context, method, error)
            self._end(method, started_s, "OK")
            return reply

        return answer

    def _streaming(
        self, method: Method, handler: Handler
    ) -> Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]]:
        def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            started_s = time.perf_counter()
            status = "CANCELLED"  # stays so if gRPC closes this generator before its end
            try:
                with self._admitted(context) as call:
                    found = handler(call.received(requests), call)
                    yield from call.sent(map(method.reply.serialize, found))
                status = "OK"
            except grpc.RpcError:
                raise
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

    def handle(requests: Iterator[Any], call: Call) -> Any:
        parsed = _parsed(method, requests)
        call.guard(rule, parsed)
        return handler(parsed, call)

    return handle


def _parsed(method: Method, requests: Iterator[Any]) -> Any:
    """Return the one request of a method, or all of them for one that takes a stream."""
    if method.shape is Shape.REQUESTS:
        return requests
    request = next(requests, None)
    if request is None:
        message = f"{method.name} needs a request, and the client sent none."
        raise RequestError(message)
    if method.request is RAW:
        return request
    if len(request) > MOST_CONTROL_BYTES and method not in _LARGE:
        message = (
            f"The request of {method.name} has {len(request)} bytes, and {MOST_CONTROL_BYTES} are "
            f"the most. Nothing was done; ask for less at a time."
        )
        raise RequestError(message)
    try:
        parsed = method.request.parse(request)
        # A call keeps its request as long as it lasts: only what can be understood, and once. What
        # was dropped keeps its memory until it is parsed anew.
        parsed.DiscardUnknownFields()
        if parsed.ByteSize() == len(request):
            return parsed
        return method.request.parse(method.request.serialize(parsed))
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
