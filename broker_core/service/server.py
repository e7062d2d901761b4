"""The gRPC server: a port, gRPC's own limits, and the table of handlers for every method."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import TYPE_CHECKING

import grpc

from broker_core.broker.catalog import store_numbers
from broker_core.errors import ConfigError, UnsupportedError
from broker_core.service.append_dedup import AppendDedup
from broker_core.service.auth.user_rights import ANYONE, UserIdentity
from broker_core.service.call_limits import CallLimits
from broker_core.service.core.read import ReadHandlers
from broker_core.service.core.rpc import Boundary, Call, Handler, Identify, Observe
from broker_core.service.core.transactions import CheckBackListeners, TransactionHandlers
from broker_core.service.core.write import WriteHandlers
from broker_core.service.group_commit import GroupCommit
from broker_core.service.health import HealthHandler
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.methods import METHODS, PROTOCOL, SERVICE, Method

if TYPE_CHECKING:
    from broker_core.service.broker_pool import BrokerPool
    from broker_core.service.settings import ServiceSettings

_HEAD_BYTES = 16 << 10
IDLE_MS = 30_000
"""A connection without a call is closed after this time, or twice it: gRPC looks once in each, and
starts again if there was a call since. Clients connect again by themselves.

Whoever reaches the port may open `grpcMaxConnections` without credentials, and so keep others out.
"""
HANDSHAKE_MS = 10_000
"""Time that a new connection has for TLS and the first words of HTTP/2."""


def anyone(context: grpc.ServicerContext) -> UserIdentity:
    """Return the identity of all callers of a broker without credentials."""
    del context
    return ANYONE


def unobserved(method: Method, seconds: float, status: str) -> None:
    """Ignore the end of a call, where no metrics are kept."""
    del method, seconds, status


class BrokerServer:
    """A broker pool behind a port.

    gRPC's thread pool has one thread for each call that may be under way (`grpcMaxCalls`). A call
    beyond that is refused with RESOURCE_EXHAUSTED and retried by clients; it is not queued. How
    many of them one user and calls that wait may take is said in call_limits.py. Calls of the
    health service have threads of their own.
    """

    def __init__(
        self,
        pool: BrokerPool,
        settings: ServiceSettings,
        *,
        credentials: grpc.ServerCredentials | None = None,
        identify: Identify = anyone,
        recognise: Identify = anyone,
        observe: Observe = unobserved,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._started_ms = pool.clock_ms()
        self.group_commit = GroupCommit(pool, settings.in_flight_bytes)
        self.listeners = CheckBackListeners(pool)
        self._threads = ThreadPoolExecutor(settings.max_calls, thread_name_prefix="call")
        self._server = grpc.server(
            self._threads,
            maximum_concurrent_rpcs=settings.max_calls,
            options=server_options(settings),
        )
        self.limits = CallLimits(settings.max_calls)
        self._boundary = Boundary(identify, recognise, self.limits, observe)
        self._health = HealthHandler(pool)
        handlers = self._handlers()
        self._server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    SERVICE,
                    {
                        each.name: self._boundary.rpc_handler(each, handlers[each])
                        for each in METHODS
                    },
                ),
                self._health,
            ]
        )
        self.port = self._bind(credentials)

    def _bind(self, credentials: grpc.ServerCredentials | None) -> int:
        listen = self._settings.listen
        try:
            if credentials is None:
                return int(self._server.add_insecure_port(listen))
            return int(self._server.add_secure_port(listen, credentials))
        except RuntimeError as error:
            message = (
                f"Can't listen at {listen}: the address is taken or not of this machine. Choose "
                "another with --listen or grpcListenAddress; port 0 takes any that is free."
            )
            raise ConfigError(message) from error

    def start(self) -> None:
        """Begin to serve; clients can connect when this returns."""
        self.limits.stalls.start()
        self._health.start()
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Take no new calls, let those under way end within `grace_s`, cancel the rest."""
        # First, so that calls that wait for messages end by themselves, not by the grace period.
        self._pool.begin_stop()
        self.listeners.stop()
        self._server.stop(grace_s).wait()
        self._threads.shutdown(wait=True)
        self._health.stop()
        self.limits.stalls.stop()

    def _handlers(self) -> Mapping[Method, Handler]:
        limits = self._settings.limits
        read = ReadHandlers(self._pool, limits)
        write = WriteHandlers(
            self._pool,
            limits,
            self.group_commit,
            AppendDedup(self._pool),
            creates_topics=self._settings.creates_topics,
        )
        transactions = TransactionHandlers(self._pool, limits, self.group_commit, self.listeners)
        return {
            methods.HELLO: self._hello,
            methods.STATS: self._stats,
            methods.TOPICS: read.topics,
            methods.DESCRIBE: read.describe,
            methods.OFFSETS: read.offsets,
            methods.OFFSET_AT: read.offset_at,
            methods.CONSUMER_OFFSETS: read.consumer_offsets,
            methods.AWAIT: read.wait,
            methods.PULL: read.pull,
            methods.QUERY: read.query,
            methods.MESSAGE: read.message,
            methods.CREATE_TOPIC: write.create_topic,
            methods.ADD_QUEUES: write.add_queues,
            methods.DELETE_TOPIC: write.delete_topic,
            methods.COMMIT_OFFSET: write.commit_offset,
            methods.APPEND: write.append,
            methods.APPEND_CHUNKS: write.append_chunks,
            methods.DELETE_BEFORE: write.delete_before,
            methods.IS_DECIDED: transactions.is_decided,
            methods.PREPARE: transactions.prepare,
            methods.PREPARE_CHUNKS: transactions.prepare_chunks,
            methods.COMMIT_BATCH: transactions.commit_batch,
            methods.ABORT_BATCH: transactions.abort_batch,
            methods.PREPARE_MESSAGE: transactions.prepare_message,
            methods.END: transactions.end,
            methods.LISTEN: transactions.listen,
            methods.CHECK_BACK: transactions.check_back,
        }

    def _hello(self, request: pb.HelloRequest, call: Call) -> pb.HelloReply:
        if request.protocol != PROTOCOL:
            message = (
                f"This broker speaks protocol {PROTOCOL}, the client {request.protocol}; use the "
                f"same version of pyspark-rocketmq on both ends."
            )
            raise UnsupportedError(message)
        limits = self._settings.limits
        return pb.HelloReply(
            protocol=PROTOCOL,
            server=f"pyspark-rocketmq {version()}",
            broker_name=self._pool.settings.broker_name,
            instance=self._pool.instance,
            store_host=self._pool.settings.store_host,
            message_bytes=limits.message_bytes,
            chunk_bytes=limits.chunk_bytes,
            append_bytes=limits.append_bytes,
            delay_levels=len(self._pool.settings.delay_levels_ms),
            creates_topics=self._settings.creates_topics,
        )

    def _stats(self, request: pb.Empty, call: Call) -> pb.Stats:
        """Return the numbers of store and server."""
        writer, commit = self._pool.writer, self.group_commit
        with self._pool.broker() as broker:
            numbers = store_numbers(broker.reader, broker.catalog)
        numbers |= {
            "appendRequests": commit.requests,
            "appendGroups": commit.groups,
            "bytesInFlight": commit.held_bytes,
            "poolBytes": writer.held_bytes,
            "durableLagBytes": writer.durable_lag_bytes,
            "dispatchBehindBytes": writer.dispatch_behind_bytes,
            "uptimeMs": max(0, self._pool.clock_ms() - self._started_ms),
        }
        return pb.Stats(store=str(writer.root), numbers=numbers)


def version() -> str:
    """Return the installed version, "source" without an installation."""
    try:
        return metadata.version("pyspark-rocketmq")
    except metadata.PackageNotFoundError:
        return "source"


def server_options(settings: ServiceSettings) -> list[tuple[str, int]]:
    """Return gRPC's own settings: sizes of messages, number of calls, idle and dead peers."""
    return [
        ("grpc.max_receive_message_length", settings.limits.request_bytes),
        ("grpc.max_send_message_length", settings.limits.reply_bytes),
        ("grpc.max_metadata_size", _HEAD_BYTES),
        ("grpc.max_concurrent_streams", settings.max_calls),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.so_reuseport", 0),
    ]
