"""Broker clients: opened from options, kept per process, their errors translated into conditions.

A task opens its broker once per worker process and keeps it: Spark reuses workers, so a cached
broker saves the mapping of files or a connection per task. The cache belongs to one process (its
key has the process id), because neither files nor sockets may be shared across a fork.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from broker_core import errors as core
from broker_core.api import LocalBroker
from broker_core.clients.address import BrokerKind
from pyspark_rocketmq.errors import ConnectorError, broker_errors
from pyspark_rocketmq.options.parsers import Secret

if TYPE_CHECKING:
    from broker_core.api import Broker
    from broker_core.types import Mode
    from pyspark_rocketmq.options.options import ClientOptions

_cached: dict[tuple[int, ClientOptions, Mode], Broker] = {}


def open_client(client: ClientOptions, mode: Mode = "r") -> Broker:
    """Open a broker; the caller closes it."""
    from broker_core import open_broker

    return open_broker(client.address, mode=mode, **client_settings(client))


def cached_reader(client: ClientOptions) -> Broker:
    """Return this process's read-only broker; only `forget` closes it."""
    return _cached_broker(client, "r")


def cached_writer(client: ClientOptions) -> Broker:
    """Return this process's broker open for writing; only `forget` closes it."""
    return _cached_broker(client, "rw")


def _cached_broker(client: ClientOptions, mode: Mode) -> Broker:
    key = (os.getpid(), client, mode)
    if key in _cached and _is_gone(_cached[key]):
        # The store was deleted, and perhaps made anew at the same path: closing the old one may
        # fail, and nothing of it is left to lose.
        with suppress(core.StorageError):
            forget(client, mode)
    if key not in _cached:
        for other in [known for known in _cached if known[0] != key[0]]:
            del _cached[other]  # inherited by a fork: its files and sockets are the parent's
        _cached[key] = open_client(client, mode)
    return _cached[key]


def _is_gone(broker: object) -> bool:
    return isinstance(broker, LocalBroker) and not broker.is_in_place


def forget(client: ClientOptions, mode: Mode = "r") -> None:
    """Close the cached broker after an error, so that the next task opens a new one."""
    broker = _cached.pop((os.getpid(), client, mode), None)
    if broker is not None:
        broker.close()


def failed(error: core.BrokerError, client: ClientOptions, action: str) -> ConnectorError:
    """Translate an error of this process's writer, and drop the writer if it is unavailable."""
    if isinstance(error, core.UnavailableError):
        forget(client, "rw")
    return translate(error, client.address, action, attempts=1)


def translate(error: core.BrokerError, address: str, action: str, attempts: int) -> ConnectorError:
    """Return the condition for a broker's error."""
    if isinstance(error, core.CorruptRecordError):
        return broker_errors.store_damaged(address, action, error)
    if isinstance(error, core.UnsupportedError):
        return broker_errors.unsupported(address, action, error)
    if error.retryable:
        return broker_errors.unavailable(address, action, attempts, error)
    return broker_errors.failed(address, action, error)


def client_settings(client: ClientOptions) -> dict[str, Any]:
    """Return the settings for `open_broker`; options that the user did not give are left out."""
    settings: dict[str, Secret | str | int | None] = {
        "access_key": client.access_key,
        "secret_key": client.secret_key,
        "security_token": client.security_token,
        "token": client.token,
        "tls_ca": client.tls_ca,
        "tls_cert": client.tls_cert,
        "tls_key": client.tls_key,
        "tls_server_name": client.tls_server_name,
    }
    if client.kind is BrokerKind.CLUSTER:
        settings["consumer_group"] = client.consumer_group
        settings["pull_timeout_ms"] = client.pull_timeout_ms
    elif client.kind is not BrokerKind.EMBEDDED:
        settings["retry_ms"] = client.pull_timeout_ms
    return {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in settings.items()
        if value is not None
    }
