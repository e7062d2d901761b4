"""Our filters and Apache RocketMQ's own give the same answers to the same questions.

On disagreement the Java answer is right: mend ours, and keep the case in tests/unit/filter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

from broker_core.codec.hashing.java import java_hash
from broker_core.errors import FilterSyntaxError
from broker_core.filter.bloom import BloomShape
from broker_core.filter.sqlfilter import SqlFilter
from broker_core.filter.tag_expression import TagFilter
from tests.interop.filter.cases import TEXTS, Case, cases
from tests.interop.kit import peers
from tests.unit.filter.evaluators import EVALUATORS, Evaluator
from tests.unit.filter.test_worked_examples import EXAMPLES

HERE = Path(__file__).parent
SEED, COUNT = 20260101, 6000


def ask(program: str, lines: Sequence[str]) -> list[str]:
    """The answers of a Java program of this folder, one a line."""
    answers = peers.java_tool(HERE / program, stdin="".join(line + "\n" for line in lines))
    found = answers.splitlines()
    assert len(found) == len(lines)
    return found


def hexed(*texts: str) -> str:
    return "\t".join(text.encode().hex() for text in texts)


def question(case: Case) -> str:
    pairs = (text for pair in case.properties.items() for text in pair)
    return hexed(case.filter, *pairs)


def our_verdicts(asked: Sequence[Case], evaluate: Evaluator) -> list[str]:
    """Verdicts with all messages of one filter in one batch, as a reader has them."""
    found: list[str] = []
    for text, group in groupby(asked, key=lambda case: case.filter):
        messages = [case.properties for case in group]
        try:
            found += evaluate(SqlFilter(text), messages)
        except FilterSyntaxError:
            found += ["parse"] * len(messages)
    return found


@pytest.fixture(scope="module")
def generated(apache: None) -> list[tuple[Case, str]]:
    asked = list(cases(SEED, COUNT))
    return list(zip(asked, ask("FilterVerdicts.java", list(map(question, asked))), strict=True))


def test_generated_cases_have_every_kind_of_verdict(generated: list[tuple[Case, str]]) -> None:
    kinds = Counter(verdict for _, verdict in generated)

    assert set(kinds) == {"true", "false", "null", "error", "parse"}
    assert min(kinds.values()) >= 500, kinds


@pytest.mark.parametrize("evaluate", EVALUATORS)
def test_generated_filters_have_the_verdicts_of_the_java_filter(
    generated: list[tuple[Case, str]], evaluate: Evaluator
) -> None:
    ours = our_verdicts([case for case, _ in generated], evaluate)

    pairs = zip(generated, ours, strict=True)
    assert [(case, java, our) for (case, java), our in pairs if java != our] == []


def test_worked_examples_have_the_verdicts_of_the_java_filter(apache: None) -> None:
    asked = [Case(text, properties) for text, properties, _ in EXAMPLES]

    assert ask("FilterVerdicts.java", list(map(question, asked))) == [v for _, _, v in EXAMPLES]


def test_bloom_filter_has_the_shape_bits_and_bytes_of_the_java_one(apache: None) -> None:
    rng = random.Random(SEED)
    alphabet = "abcXYZ%_-0123456789\u8ba2\u5355\u00e9\U0001f600"
    keys = [
        ("".join(rng.choices(alphabet, k=rng.randint(1, 40))), f"topic{rng.randint(0, 999)}")
        for _ in range(300)
    ]
    shapes = [(rng.randint(1, 99), rng.randint(1, 400)) for _ in keys]

    asked = [f"{f}\t{n}\t{hexed(f'{g}#{t}')}" for (f, n), (g, t) in zip(shapes, keys, strict=True)]
    answers = ask("BloomPositions.java", asked)

    ours = []
    for (error_percent, filters), (group, topic) in zip(shapes, keys, strict=True):
        shape = BloomShape.of(error_percent, filters)
        positions = shape.positions(group, topic)
        listed = ",".join(map(str, positions))
        ours.append(f"{shape.m}\t{listed}\t{shape.bitmap(positions).hex()}")
    assert ours == answers


def our_tags(expression: str) -> str:
    try:
        parsed = TagFilter(expression)
    except FilterSyntaxError:
        return "error"
    tags = parsed.tags or ()
    listed = ",".join(sorted(tag.encode().hex() for tag in tags))
    codes = ",".join(map(str, sorted({java_hash(tag) for tag in tags})))
    return f"{hexed(parsed.text)}\t{listed}\t{codes}"


def test_tag_expressions_name_the_tags_and_codes_of_the_java_client(apache: None) -> None:
    rng = random.Random(SEED)
    pieces = ["||", "||", "|", " ", "*", "A", "B", "Aa", "BB", "\t", "\u00a0", *TEXTS]
    expressions = ["", *("".join(rng.choices(pieces, k=rng.randint(1, 6))) for _ in range(600))]

    answers = ask("TagSets.java", list(map(hexed, expressions)))

    pairs = zip(expressions, map(our_tags, expressions), answers, strict=True)
    assert [pair for pair in pairs if pair[1] != pair[2]] == []
