"""Everything broker_core raises on purpose.

    BrokerError
      RequestError             the caller asked for something that can't be done as asked
        AddressError             a broker address that is not one
        ConfigError              a setting that is unknown, malformed or contradicts the files
        InvalidNameError         a topic or group name outside RocketMQ's alphabet or limits
        TopicNotFoundError
        TopicExistsError
        MessageNotFoundError
        OffsetRangeError         offsets outside what the queue holds; carries min and max
        FilterSyntaxError        carries line and column
        IllegalMessageError      a message that RocketMQ would refuse (too large, reserved name)
        UnsupportedError         a call that this kind of broker has no way to do
      StorageError             the files are not as they must be
        StoreNotFoundError
        CorruptRecordError       carries file, physical offset, expected and found
        FormatVersionError       a format that is recognised and not supported
        StoreLockedError
        DiskFullError
      TransactionError
        IllegalTransitionError   commit after rollback, or the like
        UnknownTransactionError
      AuthenticationError      no or wrong credentials
      PermissionDeniedError    right credentials without the permission
      UnavailableError         may work later (retryable)

Messages have one form: what, where, the numbers, what to do next.
"""

from __future__ import annotations

from pathlib import Path


class BrokerError(Exception):
    """Root of all errors that broker_core raises on purpose."""

    retryable = False


class RequestError(BrokerError):
    """The request itself is wrong; repeating it can't help."""


class AddressError(RequestError):
    """A broker address that can't be understood."""


class ConfigError(RequestError):
    """A setting that is malformed or contradicts the store's files."""


class InvalidNameError(RequestError):
    """A topic or group name that RocketMQ does not allow."""


class TopicNotFoundError(RequestError):
    """The topic does not exist on this broker."""


class TopicExistsError(RequestError):
    """The topic exists already."""


class MessageNotFoundError(RequestError):
    """No message has this id, or its file has been deleted."""


class OffsetRangeError(RequestError):
    """Offsets outside what the queue holds: `minimum` and `maximum` say what it does hold."""

    def __init__(self, message: str, minimum: int = -1, maximum: int = -1) -> None:
        super().__init__(message, minimum, maximum)
        self.minimum = minimum
        self.maximum = maximum

    def __str__(self) -> str:
        return str(self.args[0])


class FilterSyntaxError(RequestError):
    """A filter text that does not compile; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message, line, column)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return str(self.args[0])


class IllegalMessageError(RequestError):
    """A message that RocketMQ refuses to store."""


class UnsupportedError(RequestError):
    """This kind of broker can't do what was asked."""


class StorageError(BrokerError):
    """The store's files are missing, damaged, foreign, locked or full."""


class StoreNotFoundError(StorageError):
    """No store lies at this path."""


class CorruptRecordError(StorageError):
    """Bytes that contradict the format: `path` and `physical_offset` say where."""

    def __init__(self, message: str, path: Path | str = "", physical_offset: int = -1) -> None:
        super().__init__(message, str(path), physical_offset)
        self.path = str(path)
        self.physical_offset = physical_offset

    def __str__(self) -> str:
        return str(self.args[0])


class FormatVersionError(StorageError):
    """A store format that is recognised but not supported."""


class StoreLockedError(StorageError):
    """Another process writes to this store."""

    retryable = True


class DiskFullError(StorageError):
    """No space is left for an append; nothing of it was kept."""

    retryable = True


class TransactionError(BrokerError):
    """A transaction can't be moved as asked."""


class IllegalTransitionError(TransactionError):
    """The transaction is already decided the other way."""


class UnknownTransactionError(TransactionError):
    """No half message lies where the transaction says."""


class AuthenticationError(BrokerError):
    """No credentials, or wrong ones."""


class PermissionDeniedError(BrokerError):
    """The credentials are right but do not allow this."""


class UnavailableError(BrokerError):
    """The broker can't be reached or is busy; trying again may work."""

    retryable = True
