from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from broker_core.filter.sqlfilter import SqlFilter

TEXT = "price > 5 AND region = 'eu'"


def test_verdicts_are_words_in_the_order_of_the_messages() -> None:
    messages = [{"price": "7", "region": "eu"}, {"price": "3"}, {"price": "7"}, {"price": "x"}, {}]

    assert SqlFilter(TEXT).verdicts(messages) == ["true", "false", "null", "error", "null"]


def test_properties_are_those_mentioned_each_once_and_sorted() -> None:
    assert SqlFilter("b = 1 OR a > b AND c NOT IN ('x')").properties == ("a", "b", "c")


def test_dropped_end_is_told() -> None:
    assert SqlFilter("zone LIKE 'e_'").dropped == "LIKE 'e_'"


def test_description_is_the_filter_as_understood() -> None:
    assert SqlFilter("NOT a = 1 and b>2 LIKE").describe() == "((NOT a = 1) AND (b > 2))"


def test_filter_pickles_by_its_text_and_shows_it() -> None:
    original = SqlFilter(TEXT)

    copy = pickle.loads(pickle.dumps(original))

    assert copy == original
    assert hash(copy) == hash(original)
    assert repr(copy) == f"SqlFilter({TEXT!r})"
    assert TEXT.encode() in pickle.dumps(original)
    assert copy != SqlFilter("price > 5")


def test_value_that_is_not_text_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="property price is 7 of type int"):
        SqlFilter(TEXT).verdicts([{"price": 7}])  # type: ignore[dict-item]  # that is the point


def test_selection_is_a_mask_of_all_rows() -> None:
    columns = {"price": pa.array(["7", "3", None, "x"]), "region": pa.array(["eu"] * 4)}

    selected = SqlFilter(TEXT).select(columns, 4)

    assert selected.dtype == np.bool_
    assert selected.tolist() == [True, False, False, False]


def test_column_that_is_missing_is_on_no_message() -> None:
    assert SqlFilter("a IS NULL").select({"b": pa.array(["x"] * 3)}, 3).tolist() == [True] * 3


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([["7"], ["3", None]]),
        pa.array(["7", "3", None], pa.large_string()),
        pa.array(["7", "3", None]).dictionary_encode(),
        pa.array(["0", "7", "3", None, "9"]).slice(1, 3),
        pa.array(["7", "3", None], pa.string_view()),
    ],
    ids=["chunked", "large", "dictionary", "slice", "view"],
)
@pytest.mark.parametrize("text", ["a > 5", "a = '7'", "a CONTAINS '7'", "a IN ('7')", "a > 5.5"])
def test_columns_may_be_of_any_string_type(column: pa.Array, text: str) -> None:
    assert SqlFilter(text).select({"a": column}, 3).tolist() == [True, False, False]


def test_columns_of_different_string_types_are_compared() -> None:
    columns = {"a": pa.array(["x", "y"]), "b": pa.array(["x", "z"], pa.large_string())}

    assert SqlFilter("a = b").select(columns, 2).tolist() == [True, False]


def test_column_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="property a has 2 rows, the batch 3"):
        SqlFilter("a = 'x'").select({"a": pa.array(["x", "y"])}, 3)


def test_batch_without_rows_is_fine() -> None:
    assert SqlFilter("a > 5 OR b IN ('x') OR a = TRUE").select({}, 0).tolist() == []


def test_result_may_be_written_to() -> None:
    selected = SqlFilter("TRUE").select({}, 2)
    selected &= False

    assert not selected.any()
