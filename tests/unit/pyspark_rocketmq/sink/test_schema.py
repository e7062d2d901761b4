from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from pyspark_rocketmq.errors import SchemaError
from pyspark_rocketmq.sink.schema import SinkColumns, sink_columns

TEXT, INT = StringType(), IntegerType()
TYPES: dict[str, DataType] = {
    "string": TEXT,
    "binary": BinaryType(),
    "int": INT,
    "bigint": LongType(),
    "double": DoubleType(),
    "array<string>": ArrayType(TEXT),
    "array<int>": ArrayType(INT),
    "map<string,string>": MapType(TEXT, TEXT),
    "map<string,int>": MapType(TEXT, INT),
    "array<struct<k:string,v:string>>": ArrayType(StructType().add("k", TEXT).add("v", TEXT)),
    "headers": ArrayType(StructType().add("key", TEXT).add("value", BinaryType())),
    "pairs": ArrayType(StructType().add("key", TEXT).add("value", TEXT)),
}


def columns(fields: str, topic: str | None = "orders") -> SinkColumns:
    schema = StructType()
    for field in fields.split("; "):
        name, kind = field.split()
        schema = schema.add(name, TYPES[kind])
    return sink_columns(schema, topic)


def refusal(fields: str, topic: str | None = "orders") -> str:
    with pytest.raises(SchemaError) as caught:
        columns(fields, topic)
    return str(caught.value)


def test_every_column_of_a_message_is_found_by_its_name() -> None:
    fields = (
        "body binary; topic string; tags string; keys array<string>; queueId int; "
        "properties map<string,string>; shardingKey string; delayLevel int; other double"
    )

    found = columns(fields, topic=None)

    assert found == SinkColumns(
        "body", "topic", "tags", "keys", "properties", "queueId", "shardingKey", "delayLevel"
    )


def test_kafkas_names_are_understood() -> None:
    found = columns("key string; value string")

    assert (found.body, found.keys) == ("value", "key")


@pytest.mark.parametrize(
    "fields", ["body string; value string", "body binary; keys string; key string"]
)
def test_a_column_under_both_names_is_refused(fields: str) -> None:
    assert "ROCKETMQ_SINK.COLUMN_TWICE" in refusal(fields)


def test_names_match_exactly() -> None:
    assert "ROCKETMQ_SINK.COLUMN_MISSING" in refusal("Body string")


def test_a_missing_body_is_refused_with_the_columns_that_are_there() -> None:
    text = refusal("id int; text string")

    assert "'body'" in text
    assert "id, text" in text


def test_a_missing_topic_is_refused_unless_the_option_says_it() -> None:
    assert "unless the option topic" in refusal("body string", topic=None)
    assert columns("body string").topic is None


def test_with_the_option_topic_the_column_is_not_looked_at() -> None:
    assert columns("body string; topic int").topic is None


@pytest.mark.parametrize(
    "column",
    [
        "topic int",
        "tags array<string>",
        "keys binary",
        "keys array<int>",
        "queueId bigint",
        "properties map<string,int>",
        "properties array<struct<k:string,v:string>>",
        "properties string",
        "shardingKey int",
        "delayLevel string",
    ],
)
def test_a_column_of_a_wrong_type_is_refused_with_both_types(column: str) -> None:
    name, kind = column.split()

    others = "body string" if name == "topic" else "body string; topic string"
    text = refusal(f"{others}; {column}", None)

    assert "ROCKETMQ_SINK.COLUMN_TYPE" in text
    assert f"'{name}' is {kind}" in text


def test_a_body_must_be_text_or_bytes() -> None:
    assert "'body' is int, but the sink takes binary or string" in refusal("body int")


@pytest.mark.parametrize("kind", ["headers", "pairs"])
def test_properties_may_be_pairs_as_kafkas_headers_are(kind: str) -> None:
    found = columns(f"body string; properties {kind}")

    assert found.properties == "properties"
