from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import DataSource

import pyspark_rocketmq
from broker_core.codec.schema import DEFAULT_COLUMNS
from pyspark_rocketmq.data_source import RocketMQDataSource
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.source.batch import RocketMQPushdownReader, RocketMQReader
from pyspark_rocketmq.source.schema import spark_schema

BASE = {"broker": "file:/nowhere", "subscribe": "t"}
SCHEMA = spark_schema(DEFAULT_COLUMNS)


def test_spark_finds_the_source_where_it_looks() -> None:
    assert pyspark_rocketmq.DefaultSource is RocketMQDataSource
    assert issubclass(pyspark_rocketmq.DefaultSource, DataSource)
    assert pyspark_rocketmq.DefaultSource.name() == "rocketmq"


def test_the_source_pickles() -> None:
    copy = pickle.loads(pickle.dumps(RocketMQDataSource(BASE)))

    assert copy.schema() == SCHEMA


def test_options_without_effect_are_named_in_the_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = RocketMQDataSource(
        BASE | {"maxOffsetPerTrigger": "3", "maxBytesPerTrigger": "3", "secretKeyy": "hush"}
    )

    source.schema()
    source.reader(SCHEMA)

    assert caplog.messages == [
        "Option maxoffsetpertrigger is unknown and ignored. Did you mean maxOffsetsPerTrigger?",
        "Option secretkeyy is unknown and ignored. Did you mean secretKey?",
        "Option maxBytesPerTrigger has no effect here and is ignored.",
    ]


def test_filters_are_only_taken_when_asked_for() -> None:
    plain = RocketMQDataSource(BASE).reader(SCHEMA)
    pushing = RocketMQDataSource(BASE | {"filterPushdown": "true"}).reader(SCHEMA)

    assert type(plain) is RocketMQReader
    assert type(pushing) is RocketMQPushdownReader


def test_filters_are_not_taken_where_spark_plans_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planner = "pyspark.sql.worker.plan_data_source_read"
    monkeypatch.setattr("sys.argv", ["daemon.py", planner])

    reader = RocketMQDataSource(BASE | {"filterPushdown": "true"}).reader(SCHEMA)

    assert type(reader) is RocketMQReader


def test_a_batch_refuses_what_a_batch_can_t_do() -> None:
    with pytest.raises(OptionError, match="START_IS_LATEST"):
        RocketMQDataSource(BASE | {"startingOffsets": "latest"}).reader(SCHEMA)
