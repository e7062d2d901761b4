"""Connection: one gRPC channel, calls with a deadline, and retries after a break.

A call that fails because the broker can't be reached is retried, with pauses that grow, until
`retry_ms` is over, if its method is idempotent (wire/core/methods.py). After each break the broker
is greeted again: it may have been restarted with other settings, or be another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from broker_core.clients.address import BrokerAddress
from broker_core.clients.grpc.options import GrpcOptions
from broker_core.errors import BrokerError, UnavailableError, UnsupportedError
from broker_core.retry import Backoff, Deadline
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.methods import HELLO, PROTOCOL, Limits, Method
from broker_core.wire.core.status import DETAIL_KEY, error_of, foreign_error

Answer = TypeVar("Answer")
_MAX_WORDS = 200


@dataclass(frozen=True, slots=True)
class Greeting:
    """A broker's reply to Hello: its name, this run of it, its limits."""

    broker_name: str
    instance: bytes
    store_host: bytes
    limits: Limits
    delay_levels: int
    creates_topics: bool = False


class Connection:
    """Calls to one broker. Thread-safe."""

    def __init__(self, address: BrokerAddress, options: GrpcOptions) -> None:
        self.address = address
        self.options = options
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._stubs: dict[Method, Callable[..., Any]] = {}
        self._greeting: Greeting | None = None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._is_closed

    def close(self) -> None:
        """Close the channel; calls under way end."""
        with self._lock:
            channel, self._channel = self._channel, None
            self._is_closed = True
        if channel is not None:
            channel.close()

    def greeting(self, patience_ms: int | None = None) -> Greeting:
        """Return the broker's last greeting; ask for one after a break."""
        known = self._greeting
        return self.retry(self._greet, patience_ms) if known is None else known

    def call(self, method: Method, request: Any, *, timeout_s: float | None = None) -> Any:
        """Ask and return the answer; retry after a break if the method is idempotent."""

        def ask() -> Any:
            self.greeting()
            return self.ask(method, request, timeout_s=timeout_s)

        return self.retry(ask) if method.is_idempotent else ask()

    def ask(self, method: Method, request: Any, *, timeout_s: float | None = None) -> Any:
        """Ask once and return the answer."""
        with self.translated():
            return self._stub(method)(
                request,
                timeout=self.options.timeout_ms / 1000 if timeout_s is None else timeout_s,
                metadata=self.options.metadata(),
            )

    def stream(self, method: Method, request: Any) -> Iterator[bytes]:
        """Ask once and return the replies as a stream, without a deadline. `cancel` ends it."""
        with self.translated():
            replies: Iterator[bytes] = self._stub(method)(request, metadata=self.options.metadata())
            return replies

    def retry(self, ask: Callable[[], Answer], patience_ms: int | None = None) -> Answer:
        """Ask until there is an answer, an error other than UnavailableError, or no time left."""
        patience_ms = self.options.retry_ms if patience_ms is None else patience_ms
        deadline = Deadline.after_ms(patience_ms)
        backoff = Backoff()
        while True:
            try:
                return ask()
            except UnavailableError:
                self.forget()
                if deadline.has_passed or self._is_closed:
                    raise
                backoff.pause(deadline)

    def forget(self) -> None:
        """Drop the greeting, so that the broker is greeted before the next call."""
        self._greeting = None

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise gRPC's errors in the block as errors of ours."""
        try:
            yield
        except grpc.RpcError as error:
            raise self.error_of(error) from error

    def error_of(self, error: grpc.RpcError) -> BrokerError:
        """Return the broker's own error, or one for gRPC's words about the connection."""
        for key, value in error.trailing_metadata() or ():
            if key == DETAIL_KEY:
                return error_of(value)
        words = " ".join(str(error.details()).split())[:_MAX_WORDS]
        code = error.code()
        if code is grpc.StatusCode.UNIMPLEMENTED:
            words += "; is it a broker of pyspark-rocketmq, and of this version?"
        if code is grpc.StatusCode.UNAVAILABLE:
            words += "; does `rocketmq-broker serve` run there, and with TLS only for grpcs://?"
        return foreign_error(code, f"{self.address.text} answered {code.name}: {words}")

    # Channel

    def _greet(self) -> Greeting:
        reply: pb.HelloReply = self.ask(HELLO, pb.HelloRequest(protocol=PROTOCOL, client="python"))
        if reply.protocol != PROTOCOL:
            message = f"{self.address.text} speaks protocol {reply.protocol}, not {PROTOCOL}."
            raise UnsupportedError(message)
        limits = Limits(reply.message_bytes, reply.chunk_bytes, reply.append_bytes)
        self._greeting = Greeting(
            reply.broker_name,
            reply.instance,
            reply.store_host,
            limits,
            reply.delay_levels,
            reply.creates_topics,
        )
        return self._greeting

    def _stub(self, method: Method) -> Callable[..., Any]:
        with self._lock:
            if self._is_closed:
                message = f"The broker {self.address.text} was closed; open it again."
                raise UnavailableError(message)
            if self._channel is None:
                self._channel = self._open()
            if method not in self._stubs:
                make = getattr(self._channel, method.shape.value)
                self._stubs[method] = make(
                    method.path,
                    request_serializer=method.request.serialize,
                    response_deserializer=method.reply.parse,
                )
            return self._stubs[method]

    def _open(self) -> grpc.Channel:
        limits = Limits(_ANY_BYTES, _ANY_BYTES, _ANY_APPEND_BYTES)
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", limits.reply_bytes),
            ("grpc.max_send_message_length", limits.request_bytes),
            ("grpc.max_metadata_size", 16 << 10),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.enable_retries", 0),  # retries are ours: appends number their attempts
            ("grpc.use_local_subchannel_pool", 1),  # else brokers of one address share a socket
        ]
        if self.options.tls_server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.options.tls_server_name))
        credentials = self.options.channel_credentials(self.address)
        target = self.address.hosts[0]
        if credentials is None:
            return grpc.insecure_channel(target, options=options)
        return grpc.secure_channel(target, credentials, options=options)


_ANY_BYTES = 64 << 20
_ANY_APPEND_BYTES = 1 << 30
"""The highest limits that a broker can have: its own are known once it was greeted."""
