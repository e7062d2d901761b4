"""The columns of the source and their Spark types.

Ten columns come by default; others are named in the option `columns`, where `property:NAME` is one
property of the message as a column of its own. Every column is nullable, because Spark's Arrow
reader takes nothing else from a Python source.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from broker_core.codec.schema import COLUMN_TYPES, PROPERTY_PREFIX, TIMESTAMP
from pyspark_rocketmq.errors import option_errors

PROPERTIES = "properties"

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    TIMESTAMP: TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType()),
}


def parse_columns(text: str) -> tuple[str, ...]:
    """Parse a comma list of columns, in its order.

    >>> parse_columns("body, property:region")
    ('body', 'property:region')
    """
    columns = tuple(item.strip() for item in text.split(",") if item.strip())
    for column in columns:
        if column not in COLUMN_TYPES and not _is_property(column):
            nearest = difflib.get_close_matches(column, COLUMN_TYPES, n=1)
            known = [*COLUMN_TYPES, f"{PROPERTY_PREFIX}NAME"]
            raise option_errors.schema_unknown_column(
                column, nearest[0] if nearest else None, known
            )
    found = [column_name(column) for column in columns]
    for name in found:
        if found.count(name) > 1:
            raise option_errors.schema_duplicate_column(name)
    return columns


def column_name(column: str) -> str:
    """Return the column's name in the DataFrame: `property:region` is `region`."""
    return column.removeprefix(PROPERTY_PREFIX)


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the source's schema for some columns."""
    return StructType(
        [
            StructField(column_name(each), _SPARK_TYPES[COLUMN_TYPES.get(each, pa.string())])
            for each in columns
        ]
    )


def check_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Refuse a schema that is not the source's, and say where they differ."""
    expected = spark_schema(columns)
    for theirs, ours in zip(schema.fields, expected.fields, strict=False):
        if theirs.name != ours.name:
            raise option_errors.schema_differs(f"'{theirs.name}' stands where '{ours.name}' is")
        if theirs.dataType != ours.dataType:
            raise option_errors.schema_differs(
                f"'{ours.name}' is {ours.dataType.simpleString()}, not "
                f"{theirs.dataType.simpleString()}"
            )
        if not theirs.nullable:
            raise option_errors.schema_differs(f"'{ours.name}' is nullable")
    if len(schema) < len(expected):
        missing = expected.fields[len(schema) :]
        raise option_errors.schema_differs(f"it lacks {_quoted(missing)}")
    if len(schema) > len(expected):
        extra = schema.fields[len(expected) :]
        raise option_errors.schema_differs(f"there is no {_quoted(extra)}")


def _is_property(column: str) -> bool:
    return column.startswith(PROPERTY_PREFIX) and len(column) > len(PROPERTY_PREFIX)


def _quoted(fields: Sequence[StructField]) -> str:
    return ", ".join(f"'{field.name}'" for field in fields)
