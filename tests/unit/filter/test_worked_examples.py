"""Every worked example of the filter language, by both evaluators."""

from __future__ import annotations

import pytest

from broker_core.errors import FilterSyntaxError
from broker_core.filter.sqlfilter import SqlFilter
from tests.unit.filter.evaluators import EVALUATORS, Evaluator

EXAMPLES: list[tuple[str, dict[str, str], str]] = [
    ("level >= 3 AND zone = 'eu'", {"level": "4", "zone": "eu"}, "true"),
    ("level >= 3", {"level": "4.0"}, "error"),
    ("level >= 3.0", {"level": "4.0"}, "true"),
    ("level < 100", {"level": "5000000000"}, "error"),
    ("level < 5000000001", {"level": "5000000000"}, "true"),
    ("level <> 3", {"level": "high"}, "error"),
    ("level <> 3", {}, "null"),
    ("3 <> level", {}, "true"),
    ("3 >= level", {}, "null"),
    ("level = rank", {"level": "2", "rank": "2.0"}, "false"),
    ("level <= rank", {"level": "2", "rank": "2.0"}, "true"),
    ("level <= rank", {"level": "b", "rank": "c"}, "error"),
    ("level = rank", {}, "true"),
    ("beta = TRUE", {"beta": "tRUE"}, "true"),
    ("beta = FALSE", {"beta": "off"}, "true"),
    ("TRUE = beta", {"beta": "true"}, "error"),
    ("beta", {"beta": "TRUE"}, "false"),
    ("NOT beta", {"beta": "TRUE"}, "true"),
    ("NOT beta = TRUE", {"beta": "TRUE"}, "true"),
    ("NOT level = 3", {"level": "4"}, "false"),
    ("NOT level < 3", {"level": "4"}, "parse"),
    ("NOT (level < 3)", {"level": "4"}, "true"),
    ("NOT zone IS NULL", {"zone": "eu"}, "false"),
    ("zone IN ('eu', 7)", {"zone": "eu"}, "parse"),
    ("zone NOT STARTSWITH 'e'", {}, "false"),
    ("NOT (zone STARTSWITH 'e')", {}, "true"),
    ("zone NOT ENDSWITH ''", {"zone": "eu"}, "false"),
    ("level BETWEEN 9 AND 2", {"level": "5"}, "parse"),
    ("level BETWEEN 9 AND -2", {"level": "5"}, "false"),
    ("level NOT BETWEEN 9 AND 2", {"level": "5"}, "true"),
    ("level BETWEEN 1.5 AND 9", {"level": "0.5"}, "false"),
    ("level BETWEEN 1.5 AND 9", {"level": "2.5"}, "error"),
    ("level > 0.0", {"level": "1"}, "parse"),
    ("level = 08", {"level": "0"}, "true"),
    ("level = 3 zone", {"level": "3"}, "true"),
    ("level = 3 }", {"level": "3"}, "parse"),
    ("level + 1 > 3", {"level": "9"}, "false"),
    ("zone LIKE 'e_'", {"zone": "eu"}, "false"),
    ("bad > 1 OR zone = 'eu'", {"bad": "x", "zone": "eu"}, "error"),
    ("zone = 'eu' OR bad > 1", {"bad": "x", "zone": "eu"}, "true"),
    ("miss = 'x' OR bad > 1", {"bad": "x"}, "error"),
    ("temp > 36.6", {"temp": " 3.7e1f "}, "true"),
    ("temp > 36.6", {"temp": "NaN"}, "true"),
    ("(level > 3) = (rank > 3)", {}, "true"),
]


@pytest.mark.parametrize("evaluate", EVALUATORS)
@pytest.mark.parametrize(
    ("text", "properties", "verdict"),
    [pytest.param(*example, id=f"{i}") for i, example in enumerate(EXAMPLES, 1)],
)
def test_worked_example_has_its_verdict(
    text: str, properties: dict[str, str], verdict: str, evaluate: Evaluator
) -> None:
    try:
        found = evaluate(SqlFilter(text), [properties])
    except FilterSyntaxError:
        found = ["parse"]

    assert found == [verdict]
