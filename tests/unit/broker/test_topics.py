from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.offsets import ConsumerOffsets, load_delay_offsets
from broker_core.broker.topics import TopicConfig, TopicTable
from broker_core.errors import CorruptRecordError
from tests.kit import fixtures


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_table_of_apache_reads_and_renders_the_same_rows(tmp_path: Path) -> None:
    path = fixtures.extract("basic-5.5", tmp_path) / "config" / "topics.json"
    original = json.loads(path.read_text(encoding="utf-8"))

    document = TopicTable.load(path).document(now_ms=5)

    assert document["topicConfigTable"] == original["topicConfigTable"]
    assert document["dataVersion"]["counter"] == original["dataVersion"]["counter"] + 1


def test_fields_of_other_releases_are_kept(tmp_path: Path) -> None:
    row = TopicConfig("t", 4, 4).document() | {"liteExpiration": -1}
    path = written(tmp_path / "topics.json", {"topicConfigTable": {"t": row}, "extra": [1]})

    document = TopicTable.load(path).put(TopicConfig("u", 1, 1)).document(now_ms=5)

    assert document["topicConfigTable"]["t"] == row
    assert document["extra"] == [1]


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ([], "no object"),
        ({"t": 3}, "topic t is no object"),
        ({"t": {"readQueueNums": -1}}, "readQueueNums of topic t is -1"),
        ({"t": {"writeQueueNums": "4"}}, "writeQueueNums of topic t is '4'"),
        ({"t": {"perm": None}}, "perm of topic t is None"),
        ({"t": {"readQueueNums": 10**12}}, "expected 0 to 65536"),
        ({"t": {"attributes": [1]}}, "attributes of topic t"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(tmp_path: Path, table: object, what: str) -> None:
    path = written(tmp_path / "topics.json", {"topicConfigTable": table})

    with pytest.raises(CorruptRecordError, match=what) as caught:
        TopicTable.load(path)
    assert caught.value.path == str(path)


def test_offsets_are_kept_by_topic_and_group(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text(
        '{"offsetTable":{"t@g":{0:12,1:7},"%RETRY%g@g":{0:4}},"pullOffsetTable":{}}',
        encoding="utf-8",
    )

    offsets = ConsumerOffsets.load(path)

    assert offsets.of("g", "t") == {0: 12, 1: 7}
    assert offsets.of("nobody", "t") == {}
    changed = offsets.put("g", "t", 1, 9).without_topic("%RETRY%g").next_version(now_ms=5)
    document = json.loads(changed.encoded())
    assert document["offsetTable"] == {"t@g": {"0": 12, "1": 9}}
    assert document["pullOffsetTable"] == {}


@pytest.mark.parametrize("table", [[], {"t": {"0": 1}}, {"t@g": 3}, {"t@g": {"0": "x"}}])
def test_offsets_that_make_no_sense_are_reported(tmp_path: Path, table: object) -> None:
    path = written(tmp_path / "consumerOffset.json", {"offsetTable": table})

    with pytest.raises(CorruptRecordError, match="is damaged"):
        ConsumerOffsets.load(path)


def test_delay_offsets_are_read_by_level(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_text('{"offsetTable":{1:10,3:4}}', encoding="utf-8")

    assert load_delay_offsets(path) == {1: 10, 3: 4}
