from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from broker_core.codec.schema import ALL_COLUMNS, DEFAULT_COLUMNS, schema_of
from pyspark_rocketmq.errors import SchemaError
from pyspark_rocketmq.source.schema import check_schema, parse_columns, spark_schema


def test_the_ten_default_columns_have_the_promised_names_and_types() -> None:
    assert spark_schema(DEFAULT_COLUMNS).simpleString() == (
        "struct<topic:string,brokerName:string,queueId:int,queueOffset:bigint,msgId:string,"
        "tags:string,keys:string,body:binary,bornTimestamp:timestamp,storeTimestamp:timestamp>"
    )


def test_the_other_columns_have_the_promised_types() -> None:
    others = spark_schema([name for name in ALL_COLUMNS if name not in DEFAULT_COLUMNS])

    assert others.simpleString() == (
        "struct<properties:map<string,string>,offsetMsgId:string,physicalOffset:bigint,"
        "storeSize:int,bornHost:string,storeHost:string,flag:int,sysFlag:int,reconsumeTimes:int,"
        "bodyCrc:int,preparedTransactionOffset:bigint>"
    )


def test_arrow_batches_have_exactly_the_schema_spark_checks_for() -> None:
    columns = (*ALL_COLUMNS, "property:region")

    spark_s = to_arrow_schema(spark_schema(columns), timezone="UTC")

    assert spark_s.equals(schema_of(columns))


def test_every_column_is_nullable() -> None:
    assert all(field.nullable for field in spark_schema(ALL_COLUMNS).fields)


def test_columns_keep_their_order_and_lose_blanks() -> None:
    assert parse_columns(" body ,property:a b,, queueId") == ("body", "property:a b", "queueId")


def test_a_property_column_is_named_after_the_property() -> None:
    schema = spark_schema(("property:region",))

    assert schema == StructType([StructField("region", StringType())])


def test_an_unknown_column_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(SchemaError, match=r"'queueoffset'.*Did you mean 'queueOffset'"):
        parse_columns("body,queueoffset")


@pytest.mark.parametrize("text", ["body,body", "topic,property:topic"])
def test_two_columns_of_one_name_are_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="DUPLICATE_COLUMN"):
        parse_columns(text)


def test_a_schema_equal_to_the_source_s_is_accepted() -> None:
    check_schema(spark_schema(DEFAULT_COLUMNS), DEFAULT_COLUMNS)


@pytest.mark.parametrize(
    ("given", "difference"),
    [
        ("topic STRING", "it lacks 'queueId'"),
        ("topic STRING, queueId INT, extra INT", "there is no 'extra'"),
        ("topic STRING, queueId BIGINT", "'queueId' is int, not bigint"),
        ("queueId INT, topic STRING", "'queueId' stands where 'topic' is"),
        ("topic STRING, queueId INT NOT NULL", "'queueId' is nullable"),
        ("topic STRING, queueid INT", "'queueid' stands where 'queueId' is"),
    ],
)
def test_another_schema_is_refused_with_the_difference(given: str, difference: str) -> None:
    schema = StructType([_field(column) for column in given.split(", ")])

    with pytest.raises(SchemaError, match=difference):
        check_schema(schema, ("topic", "queueId"))


def _field(text: str) -> StructField:
    name, kind, *rest = text.split()
    types = {"STRING": StringType(), "INT": spark_schema(["queueId"])[0].dataType}
    return StructField(name, types.get(kind, LongType()), not rest)
