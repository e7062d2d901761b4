from __future__ import annotations

import pickle

import pytest

from broker_core.errors import FilterSyntaxError, RequestError
from broker_core.filter.sqlfilter import SqlFilter
from broker_core.filter.syntax_error import syntax_error


def refusal(text: str) -> FilterSyntaxError:
    with pytest.raises(FilterSyntaxError) as caught:
        SqlFilter(text)
    return caught.value


def test_message_has_place_expectation_line_and_caret() -> None:
    error = refusal("price > AND region = 'eu'")

    assert str(error) == (
        "Filter does not parse at line 1, column 9: expected a property, a number, a text in"
        " quotes or '(', found keyword AND.\n"
        "  price > AND region = 'eu'\n"
        "          ^"
    )
    assert (error.line, error.column) == (1, 9)


@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
def test_lines_end_as_in_any_of_the_three_ways(line_end: str) -> None:
    error = refusal(line_end.join(["a = 1", "AND b >", "OR c"]))

    assert (error.line, error.column) == (3, 1)
    assert str(error).splitlines()[1:] == ["  OR c", "  ^"]


def test_tabs_before_the_caret_stay_tabs() -> None:
    assert str(refusal("\ta\t= !")).splitlines()[1:] == ["  \ta\t= !", "  \t \t  ^"]


def test_long_line_is_shown_around_the_caret_only() -> None:
    error = refusal("x" * 1000 + " = ! " + "y" * 1000)

    _, shown, caret = str(error).splitlines()
    assert error.column == 1004
    assert shown[caret.index("^")] == "!"
    assert len(shown) < 130


def test_end_of_the_text_is_pointed_at() -> None:
    assert str(refusal("a =")).splitlines()[1:] == ["  a =", "     ^"]


def test_error_is_a_request_error_and_survives_pickling() -> None:
    error = syntax_error("a !", 2, "no")

    copy: FilterSyntaxError = pickle.loads(pickle.dumps(error))

    assert isinstance(copy, RequestError)
    assert (str(copy), copy.line, copy.column) == (str(error), 1, 3)
