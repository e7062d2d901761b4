"""What a user sees when a DataFrame is built: the schema, or an error with its condition."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

BASE = {"broker": "file:/nowhere", "subscribe": "orders"}
TEN = (
    "struct<topic:string,brokerName:string,queueId:int,queueOffset:bigint,msgId:string,"
    "tags:string,keys:string,body:binary,bornTimestamp:timestamp,storeTimestamp:timestamp>"
)


def test_the_source_is_found_by_name_without_registration(spark: SparkSession) -> None:
    batch = spark.read.format("rocketmq").options(**BASE).load()
    stream = spark.readStream.format("RocketMQ").options(**BASE).load()

    assert batch.schema.simpleString() == TEN
    assert stream.schema.simpleString() == TEN
    assert stream.isStreaming


def test_columns_are_chosen_by_option(spark: SparkSession) -> None:
    options = BASE | {"columns": "body,property:region,queueOffset"}

    frame = spark.read.format("rocketmq").options(**options).load()

    assert frame.schema.simpleString() == "struct<body:binary,region:string,queueOffset:bigint>"


@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"broker": "file:/s"}, ["[ROCKETMQ_OPTION.NO_STRATEGY]", "subscribePattern", "42616"]),
        (
            {"kafka.bootstrap.servers": "h:1", "subscribe": "t"},
            ["[ROCKETMQ_OPTION.MISSING] Option broker is required"],
        ),
        (BASE | {"startingOffsets": "{"}, ["[ROCKETMQ_OPTION.INVALID] Option startingOffsets"]),
        (BASE | {"columns": "bodi"}, ["[ROCKETMQ_SCHEMA.UNKNOWN_COLUMN]", "Did you mean 'body'"]),
        (BASE | {"sql": "a >"}, ["[ROCKETMQ_OPTION.INVALID_FILTER] Option sql", "^"]),
    ],
    ids=["nothing chosen", "no broker", "bad offsets", "bad column", "bad filter"],
)
def test_a_bad_option_fails_at_load_with_its_condition(
    spark: SparkSession, options: dict[str, str], texts: list[str], is_stream: bool
) -> None:
    reader = spark.readStream if is_stream else spark.read

    with pytest.raises(AnalysisException) as caught:
        reader.format("rocketmq").options(**options).load()

    message = str(caught.value)
    assert "PYTHON_DATA_SOURCE_ERROR" in message
    assert all(text in message for text in texts), message


def test_credentials_in_an_address_are_refused_unprinted(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("rocketmq").load(broker="grpc://me:hush@h:1", subscribe="t")

    assert "INVALID_ADDRESS" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "[ROCKETMQ_OFFSETS.START_IS_LATEST]"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "latest (-1) for orders/0"),
    ],
)
def test_what_only_a_batch_refuses_fails_at_the_first_action(
    spark: SparkSession, options: dict[str, str], text: str
) -> None:
    frame = spark.read.format("rocketmq").options(**BASE, **options).load()

    with pytest.raises(AnalysisException) as caught:
        frame.collect()

    assert text in str(caught.value)


def test_a_schema_that_is_not_the_source_s_is_refused_with_the_difference(
    spark: SparkSession,
) -> None:
    frame = spark.read.format("rocketmq").schema("topic STRING, queueId BIGINT")

    with pytest.raises(AnalysisException) as caught:
        frame.load(**BASE, columns="topic,queueId").collect()

    assert "[ROCKETMQ_SCHEMA.DIFFERS]" in str(caught.value)
    assert "'queueId' is int, not bigint" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"endingOffsets": "latest"}, None, "[ROCKETMQ_OPTION.NOT_IN_STREAM] Option endingOffsets"),
        ({"endingTimestamp": "5"}, None, "Option endingTimestamp is not valid in a streaming"),
        ({}, "topic STRING", "[ROCKETMQ_SCHEMA.DIFFERS]"),
    ],
    ids=["ending offsets", "ending timestamp", "other schema"],
)
def test_what_only_a_stream_refuses_fails_the_query_with_one_clear_error(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], schema: str | None, text: str
) -> None:
    reader = spark.readStream.format("rocketmq").options(**BASE, **options)
    frame = (reader.schema(schema) if schema else reader).load()

    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        query.awaitTermination(60)

    assert text in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)
