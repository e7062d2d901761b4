"""Offsets of many queues: as Spark checkpoints them, as users write them, as brokers hold them.

The canonical form has three levels, sorted by topic, broker and *numeric* queue id:

    {"orders":{"broker-a":{"0":23,"1":5,"10":7}}}

Every number is the next offset to read. The end of a query's first batch also says where that batch
began, under a name that no topic can have: Spark's log keeps ends only.

    {"orders":{"broker-a":{"0":23}},"@start":{"orders":{"broker-a":{"0":20}}}}

Spark compares checkpointed offsets as strings, so two
equal offsets must be two equal texts: SourceOffset.to_json is the only writer and always sorts. The
two-level form {"orders":{"0":23}} is read too, and means the one broker on which the topic lives.
Older releases' checkpoints must stay readable (tests/golden); changing the form needs a decision
record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Self

from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.errors import option_errors, source_errors

EARLIEST = -2
LATEST = -1
MAX_LONG = 2**63 - 1
START = "@start"

OFFSETS_EXAMPLE = '{"orders":{"broker-a":{"0":23,"1":-1}}}'
TIMES_EXAMPLE = '{"orders":{"broker-a":{"0":1700000000000}}}'
ASSIGN_EXAMPLE = '{"orders":{"broker-a":[0,1]}}'


class QueueKey(NamedTuple):
    """A queue as a user wrote it; `broker_name` is empty where it was left out."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return "/".join(str(part) for part in self if part != "")


class Bounds(NamedTuple):
    """The offsets that a queue holds now: [earliest, latest)."""

    earliest: LogicalOffset
    latest: LogicalOffset


@dataclass(frozen=True)
class SourceOffset(Mapping[QueueRef, LogicalOffset]):
    """The offset at which each queue is read next. Immutable; equal content means equal text.

    `start` is where the query's first batch began, if this is its end. It is no part of where to
    read next, so offsets that differ in it alone are equal.
    """

    queues: Mapping[QueueRef, LogicalOffset]
    start: Mapping[QueueRef, LogicalOffset] | None = None

    def __getitem__(self, queue: QueueRef) -> LogicalOffset:
        return self.queues[queue]

    def __iter__(self) -> Iterator[QueueRef]:
        return iter(self.queues)

    def __len__(self) -> int:
        return len(self.queues)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceOffset) and dict(self.queues) == dict(other.queues)

    def __hash__(self) -> int:
        return hash(frozenset(self.queues.items()))

    def to_json(self) -> dict[str, Any]:
        """Return nested dicts in canonical order, as Spark wants them."""
        nested: dict[str, Any] = {}
        for queue in sorted(self.queues):
            of_broker = nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
            of_broker[str(queue.queue_id)] = int(self.queues[queue])
        if self.start is not None:
            nested[START] = SourceOffset(self.start).to_json()
        return nested

    def render(self) -> str:
        """Return the canonical text, without spaces.

        >>> SourceOffset({QueueRef("t", "b", 10): 7, QueueRef("t", "b", 2): 0}).render()
        '{"t":{"b":{"2":0,"10":7}}}'
        """
        return json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(
        cls, value: object, known: Callable[[], Collection[QueueRef]] = frozenset
    ) -> Self:
        """Parse the offset that Spark hands back, as text or nested dicts.

        `known` lists the existing queues; it is only called for the two-level form, to learn on
        which broker a topic lives.
        """

        def refuse() -> NoReturn:
            raise source_errors.checkpoint_malformed(
                value if isinstance(value, str) else json.dumps(value, default=str)
            )

        def parse(nested: object) -> dict[QueueRef, LogicalOffset]:
            numbers = _numbers(nested, 0, refuse)
            queues = known() if any(not key.broker_name for key in numbers) else ()
            return {_only_broker(key, queues, refuse): number for key, number in numbers.items()}

        loaded = _loaded(value, refuse) if isinstance(value, str) else value
        nested = dict(_object(loaded, refuse))
        start = nested.pop(START, None)
        return cls(parse(nested), None if start is None else parse(start))


@dataclass(frozen=True)
class QueueNumbers:
    """Numbers per queue (offsets or timestamps) that the user gave in `option`."""

    option: str
    numbers: Mapping[QueueKey, int]

    def on(self, queues: Collection[QueueRef]) -> dict[QueueRef, int]:
        """Return the numbers of exactly `queues`; anything missing or left over is refused."""
        named = {_resolve(key, queues, self.option): number for key, number in self.numbers.items()}
        wanted = {QueueKey(queue.topic, queue.broker_name, queue.queue_id) for queue in queues}
        if named.keys() != wanted:
            raise option_errors.offsets_not_the_assigned(
                self.option, wanted - named.keys(), named.keys() - wanted
            )
        return {QueueRef(*key): number for key, number in named.items()}


def parse_offsets(option: str, text: str) -> QueueNumbers:
    """Parse offsets per queue; -2 is earliest, -1 latest."""
    return _parse(
        option, text, EARLIEST, "JSON offsets per topic, broker and queue", OFFSETS_EXAMPLE
    )


def parse_times(option: str, text: str) -> QueueNumbers:
    """Parse store times per queue, in milliseconds since 1970."""
    expected = "JSON timestamps (ms) per topic, broker and queue"
    return _parse(option, text, -(2**63), expected, TIMES_EXAMPLE)


def parse_assignment(option: str, text: str) -> frozenset[QueueKey]:
    """Parse queue ids per topic and broker, or per topic where it lives on one broker."""

    def refuse() -> NoReturn:
        raise option_errors.invalid(
            option, text, "JSON lists of queue ids per topic and broker", ASSIGN_EXAMPLE
        )

    keys: set[QueueKey] = set()
    for topic, inner in _object(_loaded(text, refuse), refuse).items():
        brokers = {"": inner} if isinstance(inner, list) else _object(inner, refuse)
        for broker_name, queue_ids in brokers.items():
            if not isinstance(queue_ids, list):
                refuse()
            keys |= {QueueKey(topic, broker_name, _number(item, 0, refuse)) for item in queue_ids}
    if not keys:
        raise option_errors.empty(option, text, f"queues to read, for example {ASSIGN_EXAMPLE}")
    return frozenset(keys)


def _parse(option: str, text: str, minimum: int, expected: str, example: str) -> QueueNumbers:
    def refuse() -> NoReturn:
        raise option_errors.invalid(option, text, expected, example)

    return QueueNumbers(option, _numbers(_loaded(text, refuse), minimum, refuse))


def _loaded(text: str, refuse: Callable[[], NoReturn]) -> object:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(pairs)) != len(pairs):
            refuse()  # a name given twice: json would silently drop one of its values
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        refuse()


def _numbers(
    nested: object, minimum: int, refuse: Callable[[], NoReturn]
) -> dict[QueueKey, LogicalOffset]:
    found: dict[QueueKey, LogicalOffset] = {}
    for topic, inner in _object(nested, refuse).items():
        levels = _object(inner, refuse)
        is_flat = not any(isinstance(value, dict) for value in levels.values())
        for broker_name, queues in ({"": levels} if is_flat else levels).items():
            for queue_id, number in _object(queues, refuse).items():
                key = QueueKey(topic, broker_name, _queue_id(queue_id, refuse))
                found[key] = LogicalOffset(_number(number, minimum, refuse))
    return found


def _object(value: object, refuse: Callable[[], NoReturn]) -> dict[str, Any]:
    if not isinstance(value, dict):
        refuse()
    return value


def _number(value: object, minimum: int, refuse: Callable[[], NoReturn]) -> int:
    # bool is an int to Python and not to JSON.
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= MAX_LONG:
        refuse()
    return value


def _queue_id(text: str, refuse: Callable[[], NoReturn]) -> int:
    if not (text.isascii() and text.isdigit()):
        refuse()
    return int(text)


def _resolve(key: QueueKey, queues: Collection[QueueRef], option: str) -> QueueKey:
    """Return the key with its broker, if it was left out and the topic lives on one."""
    if key.broker_name:
        return key
    brokers = {queue.broker_name for queue in queues if queue.topic == key.topic}
    if len(brokers) > 1:
        raise option_errors.offsets_ambiguous_broker(option, key.topic, brokers)
    return key._replace(broker_name=brokers.pop()) if brokers else key


def _only_broker(
    key: QueueKey, known: Collection[QueueRef], refuse: Callable[[], NoReturn]
) -> QueueRef:
    if key.broker_name:
        return QueueRef(*key)
    brokers = {queue.broker_name for queue in known if queue.topic == key.topic}
    if len(brokers) != 1:
        refuse()
    return QueueRef(key.topic, brokers.pop(), key.queue_id)
