from __future__ import annotations

from datetime import UTC, datetime

import pytest

from broker_core.types import QueueRef
from pyspark_rocketmq.plan.pushdown import Lookup, Predicate, Pushed, classify

QUEUES = [QueueRef(topic, "b", number) for topic in ("alpha", "beta") for number in range(3)]
NOON_MS = 1_700_000_000_000


def pushed(*predicates: Predicate, has_filter: bool = False, has_index: bool = True) -> Pushed:
    return classify(predicates, has_filter=has_filter, has_index=has_index)


def moment(microseconds: int) -> datetime:
    return (
        datetime.fromtimestamp(0, UTC)
        .replace(year=2023, month=11, day=14, hour=22)
        .replace(minute=13, second=20, microsecond=microseconds)
    )


@pytest.mark.parametrize(
    ("predicate", "count"),
    [
        (Predicate("topic", "EqualTo", "alpha"), 3),
        (Predicate("topic", "EqualTo", "alpha", is_negated=True), 3),
        (Predicate("topic", "In", ["alpha", "gamma"]), 3),
        (Predicate("topic", "StringStartsWith", "al"), 3),
        (Predicate("topic", "StringEndsWith", "a"), 6),
        (Predicate("topic", "StringContains", "et"), 3),
        (Predicate("queueId", "EqualTo", 1), 2),
        (Predicate("queueId", "GreaterThan", 0), 4),
        (Predicate("queueId", "LessThanOrEqual", 0), 2),
        (Predicate("queueId", "In", [0, 2], is_negated=True), 2),
        (Predicate("brokerName", "EqualNullSafe", "b"), 6),
        (Predicate("queueId", "IsNull"), 0),
    ],
)
def test_predicates_on_the_queue_choose_queues_and_are_taken(
    predicate: Predicate, count: int
) -> None:
    result = pushed(predicate)

    assert sum(result.reads(queue) for queue in QUEUES) == count
    assert result.taken == {0}


@pytest.mark.parametrize(
    ("predicate", "start", "end", "is_taken"),
    [
        (Predicate("queueOffset", "EqualTo", 5), 5, 6, True),
        (Predicate("queueOffset", "GreaterThan", 5), 6, 2**63 - 1, True),
        (Predicate("queueOffset", "GreaterThanOrEqual", 5), 5, 2**63 - 1, True),
        (Predicate("queueOffset", "LessThan", 5), 0, 5, True),
        (Predicate("queueOffset", "LessThanOrEqual", 5), 0, 6, True),
        (Predicate("queueOffset", "In", [5, 7, 6]), 5, 8, True),
        (Predicate("queueOffset", "In", [5, 9]), 5, 10, False),
        (Predicate("queueOffset", "EqualTo", 5, is_negated=True), 0, 2**63 - 1, False),
        (Predicate("queueOffset", "EqualNullSafe", None), 0, 2**63 - 1, False),
    ],
)
def test_predicates_on_the_offset_shrink_ranges(
    predicate: Predicate, start: int, end: int, is_taken: bool
) -> None:
    result = pushed(predicate)

    assert (result.start, result.end) == (start, end)
    assert bool(result.taken) is is_taken


def test_predicates_are_a_conjunction() -> None:
    result = pushed(
        Predicate("queueOffset", "GreaterThan", 5), Predicate("queueOffset", "LessThan", 3)
    )

    assert result.is_empty


@pytest.mark.parametrize(
    ("operator", "micros", "from_ms", "until_ms"),
    [
        ("GreaterThanOrEqual", 0, 0, None),
        ("GreaterThanOrEqual", 1, 1, None),
        ("GreaterThan", 0, 1, None),
        ("GreaterThan", 999, 1, None),
        ("LessThan", 0, None, 0),
        ("LessThan", 1, None, 1),
        ("LessThanOrEqual", 0, None, 1),
        ("LessThanOrEqual", 1, None, 1),
        ("EqualTo", 0, 0, 1),
        ("EqualTo", 1, 1, 1),
        ("StringContains", 0, None, None),
    ],
)
def test_store_time_narrows_in_milliseconds_and_is_handed_back(
    operator: str, micros: int, from_ms: int | None, until_ms: int | None
) -> None:
    result = pushed(Predicate("storeTimestamp", operator, moment(micros)))

    def since_noon(ms: int | None) -> int | None:
        return None if ms is None else ms - NOON_MS

    assert (since_noon(result.from_ms), since_noon(result.until_ms)) == (from_ms, until_ms)
    assert result.taken == frozenset()


def test_tags_become_the_tag_filter() -> None:
    both = pushed(Predicate("tags", "In", ["A", "B"]), Predicate("tags", "EqualTo", "B"))

    assert both.tags == frozenset({"B"})
    assert both.taken == {0, 1}


def test_a_tag_that_equals_a_text_is_not_null() -> None:
    result = pushed(Predicate("tags", "IsNotNull"), Predicate("tags", "EqualTo", "A"))

    assert result.taken == {0, 1}


def test_contradicting_tags_read_nothing() -> None:
    result = pushed(Predicate("tags", "EqualTo", "A"), Predicate("tags", "EqualTo", "B"))

    assert result.is_empty


@pytest.mark.parametrize(
    "predicate",
    [
        Predicate("tags", "EqualTo", "A", is_negated=True),
        Predicate("tags", "IsNull"),
        Predicate("tags", "EqualTo", "*"),
        Predicate("tags", "EqualTo", "||"),
        Predicate("tags", "EqualTo", "A || B"),
        Predicate("tags", "EqualTo", " A"),
        Predicate("tags", "EqualTo", ""),
        Predicate("tags", "In", ["A", None]),
        Predicate("tags", "StringStartsWith", "A"),
        Predicate("tags", "EqualNullSafe", None),
        Predicate("body", "EqualTo", b"x"),
        Predicate("tags", "IsNotNull"),
        Predicate("queueId", "EqualTo", None),
        Predicate("queueId", "SomethingNew", 1),
    ],
)
def test_what_is_not_exact_is_handed_back(predicate: Predicate) -> None:
    assert pushed(predicate) == Pushed()


@pytest.mark.parametrize("count", [10_001, 20_000])
def test_more_tags_than_a_broker_takes_are_left_to_spark(count: int) -> None:
    many = [str(number) for number in range(count)]

    assert pushed(Predicate("tags", "In", many)) == Pushed()
    assert pushed(Predicate("tags", "In", ["x" * 40_000, "y" * 40_000])) == Pushed()
    assert pushed(Predicate("tags", "EqualTo", "x" * 70_000)) == Pushed()


def test_tags_are_handed_back_when_the_query_has_a_filter_of_its_own() -> None:
    assert pushed(Predicate("tags", "EqualTo", "A"), has_filter=True) == Pushed()


@pytest.mark.parametrize(
    ("column", "text", "lookup"),
    [
        ("keys", "order-1", Lookup("keys", "order-1")),
        ("keys", "a b", Lookup("keys", "a")),
        ("keys", " ", None),
        ("msgId", "7F000001", Lookup("msgId", "7F000001")),
    ],
)
def test_keys_and_ids_are_looked_up_and_handed_back(
    column: str, text: str, lookup: Lookup | None
) -> None:
    result = pushed(Predicate(column, "EqualTo", text))

    assert result.lookup == lookup
    assert result.taken == frozenset()


def test_without_an_index_keys_are_scanned_for() -> None:
    assert pushed(Predicate("keys", "EqualTo", "k"), has_index=False) == Pushed()


def test_not_null_is_taken_for_columns_that_never_are() -> None:
    result = pushed(Predicate("queueOffset", "IsNotNull"), Predicate("keys", "IsNotNull"))

    assert result.taken == {0}
