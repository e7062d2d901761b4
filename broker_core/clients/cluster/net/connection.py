"""Connections: one socket to each server, with any number of requests in flight.

Problem. Brokers grant few messages an answer and take a while to store a batch, so one request
after another would wait for the network most of the time. Threads share a client, Spark's workers
fork, servers hang up on connections that are idle for 120 s, and some requests are never answered.

Invariants.
- An answer reaches the request with its `opaque`, in any order. Answers that no request waits for
  (late ones) and requests of the server are dropped.
- A request that gets no answer in time fails alone, with UnavailableError; the connection stays.
- A broken socket, or bytes that are no frame, fail all requests in flight and every later one with
  the first error. `RemotingConnections` then makes a new connection for the next caller.
- At most one thread reads the socket at a time, and no thread blocks while it holds the
  socket's lock.
- A forked child uses no connection of its parent's, and does not shut it down.

Outline. `start` encodes and sends a request; `finish` and `finish_any` wait. There is no thread
behind a connection: a waiting thread reads the socket, and puts each answer into the PendingRequest
that it belongs to; other waiting threads sleep on `_turn` until their answer is there or the reader
leaves, and one of them reads on. The socket does not block: waiting is poll() with the deadline of
the request.

Rejected. A reader thread for each connection: it costs a thread while idle, and a forked child is
left without it, its locks maybe held. Closing the socket when a request times out, as the Java
client does: it would fail unrelated requests in flight.
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
    """A request in flight; done when it has an answer or an error."""

    request: Request
    opaque: int
    deadline: Deadline
    answer: Command | None = None
    error: BrokerError | None = None

    @property
    def is_done(self) -> bool:
        """True once there is an answer or an error."""
        return self.answer is not None or self.error is not None

    def result(self) -> Command:
        """Return the answer, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None, "asked before it was done"
        return self.answer


class RemotingConnection:
    """An open connection to one server; thread-safe.

    UnavailableError from the constructor if the server can't be reached.
    """

    def __init__(self, server: Endpoint, settings: ClusterSettings) -> None:
        self.server = server
        self.process_id = os.getpid()
        self._settings = settings
        self._socket = _connect(server, settings)
        self._reader = FrameReader(settings.max_frame_bytes)
        self._pending: dict[int, PendingRequest] = {}
        self._opaque = 0
        self._broken: BrokerError | None = None
        # One lock for both directions of the socket: TLS allows one call at a time. Calls do not
        # block, so a reader hardly holds up a writer.
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
        """Wait until one of several requests is done, and return it.

        When the earliest deadline passes, the request with that deadline is done, with an error.
        """
        deadline = min((pending.deadline for pending in pendings), key=lambda found: found.at_s)
        while True:
            for pending in pendings:
                if pending.is_done:
                    return pending
            # A caller that comes late still takes an answer that came in time: read once more
            # before giving up.
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
        """True if it is not broken, not another process's, and not closed by the server."""
        if self._broken is not None or self.process_id != os.getpid():
            return False
        if not self._pending and not self._is_reading:
            # Servers hang up on idle clients. That shows as something to read: the end. With
            # requests in flight their own reader finds out.
            with contextlib.suppress(BrokerError):
                self._read(lambda: False, Deadline(0.0))
        return self._broken is None

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
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
        """Read once, or sleep while another thread reads; return False if nothing has come."""
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
        """Sleep until the socket can go on; return False if the deadline passes first."""
        event = default_event
        # TLS may have to read in order to write, and the other way round.
        if isinstance(reason, ssl.SSLWantReadError):
            event = select.POLLIN
        elif isinstance(reason, ssl.SSLWantWriteError):
            event = select.POLLOUT
        number = self._socket.fileno()
        if number < 0:
            raise ConnectionResetError("it was closed")
        poll = select.poll()
        poll.register(number, event)
        is_ready = bool(poll.poll(deadline.remaining_s * 1000))
        if not is_ready and default_event == select.POLLOUT:
            raise TimeoutError("it takes no more data")
        return is_ready

    def _deliver(self, command: Command) -> None:
        """Put an answer into its request; drop late answers and requests of the server."""
        if not command.is_response:
            return
        pending = self._pending.pop(command.opaque, None)
        if pending is not None:
            pending.answer = command

    def _break(self, error: BrokerError) -> BrokerError:
        """Fail all requests in flight, and all later ones, with the first error; return it."""
        if self._broken is None:
            self._broken = error
            # shutdown() wakes a thread that polls the socket, and works on the connection itself:
            # in a forked child it would end the parent's.
            if self.process_id == os.getpid():
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        for opaque in list(self._pending):
            pending = self._pending.pop(opaque, None)
            if pending is not None:
                pending.error = self._broken
        return self._broken


class RemotingConnections:
    """The connections of one process, one to each server, made when first needed; thread-safe.

    A forked child starts without any of its parent's.
    """

    _lock: threading.Lock
    _connecting: dict[Endpoint, threading.Lock]
    _open: dict[Endpoint, RemotingConnection]
    _process_id: int

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._begin()

    def to(self, server: Endpoint) -> RemotingConnection:
        """Return a usable connection to a server, the present one or a new one."""
        if self._process_id != os.getpid():
            self._begin()
        with self._lock:
            found = self._open.get(server)
            lock = self._connecting.setdefault(server, threading.Lock())
        if found is not None and found.is_usable:
            return found
        # A lock for each server: threads do not connect to one server twice, and do not wait while
        # another server is connected to.
        with lock:
            found = self._open.get(server)
            if found is None or not found.is_usable:
                found = self._open[server] = RemotingConnection(server, self.settings)
        return found

    def call(self, server: Endpoint, request: Request, timeout_ms: float | None = None) -> Command:
        """Send a request to one server and wait for its answer."""
        return self.to(server).call(request, timeout_ms)

    def close(self) -> None:
        """Close all connections; asking again opens new ones."""
        if self._process_id != os.getpid():
            self._begin()
        with self._lock:
            closing, self._open = list(self._open.values()), {}
        for connection in closing:
            connection.close()

    def _begin(self) -> None:
        # Fresh locks, too: a thread of the parent may have held the old ones at the fork.
        self._lock = threading.Lock()
        self._connecting = {}
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
