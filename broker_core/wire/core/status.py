"""Errors and gRPC status codes: one table each way.

A broker's error travels as a status code, for clients that know only gRPC, and as an ErrorDetail in
the trailing metadata, from which our client makes the error again with its class, message and
numbers. Codes without a detail come from gRPC itself (no connection, deadline, a proxy in between)
and have a table of their own.
"""

from __future__ import annotations

from typing import Any

import grpc

from broker_core import errors
from broker_core.wire.core import broker_pb2 as pb

DETAIL_KEY = "rocketmq-error-bin"
MAX_MESSAGE_CHARS = 2000
"""Metadata must stay small: beyond 8 KiB gRPC refuses the whole answer."""

Code = grpc.StatusCode

TO_CODE: dict[type[errors.BrokerError], grpc.StatusCode] = {
    errors.BrokerError: Code.INTERNAL,
    errors.RequestError: Code.INVALID_ARGUMENT,
    errors.AddressError: Code.INVALID_ARGUMENT,
    errors.ConfigError: Code.INVALID_ARGUMENT,
    errors.InvalidNameError: Code.INVALID_ARGUMENT,
    errors.TopicNotFoundError: Code.NOT_FOUND,
    errors.TopicExistsError: Code.ALREADY_EXISTS,
    errors.MessageNotFoundError: Code.NOT_FOUND,
    errors.OffsetRangeError: Code.OUT_OF_RANGE,
    errors.FilterSyntaxError: Code.INVALID_ARGUMENT,
    errors.IllegalMessageError: Code.INVALID_ARGUMENT,
    errors.UnsupportedError: Code.UNIMPLEMENTED,
    errors.StorageError: Code.INTERNAL,
    errors.StoreNotFoundError: Code.FAILED_PRECONDITION,
    errors.CorruptRecordError: Code.DATA_LOSS,
    errors.FormatVersionError: Code.FAILED_PRECONDITION,
    errors.StoreLockedError: Code.UNAVAILABLE,
    errors.DiskFullError: Code.RESOURCE_EXHAUSTED,
    errors.TransactionError: Code.FAILED_PRECONDITION,
    errors.IllegalTransitionError: Code.FAILED_PRECONDITION,
    errors.BatchConflictError: Code.FAILED_PRECONDITION,
    errors.BatchGapError: Code.FAILED_PRECONDITION,
    errors.BatchLostError: Code.DATA_LOSS,
    errors.UnknownTransactionError: Code.NOT_FOUND,
    errors.AuthenticationError: Code.UNAUTHENTICATED,
    errors.PermissionDeniedError: Code.PERMISSION_DENIED,
    errors.UnavailableError: Code.UNAVAILABLE,
}
"""Code of each error. Every class has a row, which a test checks: none can be forgotten."""

FROM_CODE: dict[grpc.StatusCode, type[errors.BrokerError]] = {
    Code.OK: errors.BrokerError,
    Code.CANCELLED: errors.UnavailableError,
    Code.UNKNOWN: errors.BrokerError,
    Code.INVALID_ARGUMENT: errors.RequestError,
    Code.DEADLINE_EXCEEDED: errors.UnavailableError,
    Code.NOT_FOUND: errors.RequestError,
    Code.ALREADY_EXISTS: errors.RequestError,
    Code.PERMISSION_DENIED: errors.PermissionDeniedError,
    Code.UNAUTHENTICATED: errors.AuthenticationError,
    Code.RESOURCE_EXHAUSTED: errors.UnavailableError,
    Code.FAILED_PRECONDITION: errors.RequestError,
    Code.ABORTED: errors.UnavailableError,
    Code.UNIMPLEMENTED: errors.UnsupportedError,
    Code.OUT_OF_RANGE: errors.RequestError,
    Code.INTERNAL: errors.BrokerError,
    Code.UNAVAILABLE: errors.UnavailableError,
    Code.DATA_LOSS: errors.StorageError,
}
"""Error for each code that comes without a detail."""

_BY_NAME = {kind.__name__: kind for kind in TO_CODE}
_NUMBERS: dict[type[errors.BrokerError], tuple[str, ...]] = {
    errors.OffsetRangeError: ("minimum", "maximum"),
    errors.FilterSyntaxError: ("line", "column"),
    errors.CorruptRecordError: ("physical_offset",),
}


def code_of(error: errors.BrokerError) -> grpc.StatusCode:
    """Return the status code of an error; a class without a row has its parent's."""
    return TO_CODE[_known(error)]


def detail_of(error: errors.BrokerError) -> bytes:
    """Return the ErrorDetail from which the client makes the error again."""
    kind = _known(error)
    return pb.ErrorDetail(
        condition=kind.__name__,
        message=str(error)[:MAX_MESSAGE_CHARS],
        numbers=[getattr(error, name) for name in _NUMBERS.get(kind, ())],
        path=getattr(error, "path", ""),
    ).SerializeToString()


def error_of(detail: bytes) -> errors.BrokerError:
    """Return the error of an ErrorDetail; a BrokerError for an unknown condition."""
    parsed = pb.ErrorDetail.FromString(detail)
    kind = _BY_NAME.get(parsed.condition, errors.BrokerError)
    arguments: list[Any] = [parsed.message]
    if kind is errors.CorruptRecordError:
        arguments.append(parsed.path)
    if len(parsed.numbers) == len(_NUMBERS.get(kind, ())):
        arguments += parsed.numbers
    return kind(*arguments)


def foreign_error(code: grpc.StatusCode, words: str) -> errors.BrokerError:
    """Return the error for a status without a detail."""
    return FROM_CODE[code](words)


def _known(error: errors.BrokerError) -> type[errors.BrokerError]:
    return next(kind for kind in type(error).__mro__ if kind in TO_CODE)
