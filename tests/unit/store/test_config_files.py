from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import CorruptRecordError
from broker_core.store import config_files
from broker_core.store.io.files import OsFiles


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ('{"a":{0:12,1:7}}', {"a": {"0": 12, "1": 7}}),
        ('{"a":{ -3 : 1 ,\n\t12\t:2}}', {"a": {"-3": 1, "12": 2}}),
        ('{"a":"{0:12,1:7}"}', {"a": "{0:12,1:7}"}),
        ('{"a":"say \\"{1:2}\\" twice","b":{1:2}}', {"a": 'say "{1:2}" twice', "b": {"1": 2}}),
        ('{"a":[1,2],"b":3}', {"a": [1, 2], "b": 3}),
    ],
)
def test_bare_integer_keys_are_read_outside_of_strings(text: str, document: object) -> None:
    assert config_files.parse(text) == document


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)


@pytest.mark.property
@given(st.dictionaries(st.text(), JSON_VALUES))
def test_a_rendered_document_reads_back_equal(document: dict[str, object]) -> None:
    assert config_files.parse(config_files.render(document)) == document


@pytest.mark.property
@given(st.text())
def test_any_text_is_a_document_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(config_files.parse(text), dict)


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    with pytest.raises(ValueError, match=r"nested|recursion|Expecting"):
        config_files.parse('{"a":' + "[" * 200_000)


def test_the_backup_is_read_when_the_file_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"a":1', encoding="utf-8")
    config_files.backup(path).write_text('{"a":0}', encoding="utf-8")

    assert config_files.load(path) == {"a": 0}


def test_the_backup_is_read_when_the_file_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    config_files.backup(path).write_text('{"a":0}', encoding="utf-8")

    assert config_files.load(path) == {"a": 0}


def test_no_file_at_all_is_an_empty_document(tmp_path: Path) -> None:
    assert config_files.load(tmp_path / "topics.json") == {}


@pytest.mark.parametrize("damage", [b'{"a":1', b"[1]", b"\xff\xfe", b"null"])
def test_damage_without_a_backup_is_reported_with_its_place(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(damage)

    with pytest.raises(CorruptRecordError, match=r"topics\.json is damaged") as caught:
        config_files.load(path)
    assert caught.value.path == str(path)


def test_persisting_keeps_the_version_before(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"

    config_files.persist(OsFiles(), path, {"n": 1})
    config_files.persist(OsFiles(), path, {"n": 2})

    assert json.loads(path.read_text(encoding="utf-8")) == {"n": 2}
    assert json.loads(config_files.backup(path).read_text(encoding="utf-8")) == {"n": 1}
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        "topics.json",
        "topics.json.bak",
    ]


def test_integer_keys_are_written_quoted(tmp_path: Path) -> None:
    assert config_files.render({"t@g": {"0": 12}}) == '{\n\t"t@g":{\n\t\t"0":12\n\t}\n}'
