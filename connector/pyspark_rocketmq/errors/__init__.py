"""Every error that the connector raises on purpose.

    ConnectorError
      OptionError              an option, or a combination of options, that can't be used
      SchemaError              columns that do not exist, or a schema that is not the source's
      CheckpointError          a checkpoint that another source wrote
      DataLossError            messages that a query still needed are gone
      SubscriptionError        a topic named by an option does not exist
      BrokerUnavailableError   the broker did not answer in all attempts (retryable)
      BrokerFailedError        the broker answered with an error that repeating can't cure
      WriteError               the sink refused rows or could not deliver them

An error is (condition, parameters), both plain values, so it pickles and can be logged as data.
Spark turns it into text on the way to the user, hence `str(error)` stands alone: the condition in
brackets, what happened, where, the numbers, the next step, the SQLSTATE.

A `raise` site never writes a sentence. It calls the one function of its condition, by area:

    option_errors    ROCKETMQ_OPTION, ROCKETMQ_OFFSETS, ROCKETMQ_SCHEMA
    source_errors    ROCKETMQ_DATA_LOSS, ROCKETMQ_AVAILABLE_NOW, ROCKETMQ_CHECKPOINT
    broker_errors    ROCKETMQ_BROKER, ROCKETMQ_TOPIC_NOT_FOUND
    sink_errors      ROCKETMQ_SINK

The sentences are data, in pyspark_rocketmq/conditions.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark_rocketmq.conditions import CATALOGUE

SHOWN_CHARS = 300
SHOWN_ITEMS = 10


class ConnectorError(Exception):
    """A condition of the catalogue and its parameters."""

    retryable = False

    def __init__(self, condition: str, parameters: Mapping[str, object]) -> None:
        super().__init__(condition, dict(parameters))
        self.condition = condition
        self.parameters = dict(parameters)

    @property
    def sqlstate(self) -> str:
        """The SQLSTATE: five characters that SQL tools know."""
        return CATALOGUE[self.condition].sqlstate

    @property
    def message(self) -> str:
        """The sentence without condition and SQLSTATE."""
        return CATALOGUE[self.condition].message.format_map(self.parameters)

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message} SQLSTATE: {self.sqlstate}"


class OptionError(ConnectorError):
    """An option, or a combination of options, that can't be used."""


class SchemaError(ConnectorError):
    """Columns that do not exist, or a schema that is not the source's."""


class CheckpointError(ConnectorError):
    """A checkpoint that this source did not write."""


class DataLossError(ConnectorError):
    """Messages that a query still needed are gone."""


class SubscriptionError(ConnectorError):
    """The subscription names a topic that does not exist."""


class BrokerUnavailableError(ConnectorError):
    """The broker did not answer in all attempts; a later run may succeed."""

    retryable = True


class BrokerFailedError(ConnectorError):
    """The broker answered with an error that repeating can't cure."""


class WriteError(ConnectorError):
    """The sink refused rows or could not deliver them."""


def shown(text: object) -> str:
    """Return a value on one line, cut to 300 characters, as messages show it."""
    line = " ".join(str(text).split())
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}… ({len(line)} characters)"


def listed(items: Iterable[Any]) -> str:
    """Return items sorted, the first ten by name and the rest as a number, as messages show them.

    >>> listed(range(12))
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more'
    """
    ordered = [str(item) for item in sorted(items)]
    more = len(ordered) - SHOWN_ITEMS
    return (", ".join(ordered[:SHOWN_ITEMS]) or "none") + (f" and {more} more" if more > 0 else "")
