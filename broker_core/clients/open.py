"""Opening brokers by their address; each kind is imported only when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from broker_core.clients.address import BrokerKind, parse_address
from broker_core.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from broker_core.api import Broker

MODES = ("r", "rw")
# Credentials matter behind a network only; a store takes and ignores them, so that one call fits
# all brokers.
_CREDENTIALS = frozenset(
    {
        "access_key",
        "secret_key",
        "security_token",
        "token",
        "tls_ca",
        "tls_cert",
        "tls_key",
        "tls_server_name",
    }
)


class BrokerOptions(TypedDict, total=False):
    """Keyword options of `open_broker`, beside those that it names itself.

    The first eight are credentials: brokers behind a network need them, and a store takes them too,
    so that one call fits every address. The others belong to one kind of broker; any other kind
    refuses them by name.
    """

    access_key: str | None
    secret_key: str | None
    security_token: str | None
    token: str | None
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_server_name: str | None
    # file:
    progress: Callable[[int, int], None] | None
    # grpc:// and grpcs://
    timeout_ms: int
    retry_ms: int
    connect_ms: int
    # rocketmq://
    namespace: str
    consumer_group: str
    producer_group: str
    connect_timeout_ms: int
    request_timeout_ms: int
    pull_timeout_ms: int
    send_timeout_ms: int
    pulls_in_flight: int
    pull_bytes_in_flight: int
    sends_in_flight: int
    batch_bytes: int
    max_message_size: int
    compression: str
    compression_threshold: int
    max_frame_bytes: int


def open_address(
    address: str,
    mode: str,
    *,
    create: bool,
    config: str | os.PathLike[str] | Mapping[str, object] | None,
    options: Mapping[str, Any],
) -> Broker:
    """Open a broker; see broker_core.open_broker."""
    if mode not in MODES:
        message = f"mode={mode!r} is not a mode; give 'r' to read or 'rw' to read and write."
        raise RequestError(message)
    if create and mode == "r":
        message = "create=True makes a store, which mode='r' never does; give mode='rw' too."
        raise RequestError(message)
    parsed = parse_address(address)
    if parsed.kind is BrokerKind.CLUSTER:
        from broker_core.clients.cluster.cluster import open_client as open_cluster

        return open_cluster(parsed, mode, **options)
    if parsed.path is None:
        from broker_core.clients.grpc.client import open_client

        return open_client(parsed, mode, **options)
    from broker_core.broker.broker import EmbeddedBroker

    for name in options.keys() - _CREDENTIALS - {"progress"}:
        message = f"A store has no option {name!r}; it has mode, create, config and progress."
        raise ConfigError(message)
    progress = options.get("progress")
    return EmbeddedBroker.open(
        address, parsed.path, mode=mode, create=create, config=config, progress=progress
    )
