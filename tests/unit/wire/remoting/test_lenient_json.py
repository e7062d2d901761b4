"""JSON as servers write it, and standard JSON, read alike."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.wire.remoting.lenient_json import _Parser, parse_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        ('{"a":{1:{2:3}}}', {"a": {"1": {"2": 3}}}),
        ('{{"b":1,"a":"x"}:[1,2.5,true,null]}', {(("a", "x"), ("b", "1")): [1, 2.5, True, None]}),
        ('{0:"a",}', {"0": "a"}),
        ('{0:"\\u00e4 \\"q\\""}', {"0": 'ä "q"'}),
        ("{}", {}),
    ],
)
def test_servers_json_is_read(text: str, value: object) -> None:
    assert parse_json(text.encode()) == value


@pytest.mark.parametrize("text", ["", "{", "{0", "{0:", "{0:1", "{0:1}x", "{0:+-}", "{0 1}", "[0"])
def test_no_json_at_all_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


def test_nesting_without_end_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested"):
        parse_json("{0:" * 1000)
    with pytest.raises(ValueError, match="nested"):
        parse_json("[" * 100_000)


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_json(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_lenient_reading_agrees_with_pythons_on_standard_texts(value: object) -> None:
    assert _Parser(json.dumps(value)).document() == value
