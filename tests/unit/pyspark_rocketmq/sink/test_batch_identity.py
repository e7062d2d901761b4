from __future__ import annotations

import pytest

from broker_core.types import BatchRef
from pyspark_rocketmq.errors import WriteError
from pyspark_rocketmq.options.options import SinkOptions
from pyspark_rocketmq.sink.batch_identity import (
    batch_identity,
    fresh_save_id,
    run_of,
    stream_identity,
)

NOTHING: dict[str, str] = {}
IN_STREAM = {
    "sql.streaming.queryId": "6e0a",
    "streaming.sql.batchId": "12",
    "spark.jobGroup.id": "5cccd0a3",
    "spark.app.id": "app-1",
    "spark.sql.execution.root.id": "7",
}


def options(**given: str) -> SinkOptions:
    return SinkOptions.parse({"broker": "file:/s", **given})


def test_a_streaming_batch_is_known_by_query_and_number() -> None:
    identity = stream_identity(options(), IN_STREAM.get)

    assert str(identity.batch) == "batch 12 of query:6e0a"
    assert (identity.run, identity.may_repeat) == ("app-1/7", True)


def test_the_runs_of_a_query_write_the_same_batch() -> None:
    replayed = {**IN_STREAM, "spark.app.id": "app-2"}

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
    named = batch_identity(options(txnId="load-7"), fresh_save_id(), NOTHING.get)
    again = batch_identity(options(txnId="load-7"), fresh_save_id(), NOTHING.get)
    one = batch_identity(options(), fresh_save_id(), NOTHING.get)
    other = batch_identity(options(), fresh_save_id(), NOTHING.get)

    assert named.batch == again.batch
    assert named.may_repeat
    assert one.batch != other.batch
    assert not one.may_repeat


def test_a_saves_name_is_never_taken_for_a_querys() -> None:
    save = batch_identity(options(txnId="6e0a"), "save", NOTHING.get)

    assert save.batch.owner != stream_identity(options(), IN_STREAM.get).batch.owner


IN_STREAM_SESSION = {
    "spark.app.id": "app-1",
    "spark.sql.execution.root.id": "9",
    "spark.sql.cbo.enabled": "false",
    "spark.sql.requireAllClusterKeysForDistribution": "false",
}
CONNECT = {"spark.connect.operation_id": "c687"}
OF_THE_USER = {
    "spark.jobGroup.id": "mine",
    "spark.job.description": "mine",
    "spark.job.interruptOnCancel": "true",
    "spark.scheduler.pool": "mine",
    "spark.job.tags": "mine",
}


@pytest.mark.parametrize("connect", [{}, CONNECT], ids=["thread", "connect"])
def test_a_write_of_a_foreach_batch_without_a_batch_is_refused(connect: dict[str, str]) -> None:
    given = IN_STREAM_SESSION | connect

    with pytest.raises(WriteError, match=r"BATCH_UNKNOWN.*Add \.option\(\"txnId\", .*batch_id"):
        batch_identity(options(topic="t"), "save", given.get)

    named = batch_identity(options(topic="t", txnId="q-7"), "save", given.get)
    assert named.batch.owner == "save:q-7"
    assert named.may_repeat


@pytest.mark.parametrize("given", [IN_STREAM, IN_STREAM_SESSION, IN_STREAM_SESSION | CONNECT])
def test_an_id_names_a_write_of_a_foreach_batch_wherever_it_runs(given: dict[str, str]) -> None:
    named = batch_identity(options(topic="t", txnId="q-7"), "save", given.get)

    assert named.batch == BatchRef("save:q-7", "to:t", 0)
    assert named.is_in_query
    assert not named.is_query
    assert not batch_identity(options(topic="t", txnId="q-7"), "save", NOTHING.get).is_in_query


@pytest.mark.parametrize("value", ["true", None])
def test_a_setting_that_users_know_does_not_hide_a_stream_s_session(value: str | None) -> None:
    given = IN_STREAM_SESSION | {"spark.sql.cbo.enabled": value}

    with pytest.raises(WriteError, match="BATCH_UNKNOWN"):
        batch_identity(options(topic="t"), "save", given.get)


@pytest.mark.parametrize("value", ["true", None])
def test_a_session_without_the_setting_that_only_spark_makes_is_no_stream_s(
    value: str | None,
) -> None:
    given = IN_STREAM_SESSION | {"spark.sql.requireAllClusterKeysForDistribution": value}

    assert not batch_identity(options(topic="t"), "save", given.get).may_repeat


def test_a_write_that_is_told_its_batch_is_never_refused() -> None:
    given = IN_STREAM | IN_STREAM_SESSION | CONNECT

    assert batch_identity(options(), "save", given.get).batch.owner == "query:6e0a"


def test_a_plain_save_under_connect_says_so() -> None:
    assert batch_identity(options(topic="t"), "save", CONNECT.get).is_connect
    assert not batch_identity(options(topic="t"), "save", NOTHING.get).is_connect


@pytest.mark.parametrize("name", OF_THE_USER)
def test_nothing_that_the_user_may_set_or_clear_names_the_run(name: str) -> None:
    set_, cleared = IN_STREAM | {name: OF_THE_USER[name]}, dict(IN_STREAM)
    cleared.pop(name, None)

    found = [
        make.run
        for given in (IN_STREAM, set_, cleared)
        for make in (
            stream_identity(options(), given.get),
            batch_identity(options(), "save", given.get),
        )
    ]

    assert set(found) == {"app-1/7"}


def test_each_run_of_a_batch_has_another_name() -> None:
    again = IN_STREAM | {"spark.sql.execution.root.id": "8"}
    elsewhere = IN_STREAM | {"spark.app.id": "app-2"}
    attempts = [IN_STREAM | {"spark.app.startTime": time} for time in ("1795026959047", "8")]

    found = {run_of(given.get) for given in (IN_STREAM, again, elsewhere, *attempts)}

    assert len(found) == 5
    assert "app-1/1795026959047/7" in found
    assert run_of(NOTHING.get) == ""


@pytest.mark.parametrize("name", [{}, {"txnName": "a"}], ids=["unnamed", "named"])
def test_saves_with_one_id_are_kept_apart_by_destination(name: dict[str, str]) -> None:
    found = [
        batch_identity(options(txnId="day-1", **name, **topic), "save", NOTHING.get)
        for topic in ({"topic": "inv"}, {"topic": "pay"}, {})
    ]

    assert len({identity.batch for identity in found}) == 3
    # All of them were one before; it is never the name of a new save.
    assert {identity.former for identity in found} == {
        BatchRef("save:day-1", name.get("txnName", ""), 0)
    }
    assert not {identity.former for identity in found} & {identity.batch for identity in found}


@pytest.mark.parametrize("name", ["to:t", "a to:t", "a to:t to:t"])
def test_a_name_that_looks_like_a_destination_is_not_taken_for_a_former_save(name: str) -> None:
    plain = [{"topic": "t"}, {"topic": "t", "txnName": "a"}, {"topic": "t", "txnName": "a to:t"}]
    found = batch_identity(options(txnId="n1", topic="u", txnName=name), "save", NOTHING.get)

    others = {
        batch_identity(options(txnId="n1", **each), "save", NOTHING.get).batch for each in plain
    }

    assert found.former is None
    assert found.batch not in others
