from __future__ import annotations

from pyspark_rocketmq.options.options import SinkOptions
from pyspark_rocketmq.sink.batch_identity import batch_identity, fresh_save_id, stream_identity

IN_STREAM = {
    "sql.streaming.queryId": "6e0a",
    "streaming.sql.batchId": "12",
    "spark.jobGroup.id": "run-1",
}


def options(**given: str) -> SinkOptions:
    return SinkOptions.parse({"broker": "file:/s", **given})


def test_a_streaming_batch_is_known_by_query_and_number() -> None:
    identity = stream_identity(options(), IN_STREAM.get)

    assert str(identity.batch) == "batch 12 of query:6e0a"
    assert (identity.run, identity.may_repeat) == ("run-1", True)


def test_the_runs_of_a_query_write_the_same_batch() -> None:
    replayed = {**IN_STREAM, "spark.jobGroup.id": "run-2"}

    assert (
        stream_identity(options(), IN_STREAM.get).batch
        == stream_identity(options(), replayed.get).batch
    )


def test_writes_of_one_foreach_batch_are_kept_apart_by_name_or_topic() -> None:
    found = [
        batch_identity(options(**given), "save", IN_STREAM.get).batch
        for given in ({"txnName": "a"}, {"txnName": "b"}, {"topic": "t"}, {"topic": "u"}, {})
    ]

    assert len(set(found)) == 5
    assert {(batch.owner, batch.number) for batch in found} == {("query:6e0a", 12)}


def test_a_name_goes_before_the_topic() -> None:
    first = batch_identity(options(txnName="a", topic="t"), "save", IN_STREAM.get)
    second = batch_identity(options(txnName="a", topic="u"), "save", IN_STREAM.get)

    assert first == second


def test_a_plain_save_is_known_only_if_the_user_names_it() -> None:
    nothing: dict[str, str] = {}

    named = batch_identity(options(txnId="load-7"), fresh_save_id(), nothing.get)
    again = batch_identity(options(txnId="load-7"), fresh_save_id(), nothing.get)
    one = batch_identity(options(), fresh_save_id(), nothing.get)
    other = batch_identity(options(), fresh_save_id(), nothing.get)

    assert named.batch == again.batch
    assert named.may_repeat
    assert one.batch != other.batch
    assert not one.may_repeat


def test_a_saves_name_is_never_taken_for_a_querys() -> None:
    nothing: dict[str, str] = {}

    save = batch_identity(options(txnId="6e0a"), "save", nothing.get)

    assert save.batch.owner != stream_identity(options(), IN_STREAM.get).batch.owner
