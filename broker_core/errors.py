"""The errors of broker_core: everything that it raises on purpose.

    BrokerError
    ├── RequestError               the request is wrong; repeating it can't help
    │   ├── AddressError             no broker address, or one that can't be understood
    │   ├── ConfigError              a setting is unknown, malformed or contradicts the files
    │   ├── InvalidNameError         a topic or group name outside RocketMQ's alphabet or limits
    │   ├── TopicNotFoundError       no such topic
    │   ├── TopicExistsError         the topic exists already
    │   ├── MessageNotFoundError     no message has this id, or its file was deleted
    │   ├── OffsetRangeError         offsets outside the queue; has `minimum` and `maximum`
    │   ├── FilterSyntaxError        a filter does not compile; has `line` and `column`
    │   ├── IllegalMessageError      RocketMQ refuses the message (too large, reserved name)
    │   └── UnsupportedError         this kind of broker has no way to do it
    ├── StorageError               the files are not as they must be
    │   ├── StoreNotFoundError       no store at this path
    │   ├── CorruptRecordError       bytes contradict the format; has `path`, `physical_offset`
    │   ├── FormatVersionError       a format that is recognised and not supported
    │   ├── StoreLockedError         another process writes to the store (retryable)
    │   └── DiskFullError            no space for an append (retryable)
    ├── TransactionError           a transaction can't be moved as asked
    │   ├── IllegalTransitionError   it was settled the other way
    │   └── UnknownTransactionError  there is no such half message
    ├── AuthenticationError        no credentials, or wrong ones
    ├── PermissionDeniedError      the credentials are right but do not allow this
    └── UnavailableError           not reachable or busy; may work later (retryable)

Messages have one form: what, where, the numbers, what to do next.
"""

from __future__ import annotations

from pathlib import Path


class BrokerError(Exception):
    """The root of all errors that broker_core raises on purpose.

    `retryable`: the same call may succeed later.
    """

    retryable = False


class RequestError(BrokerError):
    """The request itself is wrong; repeating it can't help."""


class AddressError(RequestError):
    """The broker address can't be understood."""


class ConfigError(RequestError):
    """A setting is unknown, malformed or contradicts the store's files."""


class InvalidNameError(RequestError):
    """RocketMQ does not allow this topic or group name."""


class TopicNotFoundError(RequestError):
    """The topic does not exist on this broker."""


class TopicExistsError(RequestError):
    """The topic exists already."""


class MessageNotFoundError(RequestError):
    """No message has this id, or its file has been deleted."""


class OffsetRangeError(RequestError):
    """The queue does not hold these offsets, but those from `minimum` to `maximum`."""

    def __init__(self, message: str, minimum: int = -1, maximum: int = -1) -> None:
        super().__init__(message, minimum, maximum)
        self.minimum = minimum
        self.maximum = maximum

    def __str__(self) -> str:
        return str(self.args[0])


class FilterSyntaxError(RequestError):
    """The filter does not compile; `line` and `column`, from 1 on, say where."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message, line, column)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return str(self.args[0])


class IllegalMessageError(RequestError):
    """RocketMQ refuses to store this message."""


class UnsupportedError(RequestError):
    """This kind of broker has no way to do what was asked."""


class StorageError(BrokerError):
    """The store's files are missing, damaged, foreign, locked or full."""


class StoreNotFoundError(StorageError):
    """There is no store at this path."""


class CorruptRecordError(StorageError):
    """Bytes contradict the format; `path` and `physical_offset` say where."""

    def __init__(self, message: str, path: Path | str = "", physical_offset: int = -1) -> None:
        super().__init__(message, str(path), physical_offset)
        self.path = str(path)
        self.physical_offset = physical_offset

    def __str__(self) -> str:
        return str(self.args[0])


class FormatVersionError(StorageError):
    """The store's format is recognised but not supported."""


class StoreLockedError(StorageError):
    """Another process writes to this store."""

    retryable = True


class DiskFullError(StorageError):
    """There is no space for an append; nothing of it was kept."""

    retryable = True


class TransactionError(BrokerError):
    """A transaction can't be moved as asked."""


class IllegalTransitionError(TransactionError):
    """The transaction was settled the other way before."""


class BatchConflictError(TransactionError):
    """Another batch was committed under this number, or one with a later number."""


class BatchGapError(TransactionError):
    """The store lacks the batch before this one: it is older than what writes to it believes."""


class BatchLostError(TransactionError):
    """Half messages of a committed batch are gone, so part of it can't become visible."""


class UnknownTransactionError(TransactionError):
    """There is no half message where the transaction says."""


class AuthenticationError(BrokerError):
    """Credentials are missing or wrong."""


class PermissionDeniedError(BrokerError):
    """The credentials are right but do not allow this."""


class UnavailableError(BrokerError):
    """The broker can't be reached or is busy; trying again may work."""

    retryable = True
