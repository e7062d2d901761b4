"""The line to a broker: raw bytes in, a status and raw bytes out, with no client in between.

`Line` hands requests to the very functions that gRPC calls: the boundary with identity, limits and
rights, and the handlers behind it. A call costs a tenth of one over a port, so thousands of them
are an everyday test. `GrpcLine` sends the same bytes over a port; test_rights.py and the slow runs
use it. What a caller says of itself (metadata) and where it calls from is the same for both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc

from broker_core.service.main import BrokerProcess
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.methods import METHODS, Method, Shape
from tests.kit.raw_calls import wait_until

Code = grpc.StatusCode
NOBODY = "nobody"
"""The actor without credentials."""
PEER = "10.9.8.7"
"""The address that all callers of a `Line` have."""
Metadata = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """A call's end: status, replies as they travel, and the words of a refusal."""

    code: grpc.StatusCode
    replies: tuple[bytes, ...] = ()
    details: str = ""

    @property
    def is_ok(self) -> bool:
        return self.code is Code.OK

    @property
    def reply(self) -> bytes:
        """The one reply of a call that was answered."""
        assert self.is_ok, f"{self.code.name}: {self.details}"
        [found] = self.replies
        return found

    def __str__(self) -> str:
        return self.code.name if self.is_ok else f"{self.code.name}: {self.details}"


def credentials_of(user: str) -> Metadata:
    """What a user's calls carry; all users' secret is the same."""
    return [] if user == NOBODY else [("authorization", f"Bearer {user}.hush")]


class _AbortedError(Exception):
    """Raised by `abort`, as gRPC does."""


class _Context:
    """What a handler sees of a call. `is_active` False: the client does not wait for more."""

    def __init__(self, metadata: Metadata, *, is_active: bool = False) -> None:
        self._metadata = metadata
        self._is_active = is_active
        self._callbacks: list[Callable[[], None]] = []
        self.answer = Answer(Code.OK)

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def is_active(self) -> bool:
        return self._is_active

    def time_remaining(self) -> float | None:
        return 60.0

    def peer(self) -> str:
        return f"ipv4:{PEER}:4711"

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return True

    def set_trailing_metadata(self, metadata: object) -> None:
        del metadata

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self.answer = Answer(code, (), details)
        raise _AbortedError

    def cancel(self) -> None:
        self.leave()

    def leave(self) -> None:
        """End the call from the client's side."""
        self._is_active = False
        while self._callbacks:
            self._callbacks.pop(0)()


class Line:
    """Calls of a broker in this process, which need not be started.

    Rights are looked up when it is made, as they are when a server is.
    """

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        handlers = process.server._handlers()
        boundary = process.server._boundary
        self._handlers: Mapping[Method, Any] = {
            method: boundary.rpc_handler(method, handlers[method]) for method in METHODS
        }

    def call(self, method: Method, user: str, *messages: bytes) -> Answer:
        """Call as a user. A call that would wait for something to come ends at once."""
        return self.call_with(method, credentials_of(user), *messages)

    def call_with(self, method: Method, metadata: Metadata, *messages: bytes) -> Answer:
        context = _Context(metadata)
        replies: list[bytes] = []
        self._run(method, context, messages, replies)
        return context.answer if replies == [] else Answer(context.answer.code, tuple(replies))

    def listen(self, user: str, group: str) -> Standing:
        """Begin a Listen call that stands until it is ended."""
        return Standing(self, user, group)

    def _run(
        self, method: Method, context: _Context, messages: Iterable[bytes], replies: list[bytes]
    ) -> None:
        handler = self._handlers[method]
        try:
            if method.shape is Shape.REPLIES:
                found = handler.stream_stream(iter(messages), context)
                replies.extend(found)
            else:
                replies.append(handler.stream_unary(iter(messages), context))
        except _AbortedError:
            replies.clear()
        finally:
            context.leave()


class Standing:
    """A Listen call in a thread of its own; `heard` is what it was sent."""

    def __init__(self, line: Line, user: str, group: str) -> None:
        self._listeners = line.process.server.listeners
        self._group = group
        self._context = _Context(credentials_of(user), is_active=True)
        self._replies: list[bytes] = []
        request = pb.Listen(group=group).SerializeToString()
        before = self._standing()
        self._thread = threading.Thread(
            target=line._run,
            args=(methods.LISTEN, self._context, [request], self._replies),
            daemon=True,  # a test that fails before it ends the call must not keep the process
        )
        self._thread.start()
        # Refused calls end; others stand as soon as the broker has noted them.
        wait_until(
            lambda: not self._thread.is_alive() or len(self._standing() - before) > 0,
            "a listener that stands, or is refused",
        )
        self._mine = self._standing() - before

    def _standing(self) -> set[Any]:
        return set(self._listeners._listeners.get(self._group, ()))

    @property
    def heard(self) -> list[pb.Question]:
        return [pb.Question.FromString(reply) for reply in list(self._replies)]

    def end(self) -> list[pb.Question]:
        """End the call once it has sent what it was given; all that was heard."""
        wait_until(
            lambda: (
                not self._thread.is_alive() or all(each.questions.empty() for each in self._mine)
            ),
            "questions to be sent",
        )
        self._context.leave()
        self._thread.join(30)
        return self.heard


class GrpcLine:
    """The same calls over the port of a broker that was started.

    Calls that would wait are given up after a moment; a Listen is ended once it stands.
    """

    MOMENT_S = 0.3

    def __init__(self, process: BrokerProcess, channel: grpc.Channel) -> None:
        self._process = process
        self._calls: Mapping[Method, Any] = {
            method: getattr(channel, method.shape.value)(method.path) for method in METHODS
        }

    def call(self, method: Method, user: str, *messages: bytes) -> Answer:
        """Call as a user."""
        return self.call_with(method, credentials_of(user), *messages)

    def call_with(self, method: Method, metadata: Metadata, *messages: bytes) -> Answer:
        given: Any = iter(messages) if method.shape is Shape.REQUESTS else messages[0]
        waits = method in (methods.AWAIT, methods.PULL)
        timeout = self.MOMENT_S if waits else 60
        call = self._calls[method]
        try:
            if method is methods.LISTEN:
                return self._stood(call(given, metadata=metadata, timeout=timeout))
            if method.shape is Shape.REPLIES:
                return Answer(Code.OK, tuple(call(given, metadata=metadata, timeout=timeout)))
            return Answer(Code.OK, (call(given, metadata=metadata, timeout=timeout),))
        except grpc.RpcError as error:
            if waits and error.code() is Code.DEADLINE_EXCEEDED:
                return Answer(Code.OK)
            return Answer(error.code(), (), error.details() or "")

    def _stood(self, call: Any) -> Answer:
        listeners = self._process.server.listeners._listeners
        wait_until(lambda: call.done() or bool(listeners), "a listener that stands, or is refused")
        if call.done():
            return Answer(call.code(), (), call.details() or "")
        call.cancel()
        wait_until(lambda: not listeners, "a listener that is gone")
        return Answer(Code.OK)
