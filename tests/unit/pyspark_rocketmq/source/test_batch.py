"""The batch reader as Spark treats it, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    InputPartition,
    IsNotNull,
    LessThan,
    Not,
)

from broker_core.api import Broker
from broker_core.errors import UnavailableError
from broker_core.types import Mode
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.options.options import ClientOptions, SourceOptions
from pyspark_rocketmq.source.batch import RocketMQPushdownReader, RocketMQReader
from pyspark_rocketmq.source.partition import LookupPartition
from tests.kit.source_store import SourceStore


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceStore]:
    """Topics `t` and `u`, two queues, ten messages each, with keys and tags."""
    store = SourceStore(tmp_path_factory.mktemp("batch") / "store")
    for topic in ("t", "u"):
        store.create(topic)
        for number in range(10):
            store.broker.send(
                topic,
                f"{topic}-{number}".encode(),
                tags="AB"[number % 2],
                keys=[f"k{number}", "all"],
                properties={"n": str(number)},
                queue_id=number % 2,
            )
    yield store
    store.close()


def options(store: SourceStore, **more: str) -> SourceOptions:
    texts = {"subscribe": "t,u", "columns": "body,keys,property:n,queueOffset", **more}
    return SourceOptions.parse(store.options(**texts)).for_batch()


def rows(reader: DataSourceReader) -> list[str]:
    """The bodies that tasks deliver, each task reading with a copy of the reader."""
    found: list[str] = []
    for partition in reader.partitions():
        copy, task = pickle.loads(pickle.dumps((reader, partition)))
        for batch in copy.read(task):
            found += [body.decode() for body in batch["body"].to_pylist()]
    return sorted(found)


def pushed(
    store: SourceStore, *filters: Filter, **more: str
) -> tuple[RocketMQPushdownReader, list[Filter]]:
    reader = RocketMQPushdownReader(options(store, **more))
    return reader, list(reader.pushFilters(list(filters)))


class Opening:
    """Opens brokers and counts them; the first `failures` of them break when asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int = 0) -> None:
        self.count = 0
        self._failures = failures
        self._open = client_cache.open_client
        monkeypatch.setattr(client_cache, "open_client", self)
        monkeypatch.setattr(client_cache, "_cached", {})

    def __call__(self, client: ClientOptions, mode: Mode = "r") -> Broker:
        self.count += 1
        broker = self._open(client, mode)
        if self.count <= self._failures:

            def fail(topic: str) -> None:
                raise UnavailableError(f"no word of {topic}")

            broker.offsets = fail  # type: ignore[method-assign, assignment]
        return broker


def test_a_process_that_plans_keeps_its_broker(
    store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opening(monkeypatch)

    plans = [RocketMQReader(options(store)).partitions() for _ in range(3)]

    assert [len(plan) for plan in plans] == [4, 4, 4]
    assert opened.count == 1


def test_a_broker_that_failed_is_opened_anew(
    store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opening(monkeypatch, failures=2)
    patient = options(store, **{"fetchOffset.retryIntervalMs": "1"})

    plan = RocketMQReader(patient).partitions()

    assert len(plan) == 4
    assert opened.count == 3


def test_everything_is_one_task_per_queue(store: SourceStore) -> None:
    reader = RocketMQReader(options(store))

    assert len(reader.partitions()) == 4
    assert len(rows(reader)) == 20


def test_only_the_pushdown_reader_could_take_filters() -> None:
    assert RocketMQReader.pushFilters is DataSourceReader.pushFilters
    assert RocketMQPushdownReader.pushFilters is not DataSourceReader.pushFilters


def test_the_task_of_a_read_without_queues_yields_nothing(store: SourceStore) -> None:
    reader = RocketMQReader(options(store))

    assert list(reader.read(InputPartition(None))) == []


def test_filters_that_are_answered_here_are_not_given_back(store: SourceStore) -> None:
    exact = (EqualTo(("topic",), "t"), IsNotNull(("topic",)), GreaterThan(("queueOffset",), 2))
    other = (Not(EqualTo(("keys",), "k1")), EqualTo(("n",), "7"))

    reader, left = pushed(store, *exact, *other)

    assert [id(each) for each in left] == [id(each) for each in other]
    assert rows(reader) == [f"t-{number}" for number in range(6, 10)]


def test_a_key_is_looked_up_in_one_task_per_topic(store: SourceStore) -> None:
    reader, left = pushed(store, EqualTo(("keys",), "k7 all"))

    assert len(left) == 1
    assert [type(each) for each in reader.partitions()] == [LookupPartition, LookupPartition]
    assert rows(reader) == ["t-7", "u-7"]


def test_a_lookup_has_the_columns_that_were_asked_for(store: SourceStore) -> None:
    reader, _ = pushed(store, EqualTo(("keys",), "k7 all"), EqualTo(("topic",), "u"))

    (partition,) = reader.partitions()
    (batch,) = reader.read(partition)

    assert batch.to_pylist() == [{"body": b"u-7", "keys": "k7 all", "n": "7", "queueOffset": 3}]


def test_a_lookup_keeps_to_tags_and_offsets(store: SourceStore) -> None:
    key = EqualTo(("keys",), "all")

    by_tag, _ = pushed(store, key, EqualTo(("tags",), "A"), EqualTo(("topic",), "t"))
    by_offset, _ = pushed(store, key, LessThan(("queueOffset",), 1))

    assert rows(by_tag) == [f"t-{number}" for number in (0, 2, 4, 6, 8)]
    assert rows(by_offset) == ["t-0", "t-1", "u-0", "u-1"]


def test_a_lookup_of_a_topic_that_is_gone_finds_nothing(tmp_path: Path) -> None:
    store = SourceStore(tmp_path / "store")
    store.create("t", 1)
    store.broker.send("t", b"x", keys=["k"])
    reader, _ = pushed(store, EqualTo(("keys",), "k"), subscribe="t", columns="body,keys")
    (partition,) = reader.partitions()

    store.broker.delete_topic("t")

    assert list(reader.read(partition)) == []
    store.close()


def test_an_offset_id_is_found_too(store: SourceStore) -> None:
    sent = store.broker.message(
        store.broker.query("t", "k3")["offsetMsgId"][0].as_py()
    ).to_pylist()[0]

    reader, _ = pushed(store, EqualTo(("msgId",), sent["offsetMsgId"]), columns="body")

    assert rows(reader) == ["t-3"]


def test_store_times_narrow_what_is_read(store: SourceStore) -> None:
    future = datetime(2999, 1, 1, tzinfo=UTC)
    past = datetime(2000, 1, 1, tzinfo=UTC)

    late, left = pushed(store, GreaterThan(("storeTimestamp",), future))
    early, _ = pushed(store, LessThan(("storeTimestamp",), past))
    still_open, _ = pushed(store, LessThan(("storeTimestamp",), future))

    assert len(left) == 1
    assert rows(late) == rows(early) == []
    assert len(rows(still_open)) == 20


def test_tags_of_the_query_and_of_the_filter_both_hold(store: SourceStore) -> None:
    both, _ = pushed(store, EqualTo(("tags",), "A"), tags="A || B", subscribe="t")
    none, _ = pushed(store, EqualTo(("tags",), "A"), tags="B", subscribe="t")
    with_sql, left = pushed(store, EqualTo(("tags",), "A"), sql="n > 5", subscribe="t")

    assert rows(both) == [f"t-{number}" for number in (0, 2, 4, 6, 8)]
    assert none.partitions() == []
    assert len(left) == 1
    assert rows(with_sql) == [f"t-{number}" for number in range(6, 10)]
