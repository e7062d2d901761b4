"""The stream reader as Spark treats it, without Spark: pickled, called in order, one JSON away."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource_internal import ReadLimitRegistry
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from broker_core.codec.schema import DEFAULT_COLUMNS
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.data_source import RocketMQDataSource
from pyspark_rocketmq.errors import ConnectorError, OptionError, SchemaError
from pyspark_rocketmq.source.partition import QueuePartition
from pyspark_rocketmq.source.schema import spark_schema
from pyspark_rocketmq.source.stream import RocketMQStreamReader
from tests.kit.source_store import SourceStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SourceStore]:
    store = SourceStore(tmp_path / "store")
    store.create("t")
    store.numbers("t", range(10))
    yield store
    store.close()


def reader(store: SourceStore, **options: str) -> Any:
    texts = store.options(subscribe="t", columns="body", **options)
    lowered = {key.lower(): value for key, value in texts.items()}  # Spark's way with keys
    return RocketMQDataSource(lowered).streamReader(spark_schema(("body",)))


def through_json(value: object) -> Any:
    return json.loads(json.dumps(value))


def read_all(planner: Any, worker: Any, start: object, end: object) -> list[bytes]:
    partitions = planner.partitions(through_json(start), through_json(end))
    copies = pickle.loads(pickle.dumps(partitions))
    batches = [batch for each in copies for batch in worker.read(each)]
    return sorted(body for batch in batches for body in batch["body"].to_pylist())


def test_a_batch_is_planned_here_and_read_there(store: SourceStore) -> None:
    planner = reader(store, startingOffsets="earliest")
    worker = pickle.loads(pickle.dumps(reader(store, startingOffsets="earliest")))

    start = planner.initialOffset()
    end = planner.latestOffset(through_json(start), planner.getDefaultReadLimit())

    assert through_json(end) == {"t": {"broker-a": {"0": 5, "1": 5}}, "@start": start}
    assert read_all(planner, worker, start, end) == sorted(b"t-%d" % n for n in range(10))
    assert planner.reportLatestOffset() == {"t": end["t"]}
    planner.commit(through_json(end))
    planner.stop()


def test_a_planned_batch_gives_the_same_rows_whenever_it_is_read(store: SourceStore) -> None:
    planner = reader(store, startingOffsets="earliest")
    start = planner.initialOffset()
    end = planner.latestOffset(start, ReadAllAvailable())
    before = read_all(planner, planner, start, end)

    store.numbers("t", range(10, 20))

    assert read_all(reader(store), reader(store), start, end) == before


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "9"}, ReadMaxBytes(9)),
    ],
)
def test_the_default_limit_is_one_that_spark_knows(
    store: SourceStore, options: dict[str, str], limit: object
) -> None:
    answer = reader(store, **options).getDefaultReadLimit()

    assert answer == limit
    as_spark_sends_it = vars(answer) | {"_type": type(answer).__name__}
    assert ReadLimitRegistry().get(as_spark_sends_it) == limit


def test_the_broker_is_open_before_the_first_batch_asks(
    store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []

    def open_client(*arguments: Any) -> Any:
        opened.append(arguments)
        return client_cache.open_client(*arguments)

    monkeypatch.setattr("pyspark_rocketmq.source.stream.open_client", open_client)
    planner = reader(store, startingOffsets="earliest")
    planner.getDefaultReadLimit()
    early = len(opened)

    planner.latestOffset(planner.initialOffset(), ReadAllAvailable())

    assert (early, len(opened)) == (1, 1)


def test_a_broker_that_is_missing_at_the_start_is_told_by_the_first_question(
    tmp_path: Path,
) -> None:
    texts = {
        "broker": f"file:{tmp_path / 'later'}",
        "subscribe": "t",
        "fetchoffset.numretries": "1",
    }
    planner = RocketMQStreamReader(texts, spark_schema(DEFAULT_COLUMNS))

    planner.getDefaultReadLimit()

    with pytest.raises(ConnectorError, match="later"):
        planner.initialOffset()


def test_limits_hold_unless_everything_is_asked_for(store: SourceStore) -> None:
    planner = reader(store, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    start = planner.initialOffset()

    limited = planner.latestOffset(start, planner.getDefaultReadLimit())
    everything = planner.latestOffset(start, ReadAllAvailable())

    assert limited == {"t": {"broker-a": {"0": 2, "1": 2}}, "@start": start}
    assert everything == {"t": {"broker-a": {"0": 5, "1": 5}}, "@start": start}


def test_a_two_level_offset_is_understood_and_answered_in_three_levels(
    store: SourceStore,
) -> None:
    planner = reader(store)

    end = planner.latestOffset({"t": {"0": 4, "1": 5}}, ReadAllAvailable())

    assert end == {"t": {"broker-a": {"0": 5, "1": 5}}}
    assert read_all(planner, planner, {"t": {"0": 4, "1": 5}}, end) == [b"t-8"]


def test_the_constructor_refuses_nothing_and_the_first_call_does(store: SourceStore) -> None:
    ending = reader(store, endingOffsets="latest")
    other = RocketMQStreamReader(store.options(subscribe="t"), spark_schema(("body",)))

    with pytest.raises(OptionError, match="NOT_IN_STREAM"):
        ending.initialOffset()
    with pytest.raises(SchemaError, match="DIFFERS"):
        other.getDefaultReadLimit()
    ending.stop()


def test_a_partition_is_small_and_plain(store: SourceStore) -> None:
    planner = reader(store, startingOffsets="earliest")
    start = planner.initialOffset()

    (first, *_) = planner.partitions(start, planner.latestOffset(start, ReadAllAvailable()))

    assert isinstance(first, QueuePartition)
    assert len(pickle.dumps(first)) < 200


def test_tasks_of_one_process_share_a_broker(store: SourceStore) -> None:
    client = reader(store)._options.client

    one, two = client_cache.cached_reader(client), client_cache.cached_reader(client)
    client_cache.forget(client)
    three = client_cache.cached_reader(client)
    client_cache.forget(client)

    assert one is two
    assert one is not three


def test_a_broker_inherited_through_a_fork_is_not_used(
    store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = reader(store)._options.client
    parent = client_cache.cached_reader(client)

    monkeypatch.setattr("pyspark_rocketmq.client_cache.os.getpid", lambda: -1)
    child = client_cache.cached_reader(client)

    assert child is not parent
    client_cache.forget(client)


def test_a_user_s_schema_equal_to_the_source_s_is_accepted(store: SourceStore) -> None:
    texts = store.options(subscribe="t")

    source = RocketMQDataSource(texts)

    assert source.schema() == spark_schema(DEFAULT_COLUMNS)
    source.reader(spark_schema(DEFAULT_COLUMNS))
