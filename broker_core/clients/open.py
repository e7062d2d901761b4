"""From an address to an open broker; each kind is imported only when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypedDict

from broker_core.clients.address import BrokerAddress, BrokerKind, parse_address
from broker_core.errors import ConfigError, RequestError, UnsupportedError

if TYPE_CHECKING:
    from broker_core.api import Broker

MODES = ("r", "rw")
# Who asks matters behind a network only; a store takes these, so that one call fits all brokers.
_IDENTITY = frozenset(
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
_ELSEWHERE = {
    BrokerKind.REMOTE: "broker_core.clients.grpc.client",
    BrokerKind.REMOTE_TLS: "broker_core.clients.grpc.client",
    BrokerKind.CLUSTER: "broker_core.clients.cluster.cluster",
}


class BrokerOptions(TypedDict, total=False):
    """Keyword options of `open_broker`, beside those that it names itself.

    The first eight say who asks. Brokers behind a network need them, and a store takes them too, so
    that one call fits every address. The others belong to one kind of broker; any other kind
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
    if parsed.path is None:
        return _open_elsewhere(parsed, mode, options)
    from broker_core.broker.broker import EmbeddedBroker

    for name in options.keys() - _IDENTITY - {"progress"}:
        message = f"A store has no option {name!r}; it has mode, create, config and progress."
        raise ConfigError(message)
    progress = options.get("progress")
    return EmbeddedBroker.open(
        address, parsed.path, mode=mode, create=create, config=config, progress=progress
    )


def _open_elsewhere(parsed: BrokerAddress, mode: str, options: Mapping[str, Any]) -> Broker:
    """Open a broker behind a network; its module has `open_client(parsed, mode, **options)`."""
    module = _ELSEWHERE[parsed.kind]
    if find_spec(module) is None:
        message = (
            f"This version has no client for {parsed.kind.value}:// brokers ({parsed.text}); "
            f"open a store by its path instead."
        )
        raise UnsupportedError(message)
    broker: Broker = import_module(module).open_client(parsed, mode, **options)
    return broker
