"""Columns of a message: names, types and order are the contract's, as Spark gets them.

`property:NAME` makes one property a column of its own, called NAME.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from broker_core.errors import RequestError

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())

COLUMN_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "msgId": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "body": pa.binary(),
    "bornTimestamp": TIMESTAMP,
    "storeTimestamp": TIMESTAMP,
    "properties": PROPERTIES,
    "offsetMsgId": pa.string(),
    "physicalOffset": pa.int64(),
    "storeSize": pa.int32(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "bodyCrc": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
}
"""Every column, the ten default ones first."""

DEFAULT_COLUMNS = tuple(COLUMN_TYPES)[:10]
ALL_COLUMNS = tuple(COLUMN_TYPES)
PROPERTY_PREFIX = "property:"


def column_field(column: str) -> pa.Field:
    """Return name and type of a requested column; RequestError for one that does not exist."""
    if column.startswith(PROPERTY_PREFIX) and len(column) > len(PROPERTY_PREFIX):
        return pa.field(column[len(PROPERTY_PREFIX) :], pa.string())
    if column not in COLUMN_TYPES:
        known = ", ".join(COLUMN_TYPES)
        message = f"There is no column '{column}'. Columns are {known}, and property:NAME."
        raise RequestError(message)
    return pa.field(column, COLUMN_TYPES[column])


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of requested columns."""
    return pa.schema([column_field(column) for column in columns])
