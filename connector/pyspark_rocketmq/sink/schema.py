"""The columns of the sink: which of a DataFrame's columns becomes which part of a message.

Names match exactly; other columns are ignored. `writer.py` calls `sink_columns` on the driver, so
that a wrong column is refused before any task runs; single rows are checked in rows.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from pyspark_rocketmq.errors import sink_errors
from pyspark_rocketmq.options import names

BODY, TOPIC, TAGS, KEYS = "body", "topic", "tags", "keys"
PROPERTIES, QUEUE_ID = "properties", "queueId"
SHARDING_KEY, DELAY_LEVEL = "shardingKey", "delayLevel"

ALIASES = {BODY: "value", KEYS: "key"}
"""Names that the Kafka sink gives these columns."""


@dataclass(frozen=True)
class SinkColumns:
    """The DataFrame's column for each part of a message; None where it has none."""

    body: str
    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    properties: str | None = None
    queue_id: str | None = None
    sharding_key: str | None = None
    delay_level: str | None = None


def sink_columns(schema: StructType, topic_option: str | None) -> SinkColumns:
    """Find and check the columns of a message; SchemaError names the one that is wrong.

    With the option `topic` the column of that name is not even looked at.
    """
    body = _column(schema, BODY, "binary or string", _is_text_or_bytes)
    if body is None:
        purpose = f"it (or '{ALIASES[BODY]}') is the message itself."
        raise sink_errors.column_missing(BODY, purpose, schema.fieldNames())
    topic = None if topic_option else _column(schema, TOPIC, "string", _is_text)
    if topic is None and not topic_option:
        purpose = f"it says where each message goes, unless the option {names.TOPIC} does."
        raise sink_errors.column_missing(TOPIC, purpose, schema.fieldNames())
    return SinkColumns(
        body=body,
        topic=topic,
        tags=_column(schema, TAGS, "string", _is_text),
        keys=_column(schema, KEYS, "string or array<string>", _is_text_or_texts),
        properties=_column(schema, PROPERTIES, "map<string,string>", _is_properties),
        queue_id=_column(schema, QUEUE_ID, "int", _is_int),
        sharding_key=_column(schema, SHARDING_KEY, "string", _is_text),
        delay_level=_column(schema, DELAY_LEVEL, "int", _is_int),
    )


def _column(
    schema: StructType, name: str, expected: str, is_right: Callable[[DataType], bool]
) -> str | None:
    """Return the column of a name or its alias, checked for its type; None if there is none."""
    fields = {field.name: field for field in schema.fields}
    alias = ALIASES.get(name)
    if name in fields and alias in fields:
        raise sink_errors.column_twice(name, str(alias))
    found = fields.get(name) or fields.get(alias or name)
    if found is None:
        return None
    if not is_right(found.dataType):
        raise sink_errors.column_type(found.name, found.dataType.simpleString(), expected)
    return found.name


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_text_or_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_text_or_texts(kind: DataType) -> bool:
    return _is_text(kind) or (isinstance(kind, ArrayType) and _is_text(kind.elementType))


def _is_int(kind: DataType) -> bool:
    return isinstance(kind, IntegerType)


def _is_properties(kind: DataType) -> bool:
    """Return True for a map of text to text, or for an array of pairs, as Kafka's headers are."""
    if isinstance(kind, MapType):
        return _is_text(kind.keyType) and _is_text(kind.valueType)
    if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
        return False
    pair = kind.elementType.fields
    return (
        [field.name for field in pair] == ["key", "value"]
        and _is_text(pair[0].dataType)
        and _is_text_or_bytes(pair[1].dataType)
    )
