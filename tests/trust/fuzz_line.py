"""The line of a fuzzer to a server: raw calls, calls that are left open, and a tally of answers."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import grpc

from broker_core.wire.core import methods
from broker_core.wire.core.methods import METHODS, Method, Shape
from tests.trust.line import Answer, Code, Metadata

SECRET = b"secret of "
"""Is in every body of an innocent."""
FAULTS = frozenset((Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS))
"""Statuses that tell of a fault of the broker, or of damage."""
OWN_LIE = "can't be inflated"
"""Is said of a body that claims to be compressed: the attacker sent it so, to a topic of their own,
and it is no damage."""
STANDING = 12
"""Calls of all threads that are begun and left open, until newer ones take their places."""
PATIENCE_S = 30.0
SHORT_S = {methods.LISTEN: 0.02, methods.AWAIT: 0.05, methods.PULL: 0.3}
"""Time for methods that may wait for something that never comes."""


class Tally:
    """What was fired and what came of it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.kinds: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.complaints: list[str] = []

    def note(self, kind: str, what: str, answer: Answer) -> None:
        """Count a call, and look at its answer."""
        said = b"".join((*answer.replies, answer.details.encode()))
        with self._lock:
            self.kinds[kind] += 1
            self.codes[answer.code.name] += 1
            if answer.code in FAULTS and OWN_LIE not in answer.details:
                self.complaints.append(f"{kind}, {what}: {answer}")
            if SECRET in said:
                self.complaints.append(f"{kind}, {what}: told {said[:200]!r}")

    def complain(self, what: str) -> None:
        with self._lock:
            self.complaints.append(what)

    def report(self) -> dict[str, Any]:
        return {"kinds": self.kinds, "codes": self.codes, "complaints": self.complaints[:50]}


class Calls:
    """Raw calls over one connection: bytes in, a status and bytes out."""

    def __init__(self, target: str) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        self.channel = grpc.insecure_channel(target, options)
        self._stubs: dict[Method, Any] = {
            method: getattr(self.channel, method.shape.value)(method.path) for method in METHODS
        }

    def call(
        self, method: Method, metadata: Metadata, *messages: bytes, timeout_s: float | None = None
    ) -> Answer:
        """Call to the end; those that may wait for ever are given up soon."""
        timeout_s = timeout_s or SHORT_S.get(method, PATIENCE_S)
        replies: list[bytes] = []
        try:
            if method.shape is Shape.REPLIES:
                replies.extend(self.begin(method, metadata, iter(messages), timeout_s))
            else:
                given: Any = messages[0] if method.shape is Shape.UNARY else iter(messages)
                replies.append(self._stubs[method](given, timeout=timeout_s, metadata=metadata))
        except grpc.RpcError as error:
            return Answer(error.code(), tuple(replies), error.details() or "")
        return Answer(Code.OK, tuple(replies))

    def begin(
        self, method: Method, metadata: Metadata, messages: Iterator[bytes], timeout_s: float
    ) -> Any:
        """Begin a call whose requests may come one by one; its replies."""
        stub = self.channel.stream_stream(method.path)
        return stub(messages, timeout=timeout_s, metadata=metadata)


class Standing:
    """Calls that are left open: the oldest is cancelled for a new one. Thread-safe."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._lock = threading.Lock()
        self._calls: deque[Any] = deque()
        self._threads: list[threading.Thread] = []

    def add(self, kind: str, what: str, call: Any, most: int = STANDING) -> None:
        """Let a call stand, and note all that it is answered."""
        reader = threading.Thread(target=self._read, args=(kind, what, call))
        with self._lock:
            self._calls.append(call)
            oldest = self._calls.popleft() if len(self._calls) > most else None
            self._threads = [*(each for each in self._threads if each.is_alive()), reader]
            reader.start()
        if oldest is not None:
            oldest.cancel()

    def end(self) -> None:
        """Cancel all of them, and wait until they are over."""
        with self._lock:
            calls, threads = list(self._calls), self._threads
            self._calls.clear()
        for call in calls:
            call.cancel()
        for thread in threads:
            thread.join(30)

    def _read(self, kind: str, what: str, call: Any) -> None:
        replies: list[bytes] = []
        try:
            replies.extend(call)
        except grpc.RpcError as error:
            answer = Answer(error.code(), tuple(replies), error.details() or "")
        else:
            answer = Answer(Code.OK, tuple(replies))
        self._tally.note(kind, what, answer)
