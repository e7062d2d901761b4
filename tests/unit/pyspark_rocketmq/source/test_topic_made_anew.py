"""A topic that is deleted and made again under a query: never other messages in silence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_rocketmq.data_source import RocketMQDataSource
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.source.schema import spark_schema
from tests.kit.source_store import SourceStore

OLD = 2  # messages of the old topic, per queue
QUEUES = 2


@pytest.fixture(scope="module", params=[False, True], ids=["file", "grpc"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SourceStore]:
    store = SourceStore(tmp_path_factory.mktemp("anew") / "store", is_remote=request.param)
    yield store
    store.close()


_names = itertools.count()


class Query:
    """A query that has read some messages of each queue of a topic, and may start again."""

    def __init__(self, store: SourceStore, read: int, *, fail: bool) -> None:
        self.store = store
        self.topic = f"t{next(_names)}"
        self.fail = fail
        store.create(self.topic, queues=QUEUES)
        store.numbers(self.topic, range(OLD * QUEUES), queues=QUEUES)
        self.offset: Any = {self.topic: {"broker-a": {str(q): read for q in range(QUEUES)}}}
        self.reader = self.start()

    def start(self) -> Any:
        texts = self.store.options(
            subscribe=self.topic, columns="body", failOnDataLoss=str(self.fail).lower()
        )
        lowered = {key.lower(): value for key, value in texts.items()}
        return RocketMQDataSource(lowered).streamReader(spark_schema(("body",)))

    def make_anew(self, messages: int, queues: int) -> list[str]:
        """Delete the topic, make it again, fill each queue; returns the bodies."""
        self.store.broker.delete_topic(self.topic)
        self.store.create(self.topic, queues=queues)
        bodies = [f"new-{queue}-{n}" for queue in range(queues) for n in range(messages)]
        for body in bodies:
            self.store.send(self.topic, body, queue=int(body.split("-")[1]))
        return bodies

    def end(self) -> Any:
        return self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())

    def read_to(self, end: Any) -> list[str]:
        partitions = self.reader.partitions(self.offset, end)
        batches = [batch for each in partitions for batch in self.reader.read(each)]
        return sorted(body.decode() for batch in batches for body in batch["body"].to_pylist())


MESSAGES = pytest.mark.parametrize("messages", [OLD - 1, OLD, OLD + 1])


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize(
    ("messages", "queues"),
    [(0, QUEUES), (OLD - 1, QUEUES), (OLD, QUEUES + 1), (OLD + 1, QUEUES)],
)
def test_a_query_that_had_read_the_old_topic_reads_all_of_the_new_one(
    store: SourceStore, messages: int, queues: int, is_down: bool
) -> None:
    query = Query(store, OLD, fail=True)
    assert query.end() == query.offset
    sent = query.make_anew(messages, queues)
    if is_down:
        query.reader = query.start()

    assert query.read_to(query.end()) == sorted(sent)


@MESSAGES
def test_a_query_that_had_not_is_told_what_it_lost(store: SourceStore, messages: int) -> None:
    strict, tolerant = Query(store, 1, fail=True), Query(store, 1, fail=False)
    for query in (strict, tolerant):
        sent = query.make_anew(messages, QUEUES)

    with pytest.raises(DataLossError, match=r"OFFSET_EXPIRED.*1 messages are gone"):
        strict.read_to(strict.end())
    assert tolerant.read_to(tolerant.end()) == sorted(sent)


@MESSAGES
def test_a_batch_that_was_planned_before_the_deletion_reads_nothing_else(
    store: SourceStore, messages: int
) -> None:
    for fail in (True, False):
        query = Query(store, 1, fail=fail)
        end = query.end()
        query.make_anew(messages, QUEUES)
        if fail:
            with pytest.raises(DataLossError, match="OFFSET_EXPIRED"):
                query.read_to(end)
        else:
            assert query.read_to(end) == []


def test_fewer_queues_are_data_loss_and_come_back_where_they_ended(store: SourceStore) -> None:
    query = Query(store, OLD, fail=True)
    sent = query.make_anew(OLD + 1, QUEUES - 1)

    with pytest.raises(DataLossError, match="QUEUES_DELETED"):
        query.end()
    store.broker.add_queues(query.topic, QUEUES)
    store.send(query.topic, "new-1-0", queue=1)
    assert query.read_to(query.end()) == sorted([*sent, "new-1-0"])
