"""Limits of filters: at a limit one is compiled, a step beyond and far beyond it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core import FilterSyntaxError, open_broker
from broker_core.filter.pipeline import MessageFilter
from broker_core.filter.sql92.tokens import Lexer
from broker_core.filter.sqlfilter import LIMITS, SqlFilter
from broker_core.filter.tag_expression import MAX_TAGS, MAX_TEXT, TagFilter
from broker_core.types import LogicalOffset, OffsetRange
from tests.kit.served import served

TOKENS, LISTED = LIMITS
# Name: the text with a number of items, and the number that still fits.
SQL: dict[str, tuple[Callable[[int], str], int]] = {
    "characters": (lambda n: "a = '" + "x" * (n - 6) + "'", MAX_TEXT),
    "blanks": (lambda n: "a" + " " * (n - 1), MAX_TEXT),
    "comments": (lambda n: "/*" + "x" * (n - 5) + "*/a", MAX_TEXT),
    "alternatives": (lambda n: "a OR " * (n - 1) + "a", (TOKENS + 1) // 2),
    "conjunctions": (lambda n: "a AND " * (n - 1) + "a", (TOKENS + 1) // 2),
    "comparisons": (lambda n: "a=1 OR " * (n - 1) + "a=1", (TOKENS + 1) // 4),
    "null tests": (lambda n: "a" + " IS NULL" * n, (TOKENS - 1) // 2),
    "matches": (lambda n: "a" + " CONTAINS ''" * n, (TOKENS - 1) // 2),
    "ranges": (lambda n: "a BETWEEN 1 AND 2 OR " * n + "a", (TOKENS - 1) // 6),
    "list values": (lambda n: "a IN (" + "'x'," * (n - 1) + "'x')", LISTED),
    "values of lists": (lambda n: "a IN ('x') OR " * n + "a", (TOKENS - 1) // 4),
}
TAGS: dict[str, tuple[Callable[[int], str], int]] = {
    "tags": (lambda n: "||".join(["x"] * n), MAX_TAGS),
    "characters": (lambda n: "x" * n, MAX_TEXT),
}


@pytest.mark.parametrize("kind", SQL)
def test_sql_at_the_limit_is_compiled_and_beyond_it_refused(kind: str) -> None:
    text, most = SQL[kind]

    assert SqlFilter(text(most)).dropped.strip() == ""
    for items in (most + 1, 50 * most):
        with pytest.raises(
            FilterSyntaxError, match=r"limit|more than \d+ (words|values)"
        ) as caught:
            SqlFilter(text(items))
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("kind", TAGS)
def test_tags_at_the_limit_are_compiled_and_beyond_it_refused(kind: str) -> None:
    text, most = TAGS[kind]

    assert TagFilter(text(most)).tags
    for items in (most + 1, 50 * most):
        with pytest.raises(FilterSyntaxError, match=r"limit|more than"):
            TagFilter(text(items))


@pytest.mark.parametrize("kind", ["alternatives", "comparisons", "list values", "matches"])
def test_a_filter_far_beyond_a_limit_is_not_read_to_its_end(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work is counted in tokens: never more than the limits, whatever the length."""
    taken = 0
    take = Lexer.take

    def counted(self: Lexer) -> object:
        nonlocal taken
        taken += 1
        return take(self)

    monkeypatch.setattr(Lexer, "take", counted)
    text, _ = SQL[kind]
    with pytest.raises(FilterSyntaxError):
        SqlFilter(text(100_000))
    assert taken <= TOKENS + 2 * LISTED + 2


def test_a_served_broker_refuses_what_is_too_long(tmp_path: Path) -> None:
    with served(tmp_path / "store") as process, open_broker(process.address, "rw") as broker:
        broker.create_topic("t", queues=1)
        broker.send("t", b"x", tags="a")
        too_long = MessageFilter.of(tags="a")
        assert too_long is not None
        assert too_long.tags is not None
        too_long.tags.text = "a||" * MAX_TEXT  # as a client that has no limit would send it
        [queue] = broker.offsets("t")

        wanted = OffsetRange(queue, LogicalOffset(0), LogicalOffset(1))
        with pytest.raises(FilterSyntaxError, match="65536 is the limit"):
            list(broker.pull(wanted, message_filter=too_long))
