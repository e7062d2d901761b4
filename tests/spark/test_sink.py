"""The sink on a real Spark: batch saves, streams, foreachBatch, and what they refuse."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import InheritableThread
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from broker_core.api import Broker
from tests.kit.dying_sink import Deed
from tests.kit.pipelines import PER_BATCH, TIMEOUT_S, Pipeline
from tests.kit.transactions import half_count, visible

pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)


@pytest.fixture
def broker(pipeline: Pipeline) -> Iterator[Broker]:
    with pipeline.open() as opened:
        opened.delete_topic("in")
        opened.create_topic("t", queues=2)
        yield opened


def save(frame: DataFrame, broker: Broker, **options: str) -> None:
    writer = frame.write.format("rocketmq").option("broker", broker.address).options(**options)
    writer.mode("append").save()


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died between the sink's commit and Spark's own."""
    entries = [entry for entry in (checkpoint / "commits").iterdir() if entry.name.isdigit()]
    last = max(entries, key=lambda entry: int(entry.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_a_data_frame_is_saved_with_all_its_columns(spark: SparkSession, broker: Broker) -> None:
    frame = spark.createDataFrame(
        [("a", "t", "red", ["k1", "k2"], {"p": "1"}, 1, "s"), ("b", "t", None, [], None, 0, None)],
        "body string, topic string, tags string, keys array<string>, properties map<string,string>,"
        " queueId int, shardingKey string",
    )

    save(frame, broker)

    columns = ["body", "queueId", "tags", "keys", "property:p", "property:__SHARDINGKEY"]
    rows = [broker.read("t", queue_id=queue, columns=columns).to_pylist() for queue in (0, 1)]
    assert [list(row.values()) for queue in rows for row in queue] == [
        [b"b", 0, None, None, None, None],
        [b"a", 1, "red", "k1 k2", "1", "s"],
    ]


def test_a_save_is_visible_as_a_whole_or_not_at_all(spark: SparkSession, broker: Broker) -> None:
    bodies = functions.when(functions.col("id") < 30, functions.col("id").cast("string"))
    frame = spark.range(0, 40, 1, 2).select(bodies.alias("body"))

    with pytest.raises(PySparkException, match=r"ROCKETMQ_SINK.EMPTY_BODY"):
        save(frame, broker, topic="t")
    after_failure = visible(broker)
    save(frame.where("body is not null"), broker, topic="t")

    assert after_failure == []
    assert sorted(visible(broker)) == sorted(b"%d" % number for number in range(30))


def test_a_save_with_an_id_is_done_once(spark: SparkSession, broker: Broker) -> None:
    frame = spark.createDataFrame([("a",), ("b",)], "value string")

    for _ in range(2):
        save(frame, broker, topic="t", txnId="load-1")
    save(frame, broker, topic="t", txnId="load-2")
    save(frame, broker, topic="t")

    assert sorted(visible(broker)) == [b"a"] * 3 + [b"b"] * 3


@pytest.mark.parametrize(
    ("schema", "options", "condition"),
    [
        ("id int", {"topic": "t"}, "ROCKETMQ_SINK.COLUMN_MISSING"),
        ("body string", {}, "ROCKETMQ_SINK.COLUMN_MISSING"),
        ("body string, tags int", {"topic": "t"}, "ROCKETMQ_SINK.COLUMN_TYPE"),
        ("body string", {"topic": "t", "delivery": "twice"}, "ROCKETMQ_OPTION.INVALID"),
    ],
)
def test_what_is_wrong_for_every_row_is_refused_before_any_task(
    spark: SparkSession,
    broker: Broker,
    schema: str,
    options: dict[str, str],
    condition: str,
) -> None:
    with pytest.raises(AnalysisException, match=condition):
        save(spark.createDataFrame([], schema), broker, **options)


def test_overwriting_is_refused(spark: SparkSession, broker: Broker) -> None:
    frame = spark.createDataFrame([("a",)], "body string")
    writer = frame.write.format("rocketmq").option("broker", broker.address).option("topic", "t")

    with pytest.raises(AnalysisException, match=r"ROCKETMQ_SINK.OVERWRITE"):
        writer.mode("overwrite").save()


def test_at_least_once_prepares_nothing(spark: SparkSession, broker: Broker) -> None:
    frame = spark.createDataFrame([("a",), ("b",)], "body string")

    save(frame, broker, topic="t", delivery="at-least-once")

    assert sorted(visible(broker)) == [b"a", b"b"]
    assert half_count(broker) == 0


def test_a_replayed_batch_of_a_stream_changes_nothing(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    pipeline.feed(2 * PER_BATCH)
    assert pipeline.run(spark) is None
    forget_last_commit(pipeline.checkpoint)

    assert pipeline.run(spark) is None

    pipeline.require_all_once()


def test_complete_mode_appends_every_result(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    for body in (b"x", b"y", b"x"):
        broker.send("t", body)
    broker.create_topic("counts", queues=1)
    counts = (
        spark.readStream.format("rocketmq")
        .options(broker=broker.address, subscribe="t", startingOffsets="earliest")
        .load()
        .groupBy("body")
        .count()
        .select(functions.concat_ws("=", functions.decode("body", "utf-8"), "count").alias("body"))
    )

    query = (
        counts.writeStream.format("rocketmq")
        .outputMode("complete")
        .options(broker=broker.address, topic="counts", checkpointLocation=str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_S)

    assert sorted(visible(broker, "counts")) == [b"x=2", b"y=1"]


def test_writes_inside_foreach_batch_are_exactly_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("u", queues=1)
    broker.create_topic("in", queues=1)
    for number in range(4):
        broker.send("in", b"%d" % number)

    def write(frame: DataFrame, batch_id: int) -> None:
        bodies = frame.select("body")
        save(bodies, broker, topic="t")
        save(bodies, broker, topic="u")
        save(bodies.where("body = '1'"), broker, topic="u", txnName="ones")

    def run() -> None:
        stream = spark.readStream.format("rocketmq").options(
            broker=broker.address, subscribe="in", startingOffsets="earliest"
        )
        query = (
            stream.load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    run()
    forget_last_commit(tmp_path / "c")
    run()

    assert sorted(visible(broker)) == [b"0", b"1", b"2", b"3"]
    assert sorted(visible(broker, "u")) == [b"0", b"1", b"1", b"2", b"3"]


def test_two_writes_of_one_batch_that_look_the_same_are_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("in", queues=1)
    broker.send("in", b"a")

    def write(frame: DataFrame, batch_id: int) -> None:
        save(frame.select("body"), broker, topic="t")
        save(frame.select("body"), broker, topic="t")

    stream = spark.readStream.format("rocketmq").options(
        broker=broker.address, subscribe="in", startingOffsets="earliest"
    )
    query = (
        stream.load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )

    with pytest.raises(PySparkException, match=r"ROCKETMQ_SINK.WRITTEN_TWICE"):
        query.awaitTermination(TIMEOUT_S)
    assert visible(broker) == [b"a"]


class ForeachBatch:
    """A query over one file whose function is the test's; each `run` is a new run of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        (folder / "in").mkdir()
        (folder / "in" / "rows.txt").write_text("r1\nr2\n")

    def run(self, write: Callable[[DataFrame, int], None]) -> None:
        rows = self.spark.readStream.text(str(self.folder / "in"))
        writer = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder / "c")).start()
        assert query.awaitTermination(TIMEOUT_S)


def test_a_function_that_fails_between_its_writes_is_told_what_it_did_before(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """One job group for all runs, as a library may set it, must not make a replay a second write.

    Nor may the second write of a run pass for a replay where an earlier run has done the first.
    """
    query, fails, is_double = ForeachBatch(spark, tmp_path), [True], [False]

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.sparkSession.sparkContext.setJobGroup("my-etl", "a group of the user's own")
        save(frame, broker, topic="t")
        if fails:
            raise ValueError(fails.pop())
        if is_double[0]:
            save(frame.selectExpr("value || '-b' as value"), broker, topic="t")

    with pytest.raises(PySparkException, match="ValueError"):
        query.run(write)
    is_double[0] = True
    with pytest.raises(PySparkException, match=r"ROCKETMQ_SINK.WRITTEN_TWICE"):
        query.run(write)
    is_double[0] = False
    query.run(write)

    assert sorted(visible(broker)) == [b"r1", b"r2"]


def test_threads_of_a_foreach_batch_write_once_or_not_at_all(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    query, fails, refused = ForeachBatch(spark, tmp_path), [True], []

    def attempt(frame: DataFrame, **options: str) -> None:
        frame.sparkSession.createDataFrame([(1,)], "id int")  # gives the thread a session
        try:
            save(frame, broker, **options)
        except PySparkException as error:
            refused.append(str(error))

    def write(frame: DataFrame, batch_id: int) -> None:
        for kind, options in (
            (threading.Thread, {"topic": "t"}),
            (threading.Thread, {"topic": "t", "txnId": f"named-{batch_id}"}),
            (InheritableThread, {"topic": "u"}),
        ):
            thread = kind(target=attempt, args=(frame,), kwargs=options)
            thread.start()
            thread.join()
        if fails:
            raise ValueError(fails.pop())

    broker.create_topic("u", queues=1)
    with pytest.raises(PySparkException, match="ValueError"):
        query.run(write)
    query.run(write)

    assert sorted(visible(broker)) == sorted(visible(broker, "u")) == [b"r1", b"r2"]
    assert len(refused) == 2
    assert all("ROCKETMQ_SINK.BATCH_UNKNOWN" in each for each in refused)
    assert "InheritableThread" in refused[0]


@pytest.mark.slow
def test_a_checkpoint_that_is_restored_fails_the_query_and_loses_nothing(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.feed(PER_BATCH)
    assert pipeline.run(spark) is None
    shutil.copytree(pipeline.checkpoint, tmp_path / "saved")
    pipeline.feed(PER_BATCH // 2)
    assert pipeline.run(spark) is None
    shutil.rmtree(pipeline.checkpoint)
    shutil.copytree(tmp_path / "saved", pipeline.checkpoint)
    pipeline.feed(PER_BATCH // 2)

    error = str(pipeline.run(spark))

    assert "ROCKETMQ_SINK.BATCH_CONFLICT" in error
    assert str(pipeline.checkpoint) in error


@pytest.mark.parametrize("point", ["begin", "end"])
def test_a_commit_that_raises_is_aborted_and_written_once_by_the_next_run(
    spark: SparkSession, pipeline: Pipeline, point: str
) -> None:
    pipeline.feed(2 * PER_BATCH)
    pipeline.control.arm(Deed("commit", point, deed="raise"))

    error = pipeline.run(spark)
    after_failure = len(pipeline.written())
    assert pipeline.run(spark) is None

    assert "the test wants commit to fail" in str(error)
    assert after_failure == (PER_BATCH if point == "end" else 0)
    pipeline.require_all_once()


@pytest.mark.embedded
def test_a_batch_without_any_receipt_is_aborted_and_written_by_the_next_run(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    pipeline.feed(1)
    pipeline.control.arm(Deed("write", "marked-clean", deed="raise"))

    error = pipeline.run(spark)
    assert pipeline.run(spark) is None

    assert error is not None
    pipeline.require_all_once()


@pytest.mark.embedded
def test_a_query_that_is_stopped_while_it_writes_loses_and_doubles_nothing(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    pipeline.feed(2 * PER_BATCH)
    pipeline.control.arm(Deed("write", "marked-clean", deed="wait"))

    query = pipeline.start(spark)
    pipeline.control.wait_until_done()
    query.stop()
    pipeline.control.go()
    assert pipeline.run(spark) is None

    pipeline.require_all_once()
