from __future__ import annotations

import pytest

from broker_core.errors import FilterSyntaxError
from broker_core.filter.sql92.parser import MAX_PARENTHESES, MAX_PREFIXES, parse
from broker_core.filter.sql92.render import render
from broker_core.filter.sql92.tree import Number, postorder


def understood(text: str) -> str:
    """The filter with all its parentheses."""
    return render(parse(text).root)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("NOT a = 1", "(NOT a = 1)"),
        ("NOT (a = 1)", "NOT (a = 1)"),
        ("a = 1 OR b = 2 AND c = 3", "((a = 1) OR ((b = 2) AND (c = 3)))"),
        ("a = 1 AND b = 2 AND c = 3", "(((a = 1) AND (b = 2)) AND (c = 3))"),
        ("a > 1 = b < 2", "((a > 1) = (b < 2))"),
        ("a = b = c", "((a = b) = c)"),
        ("a = b IS NULL", "((a = b) IS NULL)"),
        ("a IS NULL = b IS NOT NULL", "(((a IS NULL) = b) IS NOT NULL)"),
        ("a = b CONTAINS 'x'", "(a = (b CONTAINS 'x'))"),
        ("a CONTAINS 'x' ENDSWITH 'y'", "((a CONTAINS 'x') ENDSWITH 'y')"),
        ("a BETWEEN 1 AND 2 AND b = 3", "((a BETWEEN 1 AND 2) AND (b = 3))"),
        ("a NOT BETWEEN -b AND + 2", "(a NOT BETWEEN -b AND 2)"),
        ("a IN ('x') OR a NOT IN ('y', 'z')", "((a IN ('x')) OR (a NOT IN ('y', 'z')))"),
        ("- - a = 1", "(-(-a) = 1)"),
        ("+(+5) < a", "(5 < a)"),
        ("(((a)))", "a"),
        ("a NOT ENDSWITH 'it''s'", "(a NOT ENDSWITH 'it''s')"),
        ("- (a = 1) IS NULL", "(-(a = 1) IS NULL)"),
    ],
)
def test_operators_bind_as_in_the_java_parser(text: str, meaning: str) -> None:
    assert understood(text) == meaning


@pytest.mark.parametrize(
    ("text", "kept", "dropped"),
    [
        ("a > 3 + 4", "(a > 3)", "+ 4"),
        ("a - 1 > 0", "a", "- 1 > 0"),
        ("a = 1 )", "(a = 1)", ")"),
        ("now()", "now", "()"),
        ("a = 1 b 'never closed }", "(a = 1)", "b 'never closed }"),
        ("a = 1 -- no line end", "(a = 1)", "-- no line end"),
        ("a = 1 /* x */ ", "(a = 1)", ""),
        ("a IS NULL > 3", "(a IS NULL)", "> 3"),
        ("a IS NULL NOT IN ('x')", "(a IS NULL)", "NOT IN ('x')"),
        ("a IS NOT NULL between", "(a IS NOT NULL)", "between"),
        ("a = 007", "(a = 0)", "07"),
    ],
)
def test_what_can_not_continue_the_filter_is_dropped(text: str, kept: str, dropped: str) -> None:
    parsed = parse(text)

    assert (render(parsed.root), parsed.dropped) == (kept, dropped)


@pytest.mark.parametrize("text", ["a = 1 }", "a = 1 'x", "a = 1 /* x", "a = 1 \u00a0"])
def test_the_first_dropped_token_must_still_be_a_token(text: str) -> None:
    with pytest.raises(FilterSyntaxError):
        parse(text)


@pytest.mark.parametrize("text", ["(a = 1 b)", "(a > 3 + 4)", "(a IS NULL > 3)", "(a", "(a = 1"])
def test_nothing_is_dropped_inside_parentheses(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match=r"expected an operator or '\)'"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " \t\n", "/* x */", "()", "=", "a =", "a = = 1", "a == 1", "a => 1", "a <> <> 1"),
        *("a NOT", "a NOT b", "a NOT NULL", "a NOT = 1", "a > 1 NOT", "a AND", "AND a", "NOT"),
        *("a IS", "a IS NOT", "a IS b", "a IS TRUE", "a IS NOT 1", "a = 1 IS"),
        *("a BETWEEN 1", "a BETWEEN 1 OR 2", "a BETWEEN 1, 2", "a BETWEEN 1 AND", "a BETWEEN"),
        *("a IN", "a IN ()", "a IN 'x'", "a IN ('x'", "a IN ('x',)", "a IN ('x' 'y')", "a IN (,)"),
        *("a IN (b)", "a IN (('x'))", "a IN (+'x')", "a IN (NULL)", "a IN (1)"),
        *("a CONTAINS", "a CONTAINS b", "a CONTAINS 5", "a CONTAINS ('x')", "a CONTAINS +'x'"),
        *("AND = 1", "true > 1", "in = 'x'"),
    ],
)
def test_unexpected_token_is_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError):
        parse(text)


@pytest.mark.parametrize("text", ["5", "'x'", "-5", "-a", "(1.5)", "+ 5", "-(a = 1)", "- NULL"])
def test_whole_filter_must_be_a_condition(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="a filter must be a condition"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["a = 1 AND 5", "'x' OR a", "NOT 5", "NOT -a", "a AND -b", "NOT 'x' = 1", "1 AND a"]
)
def test_operands_of_logic_must_be_conditions(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="must be a condition, but is a"):
        parse(text)


@pytest.mark.parametrize("text", ["a", "NOT a", "a AND b", "a OR TRUE", "NULL", "NOT NULL", "(a)"])
def test_property_and_boolean_literal_may_stand_as_condition(text: str) -> None:
    parse(text)


@pytest.mark.parametrize("text", ["a = NULL", "NULL = a", "a <> NULL", "(NULL) = 1", "a = (NULL)"])
def test_null_literal_can_not_be_compared(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="write IS NULL"):
        parse(text)


@pytest.mark.parametrize("text", ["TRUE = 5", "FALSE <> 'x'", "(TRUE) = 1.5", "+TRUE = 'true'"])
def test_boolean_literal_left_of_number_or_text_is_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="TRUE or FALSE can't be compared"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["5 = TRUE", "'x' <> FALSE", "TRUE = -5", "TRUE = a", "TRUE = TRUE"]
)
def test_boolean_literal_elsewhere_in_an_equality_is_allowed(text: str) -> None:
    parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a > 'x'",
            "'5' < a",
            "a >= TRUE",
            "NULL <= a",
            "(a = 1) > 2",
            "a > (b > 1)",
            "a > b > c",
        ),
        *("a BETWEEN 'x' AND 5", "a BETWEEN 1 AND '5'", "'a' BETWEEN 1 AND 2", "NOT a < 3"),
        *("TRUE NOT BETWEEN 1 AND 2", "a NOT BETWEEN NULL AND 2", "a BETWEEN (b = 1) AND 2"),
    ],
)
def test_ordering_takes_numbers_and_properties_only(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="takes numbers and properties"):
        parse(text)


@pytest.mark.parametrize("text", ["-'x' > 1", "-a > -(b = 1)", "5 > 3", "1 BETWEEN a AND - TRUE"])
def test_negated_values_and_numbers_may_be_ordered(text: str) -> None:
    parse(text)


@pytest.mark.parametrize(
    "text", ["a BETWEEN 9 AND 2", "a BETWEEN 2.5 AND 2", "a BETWEEN 5 AND (4)"]
)
def test_between_with_reversed_literal_bounds_is_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="reversed"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["a BETWEEN 2 AND 2", "a BETWEEN 9 AND -2", "a NOT BETWEEN 9 AND 2", "a BETWEEN -1 AND -9"],
)
def test_bounds_that_are_not_both_literal_or_are_negated_are_not_checked(text: str) -> None:
    parse(text)


@pytest.mark.parametrize("text", ["5 IN ('x')", "'a' IN ('a')", "-a IN ('x')", "TRUE NOT IN ('x')"])
def test_only_a_property_may_stand_before_in(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="a property must stand before IN"):
        parse(text)


@pytest.mark.parametrize("text", ["NOT a < 3", "NOT a IN ('x')", "NOT a BETWEEN 1 AND 2"])
def test_not_that_takes_too_little_is_explained(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="put the rest into parentheses"):
        parse(text)


@pytest.mark.parametrize(
    ("literal", "number"),
    [
        ("0", Number(0, "int32")),
        ("2147483647", Number(2147483647, "int32")),
        ("2147483648", Number(2147483648, "int64")),
        ("5L", Number(5, "int32")),
        ("9223372036854775807", Number(9223372036854775807, "int64")),
        ("1.", Number(1.0, "double")),
        ("4.9e-324", Number(5e-324, "double")),
        ("2.4703282292062328e-324", Number(5e-324, "double")),
        ("1.7976931348623157e308", Number(1.7976931348623157e308, "double")),
    ],
)
def test_width_of_a_number_follows_from_its_literal(literal: str, number: Number) -> None:
    assert number in postorder(parse(f"a = {literal}").root)


@pytest.mark.parametrize("literal", ["9223372036854775808", "-9223372036854775808", "9" * 5000])
def test_integer_beyond_64_bits_is_refused_whatever_its_sign(literal: str) -> None:
    with pytest.raises(FilterSyntaxError, match="larger than 9223372036854775807"):
        parse(f"a = {literal}")


@pytest.mark.parametrize("literal", ["0.0", "0.", ".0", "0e0", "1e-400", "1e309", "1" * 400 + ".0"])
def test_float_that_rounds_to_zero_or_infinity_is_refused(literal: str) -> None:
    with pytest.raises(FilterSyntaxError, match="a float must lie between"):
        parse(f"a > {literal}")


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(FilterSyntaxError, match="surrogate") as caught:
        parse("a = '\ud83d'")

    assert caught.value.column == 6


def test_parentheses_nest_to_the_limit() -> None:
    text = "(" * MAX_PARENTHESES + "a = 1" + ")" * MAX_PARENTHESES

    assert understood(text) == "(a = 1)"


def test_prefixes_pile_up_to_the_limit() -> None:
    assert understood("NOT " * MAX_PREFIXES + "a") == "NOT " * MAX_PREFIXES + "a"


@pytest.mark.parametrize("prefix", ["(", "NOT ", "- ", "+", "NOT(", "-("])
@pytest.mark.parametrize("depth", [10_000, 200_000])
def test_deep_nesting_is_a_clear_error(prefix: str, depth: int) -> None:
    with pytest.raises(
        FilterSyntaxError, match=r"more than \d+ (nested parentheses|signs and NOTs)"
    ):
        parse(prefix * depth + "a")


@pytest.mark.parametrize("joint", [" AND ", " OR ", " = ", " <> "])
def test_chain_of_thousands_is_parsed_and_rendered(joint: str) -> None:
    parsed = parse(joint.join(f"p{i}" for i in range(20_000)))

    assert len(postorder(parsed.root)) >= 39_999
    assert render(parsed.root).count(joint) == 19_999


# Quadratic work on the texts below would run into the time limit that every test has.
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("/**/" * 75_000 + "a", id="comments"),
        pytest.param("--\n" * 100_000 + "a", id="line comments"),
        pytest.param("a IN (" + "'x'," * 75_000 + "'x')", id="list"),
        pytest.param("a = " + "0" * 300_000, id="zeros"),
        pytest.param("a = 1 OR " * 30_000 + "b", id="chain"),
        pytest.param("a" + " IS NULL" * 40_000, id="null tests"),
        pytest.param("a" + " CONTAINS 'x'" * 25_000, id="matches"),
    ],
)
def test_long_filter_takes_no_more_than_linear_work(text: str) -> None:
    assert understood(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("-" * 300_000, id="minus signs"),
        pytest.param("a = '" + "''" * 150_000, id="quotes"),
        pytest.param("a = 1 " + "/*" * 150_000, id="open comments"),
        pytest.param("a = " + "1" * 300_000 + "e5", id="digits"),
        pytest.param("a = 1 OR " * 30_000, id="chain without end"),
        pytest.param("\n" * 300_000 + "!", id="blank lines"),
    ],
)
def test_long_text_is_refused_with_linear_work_and_a_short_message(text: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)

    assert len(str(caught.value)) < 500
