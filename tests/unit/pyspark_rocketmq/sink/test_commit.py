"""Commits under histories that Spark's checkpoint alone can't tell apart."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_records import Decision, stream_tag
from broker_core.broker.transactions.forgotten import ForgottenStreams
from broker_core.types import BatchRef
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.errors import WriteError
from pyspark_rocketmq.options.options import SinkOptions
from pyspark_rocketmq.sink import commit as sink_commit
from pyspark_rocketmq.sink import written
from pyspark_rocketmq.sink.batch_identity import (
    CONNECT_OPERATION,
    STREAM_SESSION,
    WriteIdentity,
    batch_identity,
    stream_identity,
)
from pyspark_rocketmq.sink.commit import abort, commit
from pyspark_rocketmq.sink.fingerprint import fingerprints
from pyspark_rocketmq.sink.schema import SinkColumns
from pyspark_rocketmq.sink.task import SinkMessage, write_rows
from tests.kit.transactions import open_store, visible

ACTIONS = ("feed", "step", "crash", "save", "restore", "fork")
runs = itertools.count()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store") as opened:
        opened.create_topic("t", queues=1)
        opened.create_topic("u", queues=1)
        yield opened
    for key in list(client_cache._cached):
        client_cache.forget(key[1], key[2])


@pytest.fixture
def _local_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver with a folder for temporary files."""
    (tmp_path / "local").mkdir()
    monkeypatch.setenv(written.LOCAL_DIRS, f"{tmp_path / 'local'},/other")


def parse(broker: EmbeddedBroker, **given: str) -> SinkOptions:
    return SinkOptions.parse({"broker": broker.address, **({"topic": "t"} | given)})


def prepare(
    options: SinkOptions, identity: WriteIdentity, bodies: list[str], tasks: int = 1
) -> list[SinkMessage]:
    shares = [bodies[number::tasks] for number in range(tasks)]
    return [
        write_rows(
            options,
            SinkColumns("body"),
            [pa.RecordBatch.from_pydict({"body": pa.array(share, pa.string())})],
            identity,
            task=task,
        )
        for task, share in enumerate(shares)
    ]


def texts(broker: EmbeddedBroker, topic: str = "t") -> list[str]:
    return [body.decode() for body in visible(broker, topic)]


# Checkpoints that are restored and copied


@dataclass
class Query:
    """A streaming query as far as the sink sees it: offsets, commits, a source that only grows."""

    broker: EmbeddedBroker
    source: list[str]
    topic: str
    folder: Path
    is_local: bool
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        (self.folder / "offsets").mkdir(parents=True)
        (self.folder / "commits").mkdir()
        (self.folder / "metadata").write_text(json.dumps({"id": self.id}))

    def end(self, number: int) -> int:
        if number < 0:
            return 0
        return int((self.folder / "offsets" / str(number)).read_text().splitlines()[2])

    def last(self, kind: str) -> int:
        return max((int(each.name) for each in (self.folder / kind).iterdir()), default=-1)

    def run(self, **options: str) -> None:
        """Run the next batch, or the one that was begun; `crash` is what Spark does not see."""
        is_crash = options.pop("crash", "") == "true"
        number = self.last("commits") + 1
        entry = self.folder / "offsets" / str(number)
        if not entry.exists():
            entry.write_text(f'v1\n{{"batchTimestampMs":{next(runs)}}}\n{len(self.source)}')
        bodies = self.source[self.end(number - 1) : self.end(number)]
        where = {"checkpointLocation": str(self.folder)} if self.is_local else {}
        parsed = parse(self.broker, topic=self.topic, **where, **options)
        properties = {
            "sql.streaming.queryId": self.id,
            "streaming.sql.batchId": str(number),
            "spark.app.id": "app",
            "spark.sql.execution.root.id": str(next(runs)),
        }
        messages = prepare(parsed, stream_identity(parsed, properties.get), bodies, 1 + number % 2)
        try:
            commit(parsed, messages)
        except WriteError:
            abort(parsed, messages)
            raise
        if not is_crash:
            (self.folder / "commits" / str(number)).touch()

    def copy_to(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)

    def copied(self, folder: Path) -> Query:
        made = Query(self.broker, self.source, self.topic, folder, self.is_local, self.id)
        self.copy_to(folder)
        return made


def query_of(broker: EmbeddedBroker, folder: Path, *, is_local: bool) -> Query:
    topic = f"t-{uuid.uuid4().hex}"
    broker.create_topic(topic, queues=1)
    return Query(broker, [], topic, folder / topic, is_local)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(st.sampled_from(ACTIONS), max_size=10), is_local=st.booleans())
def test_whatever_becomes_of_a_checkpoint_each_row_is_there_once_or_the_query_fails(
    broker: EmbeddedBroker, tmp_path: Path, actions: list[str], is_local: bool
) -> None:
    queries = [query_of(broker, tmp_path, is_local=is_local)]
    first, saved = queries[0], tmp_path / f"saved-{uuid.uuid4().hex}"
    first.copy_to(saved)
    failure = ""
    for action in [*actions, "step"]:
        first.source.append(f"r{len(first.source)}")
        if action == "save":
            first.copy_to(saved)
        elif action == "restore":
            shutil.rmtree(first.folder)
            shutil.copytree(saved, first.folder)
        elif action == "fork" and len(queries) == 1:
            queries.append(first.copied(tmp_path / f"fork-{uuid.uuid4().hex}"))
        elif action in ("step", "crash"):
            try:
                for query in queries:
                    query.run(crash=str(action == "crash").lower())
            except WriteError as error:
                failure = error.condition
                break
    rows = texts(broker, first.topic)

    assert len(rows) == len(set(rows))
    assert failure in ("", "ROCKETMQ_SINK.BATCH_CONFLICT", "ROCKETMQ_SINK.BATCH_GAP")
    if not failure:
        read = max(query.end(query.last("offsets")) for query in queries)
        assert set(rows) == set(first.source[:read])
    if not {"restore", "fork"} & set(actions):
        assert not failure


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_restored_checkpoint_is_told_and_the_user_decides(
    broker: EmbeddedBroker, tmp_path: Path, is_local: bool, back: int
) -> None:
    query, saved = query_of(broker, tmp_path, is_local=is_local), tmp_path / "saved"
    for number in range(4):
        if number == 4 - back:
            query.copy_to(saved)
        query.source.append(f"r{number}")
        query.run()
    shutil.rmtree(query.folder)
    shutil.copytree(saved, query.folder)
    query.source.append("r4")

    with pytest.raises(WriteError) as caught:
        query.run()
    text = str(caught.value)
    assert f"Batch {4 - back} of query:{query.id}" in text
    assert (str(query.folder) in text) == is_local
    assert "onConflict=repeat" in text
    assert texts(broker, query.topic) == ["r0", "r1", "r2", "r3"]

    query.run(onConflict="write")
    lost = query.source[4 - back :]
    assert sorted(texts(broker, query.topic)) == sorted(["r0", "r1", "r2", "r3", *lost])
    query.source.append("r5")
    query.run()
    assert texts(broker, query.topic)[-1] == "r5"


def test_a_conflict_can_be_taken_for_a_repeat(broker: EmbeddedBroker, tmp_path: Path) -> None:
    query, saved = query_of(broker, tmp_path, is_local=False), tmp_path / "saved"
    query.copy_to(saved)
    query.source.append("r0")
    query.run()
    shutil.rmtree(query.folder)
    shutil.copytree(saved, query.folder)
    query.source.append("r1")

    query.run(onConflict="repeat")
    query.source.append("r2")
    query.run()

    assert texts(broker, query.topic) == ["r0", "r2"]


def test_a_copy_with_another_destination_is_an_error(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    query = query_of(broker, tmp_path, is_local=True)
    query.run()
    copy = query.copied(tmp_path / "copy")
    copy.topic = "u"
    query.source.append("r0")
    query.run()

    with pytest.raises(WriteError, match="BATCH_CONFLICT"):
        copy.run()

    assert texts(broker, "u") == []


def test_a_copy_that_reads_the_same_offsets_and_writes_other_rows_is_an_error(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    query = query_of(broker, tmp_path, is_local=True)
    query.run()
    copy = query.copied(tmp_path / "copy")
    query.source.append("odd")
    query.run()
    copy.source = ["even"]

    with pytest.raises(WriteError, match="BATCH_CONFLICT"):
        copy.run()

    assert texts(broker, query.topic) == ["odd"]


@pytest.mark.parametrize("choice", ["refuse", "repeat", "write"])
@pytest.mark.parametrize("is_local", [True, False])
def test_a_batch_of_an_earlier_version_is_a_repeat(
    broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_local: bool,
    choice: str,
) -> None:
    query = query_of(broker, tmp_path, is_local=is_local)
    query.source.append("r0")
    with monkeypatch.context() as patch:
        patch.setattr(sink_commit, "fingerprints", lambda *given: fingerprints(*given)[1:])
        query.run(crash="true")

    query.run(onConflict=choice)
    query.source.append("r1")
    query.run()

    assert texts(broker, query.topic) == ["r0", "r1"]
    assert broker.transactions.check_back().waiting == 0


@pytest.mark.parametrize("is_local", [True, False])
def test_a_store_that_is_older_than_the_checkpoint_is_told(
    broker: EmbeddedBroker, tmp_path: Path, is_local: bool
) -> None:
    query = query_of(broker, tmp_path, is_local=is_local)
    for number in range(3):
        query.source.append(f"r{number}")
        query.run()
    with open_store(tmp_path / "old") as old:
        old.create_topic(query.topic, queues=1)
        query.broker = old
        query.source.append("r3")

        with pytest.raises(WriteError, match=r"BATCH_GAP.*Set allowGap=true"):
            query.run()
        assert texts(old, query.topic) == []
        query.run(allowGap="true")

        assert texts(old, query.topic) == ["r3"]


def test_empty_batches_are_no_gap(broker: EmbeddedBroker, tmp_path: Path) -> None:
    query = query_of(broker, tmp_path, is_local=False)
    for rows in (0, 1, 0, 0, 2):
        query.source += [f"r{len(query.source) + number}" for number in range(rows)]
        query.run()

    assert texts(broker, query.topic) == ["r0", "r1", "r2"]


def test_a_decision_without_a_fingerprint_counts_by_its_number(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    query = query_of(broker, tmp_path, is_local=False)
    options = parse(broker, topic=query.topic)
    batch = BatchRef(f"query:{query.id}", "", 0)
    message = prepare(options, WriteIdentity(batch, "old", may_repeat=True), ["r0"])[0]
    assert message.receipt is not None
    broker.transactions.commit_batch(batch, [message.receipt], run="old")
    query.source.append("r0")

    query.run()
    query.source.append("r1")
    query.run()

    assert texts(broker, query.topic) == ["r0", "r1"]


# Writes of one foreachBatch


def in_batch(number: int = 0) -> dict[str, str]:
    """The local properties of one run of a micro-batch."""
    return {
        "sql.streaming.queryId": "6e0a",
        "streaming.sql.batchId": str(number),
        "spark.jobGroup.id": "mine",
        "spark.app.id": "app",
        "spark.sql.execution.root.id": str(next(runs)),
    }


def in_save() -> dict[str, str]:
    """The local properties of a save of its own."""
    return {"spark.app.id": "app", "spark.sql.execution.root.id": str(next(runs))}


def save(options: SinkOptions, run: dict[str, str], *bodies: str) -> None:
    identity = batch_identity(options, uuid.uuid4().hex, run.get)
    messages = prepare(options, identity, list(bodies))
    try:
        commit(options, messages, is_foreach=True)
    except WriteError:
        abort(options, messages)
        raise


@pytest.mark.usefixtures("_local_dirs")
def test_of_writes_with_one_identity_the_second_is_refused_whatever_runs_came_before(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(query: str, names: tuple[str, ...], *, is_new_process: bool) -> int:
        """Do the writes of one run; return how many of them were done."""
        properties = in_batch() | {"sql.streaming.queryId": query}
        for done, name in enumerate(names):
            if is_new_process:
                monkeypatch.setattr(written, "_memory", {})
            given = {"txnName": name} if name else {}
            try:
                save(parse(broker, **given), properties, f"{query}-{done}")
            except WriteError as error:
                if error.condition != "ROCKETMQ_SINK.WRITTEN_TWICE":
                    raise
                return done
        return len(names)

    expected = []
    cases = itertools.product(itertools.product(("", "a"), repeat=3), range(4))
    for number, (names, crash_after) in enumerate(cases):
        query = f"q{number}"
        distinct = next((n for n in range(3) if names[n] in names[:n]), 3)
        expected += [f"{query}-{done}" for done in range(distinct)]
        run(query, names[:crash_after], is_new_process=False)

        assert run(query, names, is_new_process=True) == distinct
        assert run(query, names, is_new_process=False) == distinct

    assert texts(broker) == expected


@pytest.mark.usefixtures("_local_dirs")
def test_a_write_that_failed_may_be_tried_again_in_the_same_run(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    run, options = in_batch(), parse(broker)
    with pytest.raises(WriteError, match="EMPTY_BODY"):
        save(options, run, "a", "")

    save(options, run, "a")
    save(options, in_batch(1), "b")

    assert texts(broker) == ["a", "b"]
    assert len(list((tmp_path / "local" / written.FOLDER).iterdir())) == 1


def test_replayed_rows_that_are_not_those_written_are_a_conflict(broker: EmbeddedBroker) -> None:
    save(parse(broker), in_batch(), "a")

    with pytest.raises(WriteError, match="BATCH_CONFLICT"):
        save(parse(broker), in_batch(), "b")
    save(parse(broker, onConflict="repeat"), in_batch(), "b")

    assert texts(broker) == ["a"]


WAYS: dict[str, Callable[[], dict[str, str]]] = {
    "told": in_batch,
    "thread": lambda: in_save() | {STREAM_SESSION: "false"},
    "connect": lambda: in_save() | {STREAM_SESSION: "false", CONNECT_OPERATION: "c687"},
}
"""The ways in which a function of a `foreachBatch` may write, as the sink sees them."""


@pytest.mark.parametrize(("first", "second"), list(itertools.product(WAYS, WAYS)))
def test_an_id_makes_a_replay_in_any_way_a_repeat(
    broker: EmbeddedBroker, first: str, second: str
) -> None:
    options = parse(broker, txnId="orders-0")
    save(options, WAYS[first](), "a", "b")

    save(options, WAYS[second](), "b", "a")
    with pytest.raises(WriteError, match="BATCH_CONFLICT"):
        save(options, WAYS[second](), "c", "d")  # an older checkpoint, or another write
    save(parse(broker, txnId="orders-1"), WAYS[second](), "a", "b")
    save(parse(broker, txnId="orders-0", onConflict="repeat"), WAYS[second](), "c", "d")

    assert sorted(texts(broker)) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("order", list(itertools.permutations(["", "orders-0", "orders-1"])))
def test_writes_of_one_function_with_and_without_an_id_are_several(
    broker: EmbeddedBroker, order: tuple[str, ...]
) -> None:
    for run in (in_batch(), in_batch()):
        for name in order:
            save(parse(broker, **({"txnId": name} if name else {})), run, f"for {name}")

    assert sorted(texts(broker)) == ["for ", "for orders-0", "for orders-1"]


def test_a_batch_with_an_id_of_an_earlier_version_is_a_repeat(broker: EmbeddedBroker) -> None:
    """It passed over the id where the query's ids are known."""
    save(parse(broker), in_batch(3), "a")

    save(parse(broker, txnId="orders-3"), in_batch(3), "a")
    save(parse(broker, txnId="orders-4"), in_batch(4), "a")

    assert texts(broker) == ["a", "a"]


def test_rows_that_tasks_left_out_are_not_committed_as_none(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """A copy's tasks find their batch decided; then another run writes an earlier one anew."""
    options, number = parse(broker, allowGap="true"), itertools.count()

    def prepared(batch: int, body: str, options: SinkOptions = options) -> list[SinkMessage]:
        run = in_batch(batch) | {"spark.sql.execution.root.id": str(next(number))}
        return prepare(options, stream_identity(options, run.get), [body])

    commit(options, prepared(5, "r5"))
    of_copy = prepared(5, "of the copy")
    anew = parse(broker, allowGap="true", onConflict="write")
    commit(anew, prepared(4, "r4", anew))

    with pytest.raises(WriteError, match=r"BATCH_CONFLICT.*stored nothing"):
        commit(options, of_copy)

    assert texts(broker) == ["r5", "r4"]


def test_batches_of_a_foreach_batch_may_be_left_out(broker: EmbeddedBroker) -> None:
    for number in (2, 5):
        save(parse(broker), in_batch(number), f"w{number}")

    assert texts(broker) == ["w2", "w5"]


# Saves with an id


@pytest.mark.parametrize(
    ("change", "is_repeat"),
    [
        ({}, True),
        ({"topic": "u"}, False),
        ({"txnId": "day-2"}, False),
        ({"txnName": "other"}, False),
        ({"compression": "zlib"}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("bodies", [("a",), ("b", "c")], ids=["same-rows", "other-rows"])
def test_a_save_with_an_id_is_repeated_only_to_the_same_destination(
    broker: EmbeddedBroker,
    caplog: pytest.LogCaptureFixture,
    change: dict[str, str],
    is_repeat: bool,
    bodies: tuple[str, ...],
) -> None:
    first, second = ({"spark.app.id": "app", "spark.sql.execution.root.id": n} for n in "12")
    save(parse(broker, txnId="day-1"), first, "a")

    with caplog.at_level(logging.WARNING):
        save(
            parse(broker, txnId="day-1", **change)
            if "txnId" not in change
            else parse(broker, **change),
            second,
            *bodies,
        )

    written_now = [] if is_repeat else list(bodies)
    assert sorted(texts(broker) + texts(broker, "u")) == sorted(["a", *written_now])
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == is_repeat
    assert all("committed_by='app/1'" in each for each in told)


def test_one_id_for_rows_to_other_topics_of_a_column_is_a_conflict(
    broker: EmbeddedBroker,
) -> None:
    options = SinkOptions.parse({"broker": broker.address, "txnId": "day-1"})

    def save_to(*topics: str) -> None:
        rows = pa.RecordBatch.from_pydict({"body": [f"for {each}" for each in topics], "t": topics})
        identity = batch_identity(options, uuid.uuid4().hex, in_save().get)
        told = write_rows(options, SinkColumns("body", "t"), [rows], identity, task=0)
        commit(options, [told], is_foreach=True)

    save_to()
    save_to("t", "t")
    save_to("t")
    save_to()
    with pytest.raises(WriteError, match="BATCH_CONFLICT"):
        save_to("t", "u")

    assert texts(broker) == ["for t", "for t"]
    assert texts(broker, "u") == []


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_save_of_an_earlier_version_is_a_repeat(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, is_finished: bool
) -> None:
    options, former = parse(broker, txnId="day-1"), BatchRef("save:day-1", "", 0)
    message = prepare(options, WriteIdentity(former, "old", may_repeat=True), ["a"])[0]
    assert message.receipt is not None
    if is_finished:
        broker.transactions.commit_batch(former, [message.receipt], run="old")
    else:
        decision = Decision(former, "old", ((0, message.receipt.count),))
        host = broker.writer.settings.store_host
        broker.writer.append(DecisionLookup(broker.reader).records([decision], 0, host))

    save(options, {}, "a")

    assert texts(broker) == ["a"]
    assert "an earlier version" in caplog.text
    assert broker.transactions.check_back().waiting == 0


@pytest.mark.parametrize(("choice", "expected"), [("repeat", []), ("write", ["a"])])
def test_a_save_that_the_broker_has_forgotten_is_refused(
    broker: EmbeddedBroker, choice: str, expected: list[str]
) -> None:
    batch = batch_identity(parse(broker, txnId="day-1"), "x", lambda _: None).batch
    forgotten = ForgottenStreams.of_streams([stream_tag(batch)], [""], [batch.number])
    broker.transactions._require_topics()
    host = broker.writer.settings.store_host
    broker.writer.append(DecisionLookup(broker.reader).records([forgotten], 0, host))

    with pytest.raises(WriteError, match=r"BATCH_CONFLICT.*forgotten.*onConflict=write.*txnId"):
        save(parse(broker, txnId="day-1"), {}, "a")
    assert texts(broker) == []
    save(parse(broker, txnId="day-1", onConflict=choice), {}, "a")

    assert texts(broker) == expected
    assert broker.transactions.check_back().waiting == 0


def test_a_plain_save_under_connect_warns_with_the_line_to_write(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    connect = {"spark.connect.operation_id": "c687"}
    save(parse(broker), {}, "a")
    save(parse(broker, txnId="x"), connect, "b")
    quiet = caplog.text

    save(parse(broker), connect, "c")

    assert quiet == ""
    assert '.option("txnId", ' in caplog.text
    assert texts(broker) == ["a", "b", "c"]
