from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.types import BatchRef
from pyspark_rocketmq.options.options import SinkOptions
from pyspark_rocketmq.sink.fingerprint import NO_ROWS, RowSum, fingerprints, save_fingerprint
from pyspark_rocketmq.sink.rows import Composer
from pyspark_rocketmq.sink.schema import SinkColumns

COLUMNS = SinkColumns(
    "body", "topic", "tags", "keys", "properties", "queueId", "shardingKey", "delayLevel"
)
SCHEMA = pa.schema(
    {
        "body": pa.binary(),
        "topic": pa.string(),
        "tags": pa.string(),
        "keys": pa.list_(pa.string()),
        "properties": pa.map_(pa.string(), pa.string()),
        "queueId": pa.int32(),
        "shardingKey": pa.string(),
        "delayLevel": pa.int32(),
    }
)
ROW: dict[str, Any] = {
    "body": b"a",
    "topic": "t",
    "tags": "red",
    "keys": ["k1", "k2"],
    "properties": [("p", "1"), ("q", "2")],
    "queueId": 0,
    "shardingKey": "s",
    "delayLevel": 1,
}
NOT_IN_VERSION_1: list[dict[str, Any]] = [
    {"queueId": 1},
    {"queueId": None},
    {"shardingKey": "z"},
    {"shardingKey": None},
    {"delayLevel": 2},
    {"delayLevel": None},
    {"queueId": 1, "delayLevel": 0},
]
CHANGES: list[dict[str, Any]] = [
    {"body": b"b"},
    {"topic": "u"},
    {"tags": None},
    {"tags": "blue"},
    {"keys": ["k1"]},
    {"keys": []},
    {"properties": [("p", "1"), ("q", "3")]},
    {"properties": [("p", "1"), ("r", "2")]},
    {"properties": None},
    {"tags": "a", "body": b"red"},
    {"tags": "s", "shardingKey": "red"},
    *NOT_IN_VERSION_1,
]
BATCH = BatchRef("query:6e0a", "", 1)

words = st.text("abc", min_size=1, max_size=3)
row = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=20),
        "topic": st.sampled_from(["t", "u"]),
        "tags": st.none() | words,
        "keys": st.none() | st.lists(words, max_size=3),
        "properties": st.none() | st.lists(st.tuples(words, words), max_size=3),
        "queueId": st.none() | st.integers(0, 1),
        "shardingKey": st.none() | words,
        "delayLevel": st.none() | st.integers(0, 3),
    }
)


def sum_of(rows: list[dict[str, Any]], *, cut: int | None = None) -> RowSum:
    """The sum of some rows as a task makes it, in two calls if they are cut."""
    options = SinkOptions.parse({"broker": "file:/s"})
    composer = Composer(options, COLUMNS, lambda _: 2, is_transactional=True)
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    for part in (batch.slice(0, cut), batch.slice(cut)) if cut is not None else (batch,):
        composer.compose(part)
    return composer.total


def options(checkpoint: str | None = None, **given: str) -> SinkOptions:
    where = {} if checkpoint is None else {"checkpointlocation": checkpoint}
    return SinkOptions.parse({"broker": "file:/s", "topic": "t", **where, **given})


def fingerprint(given: SinkOptions, batch: BatchRef, sums: list[RowSum]) -> str:
    return fingerprints(given, batch, sums)[0]


def log_offsets(folder: Path, *, query: str = "6e0a", times: str = "1", end: str = "9") -> Path:
    """A checkpoint with the offsets of two batches; `end` is that of the second."""
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    (folder / "offsets" / "0").write_text(f'v1\n{{"batchTimestampMs":{times}}}\n{{"t":5}}')
    (folder / "offsets" / "1").write_text(f'v1\n{{"batchTimestampMs":{times}}}\n{end}')
    return folder


@settings(max_examples=40)
@given(st.lists(row, min_size=1, max_size=8), st.data())
def test_a_sum_does_not_depend_on_order_or_division(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))

    assert sum_of(rows) == sum_of(shuffled)
    assert sum_of(rows) == sum_of(rows, cut=cut)
    assert sum_of(rows) == sum((sum_of(part) for part in (rows[:cut], rows[cut:])), NO_ROWS)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("change", CHANGES, ids="-".join)
def test_a_sum_tells_rows_that_differ_in_one_field(change: dict[str, Any]) -> None:
    others = [ROW | {"body": b"%d" % number} for number in range(20)]

    assert sum_of([*others, ROW]) != sum_of([*others, ROW | change])


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("cut", [None, 0, 1, 2])
@pytest.mark.parametrize(
    "other",
    [[("x", "11"), ("y", "2")], [("xy", "1"), ("x", "12")], [("x", "112")]],
    ids=str,
)
def test_a_sum_tells_where_one_property_ends_and_the_next_begins(
    other: list[tuple[str, str]], cut: int | None
) -> None:
    one, two = (ROW | {"properties": each} for each in ([("x", "1"), ("y", "12")], other))

    assert sum_of([ROW, one], cut=cut) != sum_of([ROW, two], cut=cut)


@pytest.mark.parametrize("change", NOT_IN_VERSION_1, ids=str)
def test_the_sum_of_version_1_is_made_along(change: dict[str, Any]) -> None:
    former, others = sum_of([ROW]).former, sum_of([ROW | change])
    plain = dict.fromkeys(("properties", "queueId", "shardingKey", "delayLevel"))

    assert former == 15387253909771806760  # as it is in stores
    assert others.former == former
    assert sum_of([ROW | plain]).former == sum_of([ROW | plain]).digests


def test_a_sum_counts_equal_rows() -> None:
    sums = {sum_of([ROW] * count) for count in range(5)}

    assert len(sums) == 5


def test_sums_wrap_around() -> None:
    assert RowSum(1, 2**64 - 1) + RowSum(1, 3) == RowSum(2, 2)


def test_without_a_local_checkpoint_the_rows_count() -> None:
    places = [None, "s3a://bucket/c", "hdfs://host/c", "file://other/c", "file:c", "c", "/no/c"]
    one, other = [RowSum(1, 7)], [RowSum(1, 8)]

    found = {fingerprint(options(place), BATCH, one) for place in places}

    assert len(found) == 1
    assert all(each.startswith("2r:") for each in found)
    assert fingerprint(options(), BATCH, other) not in found


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_with_a_local_checkpoint_the_offsets_count(tmp_path: Path, form: str) -> None:
    place = form.format(log_offsets(tmp_path))
    first = fingerprint(options(place), BATCH, [RowSum(1, 7)])

    log_offsets(tmp_path, times="2")
    replayed = fingerprint(options(place), BATCH, [RowSum(1, 8)])
    log_offsets(tmp_path, end="10")
    restored = fingerprint(options(place), BATCH, [RowSum(1, 7)])

    assert first.startswith("2o:")
    assert first == replayed != restored
    assert first.isascii()
    assert len(first) < 64


@pytest.mark.parametrize("name", ["q#2", "q?x=1", "my%20ck", "my ck", "a:b", "r"])
@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_a_path_is_taken_as_it_is(tmp_path: Path, form: str, name: str) -> None:
    for other in ("q", "my ck", "my%20ck"):
        log_offsets(tmp_path / other, end="10")
    place = log_offsets(tmp_path / name)
    by_path = fingerprint(options(str(place)), BATCH, [])

    assert by_path.startswith("2o:")
    assert fingerprint(options(form.format(place)), BATCH, []) == by_path
    assert by_path != fingerprint(options(str(tmp_path / "q")), BATCH, [])


def test_a_relative_path_begins_at_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = log_offsets(tmp_path / "a" / "b")
    monkeypatch.chdir(tmp_path)

    found = {fingerprint(options(each), BATCH, []) for each in ("a/b", "./a/b", str(place))}

    assert len(found) == 1
    assert found.pop().startswith("2o:")


def test_a_folder_is_one_however_it_is_spelled(tmp_path: Path) -> None:
    place = log_offsets(tmp_path / "a")
    (tmp_path / "link").symlink_to(place)
    (tmp_path / "b").mkdir()
    spelled = [str(place), f"{tmp_path}/b/../a", f"file:{tmp_path}/link", f"{place}/"]

    found = [fingerprints(options(each), BATCH, []) for each in spelled]

    assert len({each[0] for each in found}) == 1
    # As it was spelled is how an earlier version named it.
    assert [len(each) for each in found] == [3, 4, 4, 3]


@pytest.mark.parametrize(
    "other",
    [RowSum(3, 7, frozenset("t")), RowSum(2, 7, frozenset("u")), RowSum(2, 7, frozenset("tu"))],
    ids=["rows", "another topic", "one more topic"],
)
def test_beside_the_offsets_the_number_of_rows_and_their_topics_count(
    tmp_path: Path, other: RowSum
) -> None:
    place = str(log_offsets(tmp_path))
    parts = [RowSum(1, 3, frozenset("t")), RowSum(1, 4, frozenset("t"))]

    first, *former = fingerprints(options(place), BATCH, parts)
    found, *of_other = fingerprints(options(place), BATCH, [other])

    assert first == fingerprint(options(place), BATCH, parts[::-1])
    assert found != first
    assert former[0] == of_other[0]


def test_a_first_batch_is_told_by_its_start_and_by_its_number_of_rows(tmp_path: Path) -> None:
    first, entry = BatchRef(BATCH.owner, "", 0), log_offsets(tmp_path) / "offsets" / "0"
    found = []
    for start in (0, 5):
        entry.write_text(f'v1\n{{}}\n{{"t":5,"@start":{{"t":{start}}}}}')
        found += [fingerprint(options(str(tmp_path)), first, [RowSum(rows)]) for rows in (0, 5)]

    assert len(set(found)) == 4
    assert all(each.startswith("2o:") for each in found)


def test_a_copy_of_a_checkpoint_has_other_fingerprints(tmp_path: Path) -> None:
    places = [log_offsets(tmp_path / name) for name in ("one", "copy")]

    found = [fingerprints(options(str(place)), BATCH, []) for place in places]

    assert found[0][0] != found[1][0]
    assert found[0][1:] == found[1][1:]


def test_the_fingerprints_of_version_1_are_known(tmp_path: Path) -> None:
    """As they are in stores: these texts must not change."""
    place = str(log_offsets(tmp_path))

    by_offsets = fingerprints(options(place), BATCH, [RowSum(2, 8, former=7)])
    by_rows = fingerprints(options(), BATCH, [RowSum(2, 8, former=7)])

    assert by_offsets[1:] == [
        "1o:a2c16e2ee2ff7637521df99e8015ffb0",
        "1r:5029d2752c8d38353f9f38d4ccf82166",
    ]
    assert by_rows[1:] == ["1r:5029d2752c8d38353f9f38d4ccf82166"]


def test_a_save_with_an_id_is_known_by_the_topics_of_its_column() -> None:
    tu, t = RowSum(2, 7, frozenset("tu")), RowSum(1, 3, frozenset("t"))

    assert save_fingerprint([tu, t]) == save_fingerprint([tu]) != save_fingerprint([t])
    assert save_fingerprint([RowSum(1, 3)]) == save_fingerprint([]) == ""


def test_the_destination_counts_and_the_form_of_an_address_does_not(tmp_path: Path) -> None:
    place = str(log_offsets(tmp_path))
    given = [{"topic": "t"}, {"topic": "u"}, {"topic": "t", "broker": "grpc://h:1"}]

    found = [fingerprint(options(place, **each), BATCH, []) for each in given]
    column = SinkOptions.parse({"broker": "file:/s", "checkpointLocation": place})

    assert found[0] == found[2]
    assert len({*found, fingerprint(column, BATCH, [])}) == 3


def test_offsets_that_say_nothing_about_rows_do_not_count(tmp_path: Path) -> None:
    place = str(log_offsets(tmp_path, end='{"logOffset":1}'))

    assert fingerprint(options(place), BATCH, []).startswith("2r:")


def test_the_checkpoint_of_another_query_does_not_count(tmp_path: Path) -> None:
    place = str(log_offsets(tmp_path, query="other"))

    assert fingerprint(options(place), BATCH, []).startswith("2r:")


@pytest.mark.parametrize("damaged", ["metadata", "offsets/0", "offsets/1"])
def test_a_checkpoint_that_can_not_be_read_does_not_count(tmp_path: Path, damaged: str) -> None:
    place = str(log_offsets(tmp_path))

    (tmp_path / damaged).unlink()
    assert fingerprint(options(place), BATCH, []).startswith("2r:")
    (tmp_path / damaged).mkdir()
    assert fingerprint(options(place), BATCH, []).startswith("2r:")
