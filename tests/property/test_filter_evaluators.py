"""Laws of SQL92 filters, over filters and messages that hypothesis makes up."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker_core.errors import FilterSyntaxError
from broker_core.filter.sql92.parser import parse
from broker_core.filter.sql92.render import render
from broker_core.filter.sqlfilter import SqlFilter
from tests.interop.filter.cases import FLOATS, INTEGERS, NUMERALS, TEXTS
from tests.unit.filter.evaluators import columnar, scalar

pytestmark = pytest.mark.usefixtures("either_way")

names = st.sampled_from(["a", "b", "c"])
words = st.sampled_from(TEXTS) | st.sampled_from(NUMERALS) | st.text(max_size=4)
numerals = (
    st.sampled_from(NUMERALS)
    | st.integers(-(2**64), 2**64).map(str)
    | st.floats().map(repr)
    | st.from_regex(r"[ +-]?[0-9.]{0,6}([eE][+-]?[0-9]{1,3})?[fd ]?", fullmatch=True)
)
values = words | numerals
messages = st.lists(st.dictionaries(names, values), min_size=1, max_size=8)

literals = st.sampled_from(INTEGERS + FLOATS) | st.integers(0, 2**63 - 1).map(str)
numbers = literals | literals.map("- {}".format)
quoted = values.map(lambda text: "'" + text.replace("'", "''") + "'")
truths = st.sampled_from(["TRUE", "FALSE", "NULL"])
negation = st.sampled_from(["", "NOT "])


def operations(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Conditions over operands that may be conditions in parentheses."""
    grouped = inner.map("({})".format)
    ordered = names | numbers | names.map("- {}".format) | grouped.map("-{}".format)
    anything = ordered | quoted | truths | grouped
    listed = st.lists(quoted, min_size=1, max_size=3).map(", ".join)
    orders, equals = st.sampled_from([">", ">=", "<", "<="]), st.sampled_from(["=", "<>"])
    parts = st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"])
    return st.one_of(
        st.tuples(ordered, orders, ordered).map(" ".join),
        st.tuples(anything, equals, anything).map(" ".join),
        st.builds("{} {}BETWEEN {} AND {}".format, ordered, negation, ordered, ordered),
        st.builds("{} {}IN ({})".format, names, negation, listed),
        st.builds("{} {}{} {}".format, anything, negation, parts, quoted),
        st.builds("{} IS {}NULL".format, anything, negation),
        st.builds("{} AND {}".format, grouped, grouped),
        st.builds("{} OR {}".format, grouped, grouped),
        st.builds("NOT {}".format, grouped),
    )


filters = st.recursive(names | truths, operations, max_leaves=12)


def compiled(text: str) -> SqlFilter:
    """The filter, if it passes the checks that are made when it is parsed."""
    try:
        return SqlFilter(text)
    except FilterSyntaxError:
        assume(False)
        raise


@settings(max_examples=500)
@given(filters, messages)
def test_columnar_verdicts_are_the_scalar_ones(text: str, batch: list[dict[str, str]]) -> None:
    sql = compiled(text)

    assert columnar(sql, batch) == scalar(sql, batch)


@given(filters, messages)
def test_verdict_does_not_depend_on_other_messages(text: str, batch: list[dict[str, str]]) -> None:
    sql = compiled(text)

    assert columnar(sql, batch) == [columnar(sql, [message])[0] for message in batch]


@given(filters)
def test_description_parses_to_the_same_filter(text: str) -> None:
    root = compiled(text)._root

    assert parse(render(root)).root == root


@given(filters, messages)
def test_properties_not_mentioned_do_not_matter(text: str, batch: list[dict[str, str]]) -> None:
    sql = compiled(text)
    bare = [{name: m[name] for name in sql.properties if name in m} for m in batch]

    assert scalar(sql, bare) == scalar(sql, batch)
