"""RocketMQ's store and broker core, without Spark: one call opens any kind of broker.

from broker_core import open_broker, SqlFilter
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker_core.errors import (
    AddressError,
    AuthenticationError,
    BrokerError,
    ConfigError,
    CorruptRecordError,
    DiskFullError,
    FilterSyntaxError,
    FormatVersionError,
    IllegalMessageError,
    IllegalTransitionError,
    InvalidNameError,
    MessageNotFoundError,
    OffsetRangeError,
    PermissionDeniedError,
    RequestError,
    StorageError,
    StoreLockedError,
    StoreNotFoundError,
    TopicExistsError,
    TopicNotFoundError,
    TransactionError,
    UnavailableError,
    UnknownTransactionError,
    UnsupportedError,
)
from broker_core.types import (
    LogicalOffset,
    OffsetRange,
    PhysicalOffset,
    QueueRef,
    SendResult,
    TopicInfo,
)

if TYPE_CHECKING:
    from broker_core.api import Broker
    from broker_core.filter.sqlfilter import SqlFilter

__all__ = [
    "AddressError",
    "AuthenticationError",
    "BrokerError",
    "ConfigError",
    "CorruptRecordError",
    "DiskFullError",
    "FilterSyntaxError",
    "FormatVersionError",
    "IllegalMessageError",
    "IllegalTransitionError",
    "InvalidNameError",
    "LogicalOffset",
    "MessageNotFoundError",
    "OffsetRange",
    "OffsetRangeError",
    "PermissionDeniedError",
    "PhysicalOffset",
    "QueueRef",
    "RequestError",
    "SendResult",
    "SqlFilter",
    "StorageError",
    "StoreLockedError",
    "StoreNotFoundError",
    "TopicExistsError",
    "TopicInfo",
    "TopicNotFoundError",
    "TransactionError",
    "UnavailableError",
    "UnknownTransactionError",
    "UnsupportedError",
    "open_broker",
]


def open_broker(
    address: str | os.PathLike[str],
    mode: str = "r",
    create: bool = False,
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    **options: Any,
) -> Broker:
    """Open a broker by its address: a store's path, `grpc://…`, or `rocketmq://…`.

    Args:
        address: `file:/path`, a bare path, `grpc://host:port`, `grpcs://host:port` or
            `rocketmq://nameserver:port,…`.
        mode: "r" changes nothing, ever; "rw" also writes.
        create: Make a store that does not exist; needs mode="rw".
        config: For a store: a broker.conf or a mapping with Apache's names. It decides the file
            sizes of a new store and must agree with the files of one that exists.
        options: Credentials and the like, for brokers behind a network.

    Raises:
        AddressError: The address is not one.
        StoreNotFoundError, FormatVersionError, ConfigError: There is no store, or not such a one.
    """
    from broker_core.clients.open import open_address

    return open_address(os.fspath(address), mode, create=create, config=config, options=options)


def __getattr__(name: str) -> object:
    # Loaded when asked for: opening a broker should not pay for the filter language.
    if name == "SqlFilter":
        from broker_core.filter.sqlfilter import SqlFilter

        return SqlFilter
    message = f"module 'broker_core' has no attribute {name!r}"
    raise AttributeError(message)
