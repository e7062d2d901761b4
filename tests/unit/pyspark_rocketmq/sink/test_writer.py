from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from broker_core.broker.broker import EmbeddedBroker
from broker_core.types import BatchRef
from pyspark_rocketmq import client_cache, errors
from pyspark_rocketmq.data_source import RocketMQDataSource
from pyspark_rocketmq.options.options import SinkOptions
from pyspark_rocketmq.sink.batch_identity import WriteIdentity
from pyspark_rocketmq.sink.commit import abort, commit
from pyspark_rocketmq.sink.schema import SinkColumns
from pyspark_rocketmq.sink.task import SinkMessage, write_rows
from pyspark_rocketmq.sink.writer import (
    RocketMQStreamWriter,
    RocketMQWriter,
)
from tests.kit.transactions import half_count, open_store, visible

BODIES = StructType().add("body", StringType())
IDENTITY = WriteIdentity(BatchRef("query:q", "", 0), "run-1", may_repeat=True)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store") as opened:
        opened.create_topic("t", queues=2)
        yield opened


@pytest.fixture
def options(broker: EmbeddedBroker) -> Iterator[SinkOptions]:
    parsed = SinkOptions.parse({"broker": broker.address, "topic": "t"})
    yield parsed
    client_cache.forget(parsed.client, "rw")


def rows(*bodies: str) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"body": [body]}) for body in bodies]


def write(
    options: SinkOptions, *bodies: str, identity: WriteIdentity | None = IDENTITY, task: int = 0
) -> SinkMessage:
    found = write_rows(options, SinkColumns("body"), rows(*bodies), identity, task=task)
    return cast("SinkMessage", pickle.loads(pickle.dumps(found)))  # as Spark sends it


def test_exactly_once_is_the_default_where_the_broker_can() -> None:
    stores = [SinkOptions.parse({"broker": each}) for each in ("file:/s", "grpc://h:1", "/s")]
    cluster = SinkOptions.parse({"broker": "rocketmq://ns:9876"})

    assert all(store.is_exactly_once for store in stores)
    assert not cluster.is_exactly_once


def test_exactly_once_on_a_cluster_is_refused_with_the_reason() -> None:
    with pytest.raises(errors.OptionError, match=r"can't be refused. Set delivery=at-least-once"):
        SinkOptions.parse({"broker": "rocketmq://ns:9876", "delivery": "exactly-once"})


def test_a_producer_group_must_have_a_legal_name() -> None:
    with pytest.raises(errors.OptionError, match="producerGroup"):
        SinkOptions.parse({"broker": "file:/s", "producerGroup": "a b"})


def test_overwriting_is_refused() -> None:
    source = RocketMQDataSource({"broker": "file:/s", "topic": "t"})

    with pytest.raises(errors.WriteError, match="only be appended to"):
        source.writer(BODIES, overwrite=True)


def test_complete_mode_appends() -> None:
    source = RocketMQDataSource({"broker": "file:/s", "topic": "t"})

    assert isinstance(source.streamWriter(BODIES, overwrite=True), RocketMQStreamWriter)


@pytest.mark.parametrize("kind", [RocketMQStreamWriter, RocketMQWriter])
def test_writers_check_the_schema_and_can_be_sent_to_tasks(
    kind: type[RocketMQStreamWriter] | type[RocketMQWriter],
) -> None:
    given = {"broker": "file:/s", "topic": "t"}

    with pytest.raises(errors.SchemaError, match="'body'"):
        kind(given, StructType().add("id", StringType()))

    assert isinstance(pickle.loads(pickle.dumps(kind(given, BODIES))), kind)


def test_rows_are_visible_after_commit_only(broker: EmbeddedBroker, options: SinkOptions) -> None:
    messages = [write(options, "a", "b"), write(options, "c", task=1)]
    before = visible(broker)

    commit(options, messages)

    assert before == []
    assert sorted(visible(broker)) == [b"a", b"b", b"c"]


def test_a_replay_changes_nothing_and_stores_nothing(
    broker: EmbeddedBroker, options: SinkOptions
) -> None:
    commit(options, [write(options, "a", "b")])
    halves = half_count(broker)

    replayed = write(options, "b", "a")
    commit(options, [replayed])

    assert half_count(broker) == halves
    assert replayed.rows == 2
    assert sorted(visible(broker)) == [b"a", b"b"]


def test_a_task_without_rows_prepares_nothing(broker: EmbeddedBroker, options: SinkOptions) -> None:
    message = write(options)

    commit(options, [message])

    assert half_count(broker) == 0
    assert (message.rows, message.receipt and message.receipt.count) == (0, 0)


def test_abort_rolls_back_what_ended_and_tolerates_what_did_not(
    broker: EmbeddedBroker, options: SinkOptions
) -> None:
    message = write(options, "a")

    abort(options, [None, message, None])
    abort(options, [None, None])

    assert visible(broker) == []
    assert broker.transactions.check_back().waiting == 0


def test_abort_after_a_commit_keeps_the_batch(broker: EmbeddedBroker, options: SinkOptions) -> None:
    messages: list[WriterCommitMessage | None] = [write(options, "a")]
    commit(options, messages)

    abort(options, messages)

    assert visible(broker) == [b"a"]


def test_two_writes_of_one_run_that_look_the_same_are_not_taken_for_a_repeat(
    broker: EmbeddedBroker, options: SinkOptions
) -> None:
    commit(options, [write(options, "a")], is_foreach=True)

    with pytest.raises(errors.WriteError, match=r"Batch 0 of query:q .* own txnName"):
        commit(options, [write(options, "b")], is_foreach=True)

    assert visible(broker) == [b"a"]


def test_the_same_write_of_a_later_run_is_a_repeat(
    broker: EmbeddedBroker, options: SinkOptions
) -> None:
    commit(options, [write(options, "a")], is_foreach=True)
    later = WriteIdentity(IDENTITY.batch, "run-2", may_repeat=True)

    commit(options, [write(options, "a", identity=later)], is_foreach=True)

    assert visible(broker) == [b"a"]


def test_at_least_once_sends_at_once(broker: EmbeddedBroker, options: SinkOptions) -> None:
    message = write(options, "a", "b", identity=None)
    commit(options, [message])

    assert sorted(visible(broker)) == [b"a", b"b"]
    assert half_count(broker) == 0


def test_a_missing_topic_is_refused_unless_it_may_be_made(broker: EmbeddedBroker) -> None:
    given = {"broker": broker.address, "topic": "fresh"}
    strict = SinkOptions.parse(given)

    with pytest.raises(errors.WriteError, match=r"Topic fresh does not exist .* set createTopic"):
        write(strict, "a")
    creating = SinkOptions.parse({**given, "createTopic": "3"})
    commit(creating, [write(creating, "a")])

    assert broker.describe("fresh").write_queues == 3
    assert visible(broker, "fresh") == [b"a"]
    client_cache.forget(strict.client, "rw")


def test_a_row_that_can_not_be_stored_leaves_nothing_visible(
    broker: EmbeddedBroker, options: SinkOptions
) -> None:
    with pytest.raises(errors.WriteError, match="EMPTY_BODY"):
        write(options, "a", "", "c")

    assert visible(broker) == []


def test_what_was_rolled_back_meanwhile_is_not_committed(
    broker: EmbeddedBroker, options: SinkOptions
) -> None:
    message = write(options, "a")
    assert message.receipt is not None
    broker.transactions.abort_batch(IDENTITY.batch, [message.receipt])

    with pytest.raises(errors.BrokerFailedError, match="could not commit batch 0 of query:q"):
        commit(options, [message])

    assert visible(broker) == []
