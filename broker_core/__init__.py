"""RocketMQ's store and broker core, without Spark: one call opens any kind of broker.

    from broker_core import open_broker, SqlFilter

`__all__` is the public surface: `open_broker`, the protocols of api.py, the types that they
mention, and every error. All other names may change. Errors and plain types are loaded with this
module; whatever needs NumPy, Arrow, Numba or gRPC is loaded when it is asked for.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker_core.errors import (
    AddressError,
    AuthenticationError,
    BatchConflictError,
    BatchGapError,
    BatchLostError,
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
    AppendResult,
    BatchOutcome,
    BatchRef,
    CheckBackReport,
    ColumnBatch,
    Conflict,
    Flush,
    HalfMessage,
    LocalTransactionState,
    LogicalOffset,
    Mode,
    OffsetRange,
    PhysicalOffset,
    Prepared,
    QueueRef,
    Receipt,
    SendResult,
    TopicInfo,
)

if TYPE_CHECKING:
    from typing import Unpack

    from broker_core.api import (
        Broker,
        BrokerTransactions,
        CountingBroker,
        LocalBroker,
        ProjectingBroker,
        TransactionalBroker,
        TransactionListener,
        WaitingBroker,
    )
    from broker_core.broker.transactions.producer import TransactionalProducer
    from broker_core.clients.open import BrokerOptions
    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.filter.pipeline import FilterCount, MessageFilter
    from broker_core.filter.sqlfilter import SqlFilter

__all__ = [
    "AddressError",
    "AppendResult",
    "AuthenticationError",
    "BatchConflictError",
    "BatchGapError",
    "BatchLostError",
    "BatchOutcome",
    "BatchRef",
    "Broker",
    "BrokerError",
    "BrokerOptions",
    "BrokerTransactions",
    "CheckBackReport",
    "ColumnBatch",
    "ConfigError",
    "Conflict",
    "CorruptRecordError",
    "CountingBroker",
    "DiskFullError",
    "FilterCount",
    "FilterSyntaxError",
    "Flush",
    "FormatVersionError",
    "FrameBatch",
    "HalfMessage",
    "IllegalMessageError",
    "IllegalTransitionError",
    "InvalidNameError",
    "LocalBroker",
    "LocalTransactionState",
    "LogicalOffset",
    "MessageBatch",
    "MessageFilter",
    "MessageNotFoundError",
    "Mode",
    "OffsetRange",
    "OffsetRangeError",
    "PermissionDeniedError",
    "PhysicalOffset",
    "Prepared",
    "ProjectingBroker",
    "QueueRef",
    "Receipt",
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
    "TransactionListener",
    "TransactionalBroker",
    "TransactionalProducer",
    "UnavailableError",
    "UnknownTransactionError",
    "UnsupportedError",
    "WaitingBroker",
    "open_broker",
]

_HOMES = {
    "Broker": "broker_core.api",
    "BrokerOptions": "broker_core.clients.open",
    "BrokerTransactions": "broker_core.api",
    "CountingBroker": "broker_core.api",
    "FilterCount": "broker_core.filter.pipeline",
    "FrameBatch": "broker_core.codec.frames",
    "LocalBroker": "broker_core.api",
    "MessageBatch": "broker_core.codec.message_batch",
    "MessageFilter": "broker_core.filter.pipeline",
    "ProjectingBroker": "broker_core.api",
    "SqlFilter": "broker_core.filter.sqlfilter",
    "TransactionListener": "broker_core.api",
    "TransactionalBroker": "broker_core.api",
    "TransactionalProducer": "broker_core.broker.transactions.producer",
    "WaitingBroker": "broker_core.api",
}
"""The module of every name that is loaded when it is asked for."""


def open_broker(
    address: str | os.PathLike[str],
    mode: Mode = "r",
    create: bool = False,
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    **options: Unpack[BrokerOptions],
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
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found  # the next look does not come here
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
