"""filterPushdown: which of Spark's filters a batch read answers itself.

A predicate is one conjunct on one column. It can do up to three things:

- choose queues: any predicate on topic, brokerName or queueId, decided once per queue, exactly;
- shrink ranges: comparisons of queueOffset exactly, of storeTimestamp by searching, in which case
  Spark still evaluates it on what is left;
- choose messages: `tags` equal to or in some texts becomes the tag filter, exactly; `keys` or
  `msgId` equal to a text becomes an index lookup, whose rows Spark looks at again.

What is *taken* disappears from Spark's plan, so only what is exact may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from broker_core.codec.property_names import KEY_SEPARATOR
from broker_core.filter.tag_expression import TagFilter, is_short
from broker_core.types import QueueRef
from pyspark_rocketmq.plan.offsets import MAX_LONG

QUEUE_COLUMNS: dict[str, Callable[[QueueRef], Any]] = {
    "topic": lambda queue: queue.topic,
    "brokerName": lambda queue: queue.broker_name,
    "queueId": lambda queue: queue.queue_id,
}
NEVER_NULL = frozenset(
    {"topic", "brokerName", "queueId", "queueOffset", "msgId", "body", "bornTimestamp"}
    | {"storeTimestamp", "offsetMsgId", "physicalOffset", "storeSize"}
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Predicate:
    """`column operator value`, possibly negated. `operator` is the name of Spark's filter class."""

    column: str
    operator: str
    value: Any = None
    is_negated: bool = False


_HAS_TAG = Predicate("tags", "IsNotNull")


@dataclass(frozen=True)
class Lookup:
    """A text to find in the index: one of a message's keys, or a message id."""

    column: str
    text: str


@dataclass(frozen=True)
class Pushed:
    """The meaning of the predicates for a read; `Pushed()` restricts nothing.

    `taken` has the indexes of the predicates that Spark need not evaluate.
    """

    of_queue: tuple[Predicate, ...] = ()
    start: int = 0
    end: int = MAX_LONG
    from_ms: int | None = None
    until_ms: int | None = None
    tags: frozenset[str] | None = None
    lookup: Lookup | None = None
    taken: frozenset[int] = field(default=frozenset())

    def reads(self, queue: QueueRef) -> bool:
        """Return True if a queue can hold a message that satisfies all predicates."""
        return all(holds(each, QUEUE_COLUMNS[each.column](queue)) for each in self.of_queue)

    @property
    def tag_filter(self) -> TagFilter | None:
        """The tags as a filter; None without a predicate on tags."""
        return None if self.tags is None else TagFilter("||".join(sorted(self.tags)))

    @property
    def is_empty(self) -> bool:
        """True if no message can satisfy all predicates."""
        return self.start >= self.end or self.tags == frozenset()


def classify(predicates: Sequence[Predicate], *, has_filter: bool, has_index: bool) -> Pushed:
    """Take every predicate that can be answered here.

    `has_filter` says that the query has a filter of its own, with which tags can't be combined;
    `has_index` that the broker finds messages by key.
    """
    pushed = Pushed()
    for index, each in enumerate(predicates):
        after, is_exact = _take(pushed, each, has_filter=has_filter, has_index=has_index)
        pushed = replace(after, taken=after.taken | {index}) if is_exact else after
    if pushed.tags is None:
        return pushed
    # A tag that equals a text is not null; Spark asks for both, and need not look again.
    implied = {index for index, each in enumerate(predicates) if each == _HAS_TAG}
    return replace(pushed, taken=pushed.taken | implied)


def holds(predicate: Predicate, actual: Any) -> bool:
    """Return True if a value that is not null satisfies a predicate with a known operator."""
    return _OPERATORS[predicate.operator](actual, predicate.value) != predicate.is_negated


def _take(
    pushed: Pushed, each: Predicate, *, has_filter: bool, has_index: bool
) -> tuple[Pushed, bool]:
    """Return `pushed` with one predicate more, and True if that covers the predicate exactly."""
    if each.operator == "IsNotNull" and not each.is_negated:
        return pushed, each.column in NEVER_NULL
    if each.column in QUEUE_COLUMNS:
        is_known = each.operator in _OPERATORS and not _has_null(each)
        return (
            replace(pushed, of_queue=(*pushed.of_queue, each)) if is_known else pushed
        ), is_known
    if each.is_negated:
        return pushed, False  # ranges, tags and lookups have no negative form
    if each.column == "queueOffset":
        return _take_offset(pushed, each)
    if each.column == "storeTimestamp":
        return _take_time(pushed, each), False
    if each.column == "tags" and not has_filter:
        return _take_tags(pushed, each)
    if each.column in {"keys", "msgId"} and has_index:
        return _take_lookup(pushed, each), False
    return pushed, False


def _take_offset(pushed: Pushed, each: Predicate) -> tuple[Pushed, bool]:
    is_exact = True
    match each.operator, each.value:
        case "EqualTo" | "EqualNullSafe", int(value):
            low, high = value, value + 1
        case "GreaterThan", int(value):
            low, high = value + 1, MAX_LONG
        case "GreaterThanOrEqual", int(value):
            low, high = value, MAX_LONG
        case "LessThan", int(value):
            low, high = 0, value
        case "LessThanOrEqual", int(value):
            low, high = 0, value + 1
        case "In", [*values] if values and all(isinstance(value, int) for value in values):
            low, high = min(values), max(values) + 1
            is_exact = high - low == len(set(values))
        case _:
            return pushed, False
    return replace(pushed, start=max(pushed.start, low), end=min(pushed.end, high)), is_exact


def _take_time(pushed: Pushed, each: Predicate) -> Pushed:
    """Narrow by store time, which has milliseconds where Spark compares microseconds."""
    if not isinstance(each.value, datetime):
        return pushed
    micros = (each.value - _EPOCH) // timedelta(microseconds=1)
    up, down = -(-micros // 1000), micros // 1000  # first ms at or after it, last at or before it
    low, high = {
        "EqualTo": (up, down + 1),
        "EqualNullSafe": (up, down + 1),
        "GreaterThan": (down + 1, None),
        "GreaterThanOrEqual": (up, None),
        "LessThan": (None, up),
        "LessThanOrEqual": (None, down + 1),
    }.get(each.operator, (None, None))
    starts = [ms for ms in (pushed.from_ms, low) if ms is not None]
    ends = [ms for ms in (pushed.until_ms, high) if ms is not None]
    return replace(pushed, from_ms=max(starts, default=None), until_ms=min(ends, default=None))


def _take_tags(pushed: Pushed, each: Predicate) -> tuple[Pushed, bool]:
    match each.operator, each.value:
        case "EqualTo" | "EqualNullSafe", str(value):
            wanted = frozenset({value})
        case "In", [*values] if all(isinstance(value, str) for value in values):
            wanted = frozenset(values)
        case _:
            return pushed, False
    if not all(_is_tag(text) for text in wanted):
        return pushed, False
    # Two predicates on tags hold together: an empty intersection is an empty read.
    both = wanted if pushed.tags is None else pushed.tags & wanted
    if not is_short("||".join(both), len(both)):
        return pushed, False  # a broker refuses such a filter; Spark does not mind
    return replace(pushed, tags=both), True


def _is_tag(text: str) -> bool:
    """Return True if a tag expression can name this text: not blank, no `||` in it, not `*`."""
    return bool(text.strip("|")) and is_short(text) and TagFilter(text).tags == (text,)


def _take_lookup(pushed: Pushed, each: Predicate) -> Pushed:
    """Look the text up in the index; the first predicate wins, Spark checks the others."""
    is_text = each.operator in {"EqualTo", "EqualNullSafe"} and isinstance(each.value, str)
    if not is_text or pushed.lookup is not None:
        return pushed
    # A message's keys are indexed one by one; any of them finds it.
    words = [each.value] if each.column == "msgId" else each.value.split(KEY_SEPARATOR)
    known = [word for word in words if word]
    return replace(pushed, lookup=Lookup(each.column, known[0])) if known else pushed


def _has_null(each: Predicate) -> bool:
    values = each.value if isinstance(each.value, list) else [each.value]
    return None in values and each.operator != "IsNull"


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda actual, value: actual == value,
    "EqualNullSafe": lambda actual, value: actual == value,
    "GreaterThan": lambda actual, value: actual > value,
    "GreaterThanOrEqual": lambda actual, value: actual >= value,
    "LessThan": lambda actual, value: actual < value,
    "LessThanOrEqual": lambda actual, value: actual <= value,
    "In": lambda actual, value: actual in value,
    "IsNull": lambda _actual, _value: False,
    "StringStartsWith": lambda actual, value: actual.startswith(value),
    "StringEndsWith": lambda actual, value: actual.endswith(value),
    "StringContains": lambda actual, value: value in actual,
}
