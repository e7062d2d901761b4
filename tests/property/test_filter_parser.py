"""Any text at all is a filter or a FilterSyntaxError, after work in proportion to its length."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from broker_core.errors import FilterSyntaxError
from broker_core.filter.sql92.parser import parse
from broker_core.filter.tag_expression import TagFilter
from tests.interop.filter.cases import (
    BLANKS,
    FLOATS,
    INTEGERS,
    NAMES,
    ODDITIES,
    SYMBOLS,
    TEXTS,
    WORDS,
)

# Calls, of Python and C functions, that one character may cost at most; a token costs about 40.
CALLS_PER_CHARACTER = 80
CALLS_AT_LEAST = 500

soup = st.lists(
    st.sampled_from(
        [
            *(*NAMES, *INTEGERS, *FLOATS, *SYMBOLS * 3, *WORDS * 2, *ODDITIES, *BLANKS),
            *("'" + text.replace("'", "''") + "'" for text in TEXTS),
        ]
    ),
    max_size=40,
)
texts = st.text(max_size=60) | soup.map("".join) | soup.map(" ".join)


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions are called, which does not depend on the machine."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def refusal(text: str) -> FilterSyntaxError | None:
    try:
        parse(text)
    except FilterSyntaxError as error:
        return error
    return None


@given(texts)
@example("(" * 5000)
@example("NOT " * 2000 + "a")
@example("a" + " BETWEEN 1 AND 2" * 300)
@example("-(" * 300 + "a" + " BETWEEN 1 AND 2)" * 300 + " IS NULL")
@example("a = '" + "''" * 1000)
@example("- " * 1000)
def test_any_text_is_a_filter_or_a_syntax_error_with_linear_work(text: str) -> None:
    calls = calls_of(lambda: refusal(text))

    assert calls <= CALLS_AT_LEAST + CALLS_PER_CHARACTER * len(text)


@given(texts)
def test_syntax_error_points_into_the_text(text: str) -> None:
    error = refusal(text)
    assume(error is not None)
    assert error is not None

    before = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[: error.line]
    assert 1 <= error.column <= len(before[-1]) + 1
    assert str(error).splitlines()[-1].endswith("^")


@given(st.text(alphabet="AaB|* \t\u00a0\u8ba2", max_size=12))
def test_any_tag_expression_names_stripped_tags_or_is_a_syntax_error(text: str) -> None:
    try:
        tags = TagFilter(text).tags
    except FilterSyntaxError:
        assert text.replace("||", "") == ""
        return

    assert tags is None or all(tag.strip(" \t") == tag and "||" not in tag for tag in tags)
