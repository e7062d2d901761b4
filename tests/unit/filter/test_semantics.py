"""Rules of evaluation that common sense would get wrong, by both evaluators."""

from __future__ import annotations

import pytest

from broker_core.filter.sqlfilter import SqlFilter
from tests.unit.filter.evaluators import EVALUATORS, Evaluator

T, F, N, E = "true", "false", "null", "error"
VALUES = {T: "t = 'x'", F: "t = 'y'", N: "miss = 'x'", E: "t > 1"}

pytestmark = pytest.mark.parametrize("evaluate", EVALUATORS)


def verdict(evaluate: Evaluator, text: str, **properties: str) -> str:
    """The verdict on one message, found among others so that columns have odd neighbours."""
    neighbours: list[dict[str, str]] = [{}, dict.fromkeys(properties, "7")]
    return evaluate(SqlFilter(text), [*neighbours, properties])[-1]


@pytest.mark.parametrize(
    ("left", "row"), [(T, (T, F, N, E)), (F, (F, F, F, F)), (N, (N, F, N, E)), (E, (E, E, E, E))]
)
def test_and_lets_only_a_false_on_the_left_hide_an_error(
    left: str, row: tuple[str, ...], evaluate: Evaluator
) -> None:
    found = [verdict(evaluate, f"{VALUES[left]} AND {VALUES[right]}", t="x") for right in VALUES]

    assert tuple(found) == row


@pytest.mark.parametrize(
    ("left", "row"), [(T, (T, T, T, T)), (F, (T, F, N, E)), (N, (T, N, N, E)), (E, (E, E, E, E))]
)
def test_or_lets_only_a_true_on_the_left_hide_an_error(
    left: str, row: tuple[str, ...], evaluate: Evaluator
) -> None:
    found = [verdict(evaluate, f"{VALUES[left]} OR {VALUES[right]}", t="x") for right in VALUES]

    assert tuple(found) == row


@pytest.mark.parametrize(("operand", "result"), [(T, F), (F, T), (N, N), (E, E)])
def test_not_keeps_null_and_error(operand: str, result: str, evaluate: Evaluator) -> None:
    assert verdict(evaluate, f"NOT ({VALUES[operand]})", t="x") == result


@pytest.mark.parametrize(
    ("text", "equal", "unequal"),
    [
        ("m {} n", T, F),
        ("m {} a", N, N),
        ("a {} m", F, T),
        ("m {} 5", N, N),
        ("5 {} m", F, T),
        ("m {} TRUE", N, N),
        ("TRUE {} m", F, T),
        ("'x' {} m", F, T),
        ("-a {} m", T, F),
        ("-a {} a", N, N),
        ("(m > 1) {} (n > 1)", T, F),
        ("(m > 1) {} (a > 1)", N, N),
        ("(a > 1) {} (m > 1)", F, T),
        ("NOT NULL {} a", N, N),
    ],
)
def test_null_in_an_equality_is_asymmetric(
    text: str, equal: str, unequal: str, evaluate: Evaluator
) -> None:
    assert verdict(evaluate, text.format("="), a="5") == equal
    assert verdict(evaluate, text.format("<>"), a="5") == unequal


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a = '5'", T),
        ("a = 5", T),
        ("a = 5.0", T),
        ("5 = a", T),
        ("a = TRUE", F),
        ("a = FALSE", T),
        ("5 = TRUE", F),
        ("5 <> TRUE", T),
        ("TRUE = -5", F),
        ("(a = 5) = 5", F),
        ("5 = (a = 5)", F),
        ("(a = 5) = TRUE", T),
        ("(a = 5) = a", E),
        ("(a = 5) <> 'x'", E),
        ("TRUE = a", E),
        ("a = (a = 6)", T),
        ("'true' = (a = 5)", T),
        ("'four' = 4", E),
        ("4 = '4'", T),
        ("4 = '4.0'", E),
        ("4.0 = '4'", T),
        ("'4' = '4.0'", F),
        ("4 = 4.0", T),
        ("4 = 4L", T),
        ("9007199254740993 = 9007199254740992.0", T),
        ("9007199254740993 = 9007199254740992", F),
        ("b = 5", E),
        ("b <> 5", E),
        ("b = 'x'", T),
        ("a = b", F),
    ],
)
def test_equality_converts_by_the_other_side(text: str, result: str, evaluate: Evaluator) -> None:
    assert verdict(evaluate, text, a="5", b="x") == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("m > 1", N),
        ("1 > m", N),
        ("m > bad", N),
        ("bad > m", N),
        ("m > -(bad > 1)", N),
        ("a > -(bad > 1)", E),
        ("-(bad > 1) > a", E),
        ("-(bad > 1) > m", E),
        ("a > -b", N),
        ("-a < 1", N),
        ("a > b", F),
        ("a < b", T),
        ("a >= bad", E),
        ("bad >= a", E),
        ("3 > 2", T),
        ("3 > 2.5", T),
        ("a > -1", T),
        ("a > - -1", T),
        ("-5 < -4", T),
        ("9007199254740993 > 9007199254740992.0", F),
    ],
)
def test_ordering_is_null_if_either_side_is_and_looks_at_the_left_first(
    text: str, result: str, evaluate: Evaluator
) -> None:
    assert verdict(evaluate, text, a="5", b="10", bad="x") == result


@pytest.mark.parametrize(
    ("text", "value", "result"),
    [
        ("a > 5", "6", T),
        ("a > 5", "6.0", E),
        ("a > 5", "2147483648", E),
        ("a > 2147483648", "2147483649", T),
        ("a > -2147483648", "2147483649", T),
        ("a > -2147483647", "2147483649", E),
        ("a > 2147483648", "9223372036854775808", E),
        ("a > 5.5", "9223372036854775808", T),
        ("a > 5.5", "1e400", T),
        ("a < 5.5", "-Infinity", T),
        ("a > 1.5", "NaN", T),
        ("a = 1.5", "NaN", F),
        ("a > 5", "\u0666", T),
        ("a > 5.0", "\u0666", E),
        ("a > 5", "\U0001d7d4", E),
        ("a > 5", "+6", T),
        ("a > 5", "0000000000000000000000000006", T),
        ("a > 5", " 6", E),
        ("a > 5.0", " 6 ", T),
        ("a > 5", "", E),
        ("a > 5.0", "", E),
        ("a = ''", "", T),
        ("a IS NULL", "", F),
    ],
)
def test_text_is_read_with_the_width_of_the_literal(
    text: str, value: str, result: str, evaluate: Evaluator
) -> None:
    assert verdict(evaluate, text, a=value) == result


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [("-0.0", "0.0", T), ("0.0", "-0.0", F), ("Infinity", "NaN", T), ("NaN", "NaN", F)],
)
def test_doubles_are_ordered_totally(
    left: str, right: str, result: str, evaluate: Evaluator
) -> None:
    assert verdict(evaluate, "a < b", a=left, b=right) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a BETWEEN 5 AND 9", T),
        ("a BETWEEN 1 AND 5", T),
        ("a BETWEEN 6 AND 9", F),
        ("a NOT BETWEEN 5 AND 9", F),
        ("a NOT BETWEEN 6 AND 9", T),
        ("a BETWEEN b AND 9", E),
        ("a BETWEEN 6 AND b", F),
        ("a BETWEEN 5 AND b", E),
        ("a NOT BETWEEN 6 AND b", T),
        ("a NOT BETWEEN b AND 4", E),
        ("m BETWEEN 1 AND 9", N),
        ("a BETWEEN m AND 4", F),
        ("a BETWEEN m AND 9", N),
        ("a BETWEEN 6 AND m", F),
        ("a NOT BETWEEN m AND 4", T),
        ("7 BETWEEN a AND 9", T),
        ("7 BETWEEN a AND b", E),
        ("-a BETWEEN 1 AND 2", N),
        ("-(b > 1) BETWEEN 1 AND 2", E),
    ],
)
def test_between_is_two_comparisons_that_stop_when_decided(
    text: str, result: str, evaluate: Evaluator
) -> None:
    assert verdict(evaluate, text, a="5", b="x") == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a IN ('5')", T),
        ("a IN ('5.0', '05')", F),
        ("a NOT IN ('5.0')", T),
        ("a NOT IN ('x', '5')", F),
        ("m IN ('x')", N),
        ("m NOT IN ('x')", N),
        ("a IN ('')", F),
        ("a IN ('5', '5')", T),
    ],
)
def test_in_compares_texts_only(text: str, result: str, evaluate: Evaluator) -> None:
    assert verdict(evaluate, text, a="5") == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a CONTAINS 'ell'", T),
        ("a STARTSWITH 'he'", T),
        ("a ENDSWITH 'lo'", T),
        ("a CONTAINS 'ELL'", F),
        ("a NOT CONTAINS 'x'", T),
        ("a NOT CONTAINS 'ell'", F),
        ("a CONTAINS ''", F),
        ("a NOT STARTSWITH ''", F),
        ("m CONTAINS 'x'", F),
        ("m NOT CONTAINS 'x'", F),
        ("5 CONTAINS '5'", F),
        ("5 NOT CONTAINS '6'", F),
        ("TRUE NOT ENDSWITH 'x'", F),
        ("NULL NOT ENDSWITH 'x'", F),
        ("'hello' CONTAINS 'ell'", T),
        ("'hello' NOT ENDSWITH 'x'", T),
        ("(a > 1) CONTAINS 'x'", E),
        ("(a > 1) CONTAINS ''", F),
        ("(a > 1) NOT STARTSWITH 'x'", E),
        ("-a CONTAINS 'x'", F),
        ("a CONTAINS 'e%'", F),
        ("a CONTAINS '.'", F),
    ],
)
def test_match_family_is_never_null(text: str, result: str, evaluate: Evaluator) -> None:
    assert verdict(evaluate, text, a="hello") == result


@pytest.mark.parametrize("value", ["a\U0001f600b", "\u8ba2\u5355", "e\u0301", "\x00\x01"])
def test_texts_are_compared_as_they_are(value: str, evaluate: Evaluator) -> None:
    assert verdict(evaluate, f"a = '{value}' AND a CONTAINS '{value}'", a=value) == T


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a IS NULL", F),
        ("a IS NOT NULL", T),
        ("m IS NULL", T),
        ("m IS NOT NULL", F),
        ("-a IS NULL", T),
        ("-5 IS NULL", F),
        ("NULL IS NULL", T),
        ("5 IS NOT NULL", T),
        ("(m > 1) IS NULL", T),
        ("(a > 1) IS NULL", E),
        ("(a > 1) IS NOT NULL", E),
        ("a IS NULL IS NULL", F),
        ("- (a > 1) IS NULL", E),
        ("-NULL IS NULL", T),
        ("-'5' IS NULL", T),
        ("-TRUE IS NULL", T),
    ],
)
def test_null_test_sees_null_and_passes_errors_on(
    text: str, result: str, evaluate: Evaluator
) -> None:
    assert verdict(evaluate, text, a="x") == result


@pytest.mark.parametrize(
    ("text", "result"),
    [("a", F), ("NOT a", T), ("m", N), ("NOT m", N), ("a OR TRUE", T), ("TRUE", T)],
)
def test_bare_property_is_never_true(text: str, result: str, evaluate: Evaluator) -> None:
    assert verdict(evaluate, text, a="true") == result


@pytest.mark.parametrize("text", ["FALSE", "NULL"])
def test_filter_without_properties_says_the_same_of_all(text: str, evaluate: Evaluator) -> None:
    assert evaluate(SqlFilter(text), [{}, {"a": "1"}]) == [text.lower()] * 2


def test_property_names_are_case_sensitive(evaluate: Evaluator) -> None:
    assert verdict(evaluate, "Price = '1' AND price IS NULL", Price="1") == T


def test_chain_of_thousands_is_evaluated(evaluate: Evaluator) -> None:
    text = " AND ".join(["a = 1"] * 2000) + " OR b > 1"

    assert verdict(evaluate, text, a="1", b="x") == T


def test_deep_nesting_of_between_takes_no_more_than_linear_work(evaluate: Evaluator) -> None:
    text = "a"
    for _ in range(200):
        text = f"-({text} BETWEEN 1 AND 2)"

    assert verdict(evaluate, f"{text} IS NULL", a="1") == T
