"""One socket to one server, with any number of requests in flight.

Answers come in any order and are matched by `opaque`. There is no thread behind it: whoever waits
for an answer reads the socket, and hands what belongs to others to them; the others sleep until
theirs is there or the reader leaves, when one of them takes over. So a connection may be shared by
threads, costs nothing while idle, and a process that forks carries no half-alive reader along.

A request that gets no answer in time fails alone: the connection stays, and the answer is dropped
if it comes after all. A broken socket fails all requests in flight, and every later one.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from broker_core.clients.cluster.settings import ClusterSettings
from broker_core.errors import BrokerError, UnavailableError
from broker_core.retry import Deadline
from broker_core.wire.remoting.command import Command, Request
from broker_core.wire.remoting.frame import (
    FrameReader,
    MalformedFrameError,
    RemotingProtocolError,
    encode_frame,
)
from broker_core.wire.remoting.route import Endpoint

_MAX_OPAQUE = (1 << 31) - 1
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError)


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A request in flight: done when it has an answer or an error."""

    request: Request
    opaque: int
    deadline: Deadline
    answer: Command | None = None
    error: BrokerError | None = None

    @property
    def is_done(self) -> bool:
        """Whether `result` has one."""
        return self.answer is not None or self.error is not None

    def result(self) -> Command:
        """The answer, or the error raised."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None, "asked before it was done"
        return self.answer


class RemotingConnection:
    """An open connection; thread-safe. UnavailableError if the server can't be reached."""

    def __init__(self, server: Endpoint, settings: ClusterSettings) -> None:
        self.server = server
        self.process_id = os.getpid()
        self._settings = settings
        self._socket = _connect(server, settings)
        self._reader = FrameReader(settings.max_frame_bytes)
        self._pending: dict[int, PendingRequest] = {}
        self._opaque = 0
        self._broken: BrokerError | None = None
        # One lock for the socket's two directions: TLS allows one call at a time, and none blocks.
        self._socket_lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._turn = threading.Condition()
        self._is_reading = False

    def start(self, request: Request, timeout_ms: float | None = None) -> PendingRequest:
        """Send a request and return at once; `finish` or `finish_any` waits for its answer."""
        return self.start_all((request,), timeout_ms)[0]

    def start_all(
        self, requests: Iterable[Request], timeout_ms: float | None = None
    ) -> list[PendingRequest]:
        """Send several requests together and return at once."""
        deadline = Deadline.after_ms(timeout_ms or self._settings.request_timeout_ms)
        started: list[PendingRequest] = []
        with self._send_lock:
            frames = []
            for request in requests:
                pending = PendingRequest(request, self._next_opaque(), deadline)
                frames.append(self._encode(request, pending.opaque))
                self._pending[pending.opaque] = pending
                started.append(pending)
            self._send(b"".join(frames), deadline)
        return started

    def finish(self, pending: PendingRequest) -> Command:
        """Wait for the answer to a request."""
        return self.finish_any((pending,)).result()

    def finish_any(self, pendings: Collection[PendingRequest]) -> PendingRequest:
        """Wait until one of several requests is done, be it that its time is over."""
        deadline = min((pending.deadline for pending in pendings), key=lambda found: found.at_s)
        while True:
            for pending in pendings:
                if pending.is_done:
                    return pending
            # Whoever comes late still takes what has been lying there in time.
            is_late = deadline.has_passed
            has_read = self._read(lambda: any(pending.is_done for pending in pendings), deadline)
            if is_late and not has_read:
                return self._expire(pendings)

    def call(self, request: Request, timeout_ms: float | None = None) -> Command:
        """Send a request and wait for its answer."""
        return self.finish(self.start(request, timeout_ms))

    def call_all(
        self, requests: Iterable[Request], timeout_ms: float | None = None
    ) -> list[Command]:
        """Send all requests, then wait for all answers, in the order of the requests."""
        return [self.finish(pending) for pending in self.start_all(requests, timeout_ms)]

    @property
    def is_usable(self) -> bool:
        """Whether it is worth sending on: not broken, not another process's, not hung up on."""
        if self._broken is not None or self.process_id != os.getpid():
            return False
        if not self._pending and not self._is_reading:
            # Servers hang up on idle clients; that shows as something to read, namely the end.
            with contextlib.suppress(BrokerError):
                self._read(lambda: False, Deadline(0.0))
        return self._broken is None

    def close(self) -> None:
        """Hang up; requests in flight fail."""
        self._break(UnavailableError(f"The connection to {self.server} was closed."))

    def _next_opaque(self) -> int:
        self._opaque = self._opaque % _MAX_OPAQUE + 1
        return self._opaque

    def _encode(self, request: Request, opaque: int) -> bytes:
        code, ext, body, shared = request
        credentials = self._settings.credentials
        members = ""
        if shared is not None and credentials is None:
            members = shared.members
        elif shared is not None:
            ext = {**shared.fields, **ext}
        if credentials is not None:
            ext = credentials.sign(ext, body)
        return encode_frame(Command(code, opaque, 0, ext, body), shared=members)

    def _expire(self, pendings: Collection[PendingRequest]) -> PendingRequest:
        late = min(pendings, key=lambda pending: pending.deadline.at_s)
        self._pending.pop(late.opaque, None)
        if not late.is_done:
            late.error = UnavailableError(
                f"{self.server} did not answer {late.request.name} in time. Is it overloaded?"
            )
        return late

    # The socket

    def _send(self, frame: bytes, deadline: Deadline) -> None:
        rest = memoryview(frame)
        try:
            while rest:
                if self._broken is not None:
                    raise self._broken
                try:
                    with self._socket_lock:
                        sent = self._socket.send(rest)
                except (*_WOULD_BLOCK, ssl.SSLWantWriteError) as error:
                    self._await_socket(error, select.POLLOUT, deadline)
                else:
                    rest = rest[sent:]
        except OSError as error:
            raise self._break(_lost(self.server, error)) from error

    def _read(self, is_met: Callable[[], bool], deadline: Deadline) -> bool:
        """Read once, or sleep while another thread reads; whether anything may have come."""
        with self._turn:
            while self._is_reading:
                if is_met():
                    return True
                if not self._turn.wait(deadline.remaining_s):
                    return False
            if is_met() or self._broken is not None:
                return True
            self._is_reading = True
        try:
            return self._receive(deadline)
        except OSError as error:
            raise self._break(_lost(self.server, error)) from error
        except MalformedFrameError as error:
            text = (
                f"{self.server} does not speak RocketMQ's remoting protocol, or breaks it: {error}."
                f" Check that the address and its port are a name server's or a broker's."
            )
            raise self._break(RemotingProtocolError(text)) from error
        finally:
            with self._turn:
                self._is_reading = False
                self._turn.notify_all()

    def _receive(self, deadline: Deadline) -> bool:
        while True:
            try:
                with self._socket_lock:
                    count = self._socket.recv_into(self._reader.space())
                break
            except (*_WOULD_BLOCK, ssl.SSLWantWriteError) as error:
                if not self._await_socket(error, select.POLLIN, deadline):
                    return False
        if count == 0:
            raise ConnectionResetError("the server hung up")
        for command in self._reader.feed(count):
            self._deliver(command)
        return True

    def _await_socket(self, reason: OSError, default_event: int, deadline: Deadline) -> bool:
        """Sleep until the socket can go on; whether it can."""
        event = default_event
        if isinstance(reason, ssl.SSLWantReadError):
            event = select.POLLIN
        elif isinstance(reason, ssl.SSLWantWriteError):
            event = select.POLLOUT
        number = self._socket.fileno()
        if number < 0:
            raise ConnectionResetError("it was closed meanwhile")
        poll = select.poll()
        poll.register(number, event)
        is_ready = bool(poll.poll(deadline.remaining_s * 1000))
        if not is_ready and default_event == select.POLLOUT:
            raise TimeoutError("it takes no more data")
        return is_ready

    def _deliver(self, command: Command) -> None:
        """Hand an answer to who waits for it. Nobody waits for late ones and for requests."""
        if not command.is_response:
            return
        pending = self._pending.pop(command.opaque, None)
        if pending is not None:
            pending.answer = command

    def _break(self, error: BrokerError) -> BrokerError:
        """Fail all requests in flight, and all later ones, with the first error there was."""
        if self._broken is None:
            self._broken = error
            if self.process_id == os.getpid():  # or it would be shut down for the parent as well
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for it
            self._socket.close()
        for opaque in list(self._pending):
            pending = self._pending.pop(opaque, None)
            if pending is not None:
                pending.error = self._broken
        return self._broken


class RemotingConnections:
    """Connections by server; thread-safe. A forked child starts without any of its parent's."""

    _lock: threading.Lock
    _dialling: dict[Endpoint, threading.Lock]
    _open: dict[Endpoint, RemotingConnection]
    _process_id: int

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._begin()

    def to(self, server: Endpoint) -> RemotingConnection:
        """A usable connection to a server, the one there is or a new one."""
        if self._process_id != os.getpid():
            self._begin()
        with self._lock:
            found = self._open.get(server)
            lock = self._dialling.setdefault(server, threading.Lock())
        if found is not None and found.is_usable:
            return found
        with lock:  # So that threads do not dial one server twice; others are not held up.
            found = self._open.get(server)
            if found is None or not found.is_usable:
                found = self._open[server] = RemotingConnection(server, self.settings)
        return found

    def call(self, server: Endpoint, request: Request, timeout_ms: float | None = None) -> Command:
        """Ask one server and wait for its answer."""
        return self.to(server).call(request, timeout_ms)

    def close(self) -> None:
        """Hang up on all of them; asking again dials again."""
        if self._process_id != os.getpid():
            self._begin()
        with self._lock:
            closing, self._open = list(self._open.values()), {}
        for connection in closing:
            connection.close()

    def _begin(self) -> None:
        # Fresh locks, too: a thread of the parent may have held the old ones when it forked.
        self._lock = threading.Lock()
        self._dialling = {}
        self._open = {}
        self._process_id = os.getpid()


def _connect(server: Endpoint, settings: ClusterSettings) -> socket.socket:
    timeout_s = settings.connect_timeout_ms / 1000
    try:
        plain = socket.create_connection(server, timeout_s)
    except OSError as error:
        text = f"{server} can't be reached ({error.strerror or error}). Is it up there?"
        raise UnavailableError(text) from error
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = _wrap(plain, server, settings) if settings.tls else plain
        found.setblocking(False)
    except BaseException:
        plain.close()
        raise
    return found


def _wrap(plain: socket.socket, server: Endpoint, settings: ClusterSettings) -> ssl.SSLSocket:
    assert settings.tls is not None, "asked for TLS"
    context = settings.tls.context()
    try:
        return context.wrap_socket(plain, server_hostname=settings.tls.server_name or server.host)
    except ssl.SSLCertVerificationError as error:
        text = (
            f"The certificate of {server} is not trusted: {error.verify_message}."
            f" Check tls.ca and tls.serverName."
        )
        raise RemotingProtocolError(text) from error
    except OSError as error:
        text = f"No TLS connection to {server} ({error}). Does it speak TLS, or want a tls.cert?"
        raise UnavailableError(text) from error


def _lost(server: Endpoint, error: OSError) -> UnavailableError:
    return UnavailableError(f"The connection to {server} was lost ({error.strerror or error}).")
