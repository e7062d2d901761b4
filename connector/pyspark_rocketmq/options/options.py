"""Typed options: what the user's texts mean together.

Parsed once, at the edge, into frozen values that pickle and hold no connection.
`SourceOptions.parse` checks what is wrong for any read, so that `load()` can fail; Spark does not
say there which kind of read it will be, so the rules of one kind are checked by `for_stream` and
`for_batch`.

Precedence, for start and end alike: timestamp, timestamps per queue, offsets. What a higher one
makes unread is not even parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from broker_core.clients.address import BrokerKind, parse_address
from broker_core.codec.decode import DEFAULT_COLUMNS
from broker_core.errors import AddressError, FilterSyntaxError
from broker_core.filter.pipeline import MessageFilter
from pyspark_rocketmq.errors import option_errors
from pyspark_rocketmq.options import names
from pyspark_rocketmq.options.parsers import Secret
from pyspark_rocketmq.options.table import RawOptions, Scope
from pyspark_rocketmq.plan.offsets import (
    EARLIEST,
    LATEST,
    OFFSETS_EXAMPLE,
    QueueNumbers,
    parse_assignment,
    parse_offsets,
    parse_times,
)
from pyspark_rocketmq.plan.rate_limit import TriggerLimits
from pyspark_rocketmq.plan.starting_offsets import (
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    OffsetSpec,
)
from pyspark_rocketmq.plan.subscription import Assigned, Pattern, Subscription, Topics
from pyspark_rocketmq.source.schema import PROPERTIES, parse_columns

STRATEGIES = (names.SUBSCRIBE, names.TOPIC, names.SUBSCRIBE_PATTERN, names.ASSIGN)
STARTS = (
    names.STARTING_TIMESTAMP,
    names.STARTING_OFFSETS_BY_TIMESTAMP,
    names.STARTING_OFFSETS,
)
ENDS = (names.ENDING_TIMESTAMP, names.ENDING_OFFSETS_BY_TIMESTAMP, names.ENDING_OFFSETS)


@dataclass(frozen=True)
class ClientOptions:
    """Where the broker is and how to get in."""

    address: str
    access_key: str | None = None
    secret_key: Secret | None = None
    security_token: Secret | None = None
    token: Secret | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_server_name: str | None = None
    consumer_group: str | None = None
    pull_timeout_ms: int = 120_000

    @property
    def has_index(self) -> bool:
        """Whether the broker finds *all* messages with a key; a cluster gives the newest only."""
        return self.kind is not BrokerKind.CLUSTER

    @property
    def kind(self) -> BrokerKind:
        """What lies behind the address."""
        return parse_address(self.address).kind

    @classmethod
    def parse(cls, given: RawOptions) -> ClientOptions:
        """The address, checked for its form, and the credentials."""
        if not given.has(names.BROKER):
            raise option_errors.missing(
                names.BROKER, "it says where the messages are.", "file:/path/to/store"
            )
        return cls(
            _address(given.value(names.BROKER)),
            access_key=given.value(names.ACCESS_KEY),
            secret_key=given.value(names.SECRET_KEY),
            security_token=given.value(names.SECURITY_TOKEN),
            token=given.value(names.TOKEN),
            tls_ca=given.value(names.TLS_CA),
            tls_cert=given.value(names.TLS_CERT),
            tls_key=given.value(names.TLS_KEY),
            tls_server_name=given.value(names.TLS_SERVER_NAME),
            consumer_group=given.value(names.CONSUMER_GROUP),
            pull_timeout_ms=given.value(names.PULL_TIMEOUT),
        )


@dataclass(frozen=True)
class Retry:
    """How often to ask the broker, and how long to wait in between."""

    attempts: int = 3
    interval_ms: int = 1000


@dataclass(frozen=True)
class SourceOptions:
    """Everything a read needs to know. `starting` and `ending` are None where nothing was said."""

    client: ClientOptions
    subscription: Subscription
    starting: OffsetSpec | None
    ending: OffsetSpec | None
    ends_given: tuple[str, ...]
    late_is_latest: bool
    limits: TriggerLimits
    columns: tuple[str, ...]
    message_filter: MessageFilter | None
    retry: Retry
    fail_on_data_loss: bool = True
    skip_corrupt: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    batch_rows: int = 100_000
    consumer_group: str | None = None
    commit_offsets: bool = False
    filter_pushdown: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Options as Spark hands them over; raises what is wrong for any kind of read."""
        given = RawOptions(options)
        parsed = cls(
            client=ClientOptions.parse(given),
            subscription=_subscription(given),
            starting=_starting(given),
            ending=_ending(given),
            ends_given=tuple(given.among(ENDS)),
            late_is_latest=given.value(names.STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY) == "latest",
            limits=_limits(given),
            columns=_columns(given),
            message_filter=_filter(given),
            retry=Retry(given.value(names.FETCH_RETRIES), given.value(names.FETCH_INTERVAL)),
            fail_on_data_loss=given.value(names.FAIL_ON_DATA_LOSS),
            skip_corrupt=given.value(names.SKIP_CORRUPT),
            min_partitions=given.value(names.MIN_PARTITIONS),
            max_records_per_partition=given.value(names.MAX_RECORDS_PER_PARTITION),
            batch_rows=given.value(names.BATCH_ROWS),
            consumer_group=given.value(names.CONSUMER_GROUP),
            commit_offsets=given.value(names.COMMIT_OFFSETS),
            filter_pushdown=given.value(names.FILTER_PUSHDOWN),
        )
        _check_group(parsed)
        _check_order(parsed.starting, parsed.ending)
        return parsed

    def for_stream(self) -> SourceOptions:
        """The same for a streaming query, which starts at latest and has no end."""
        if self.ends_given:
            raise option_errors.not_in_stream(self.ends_given[0])
        return replace(self, starting=self.starting or Latest())

    def for_batch(self) -> SourceOptions:
        """The same for a batch read, from earliest to latest, which can't start at latest."""
        if isinstance(self.starting, Latest):
            raise option_errors.offsets_start_is_latest(names.STARTING_OFFSETS)
        if isinstance(self.starting, AtOffsets):
            for key, offset in self.starting.numbers.numbers.items():
                if offset == LATEST:
                    raise option_errors.offsets_start_is_latest(names.STARTING_OFFSETS, str(key))
        return replace(self, starting=self.starting or Earliest(), ending=self.ending or Latest())


@dataclass(frozen=True)
class SinkOptions:
    """Everything a write needs to know; None where nothing was said."""

    client: ClientOptions
    topic: str | None
    delivery: str | None
    txn_name: str | None
    txn_id: str | None
    compression: str
    compression_threshold_bytes: int
    create_queues: int | None
    producer_group: str | None
    flush: str | None
    max_message_bytes: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Options as Spark hands them over."""
        given = RawOptions(options)
        return cls(
            client=ClientOptions.parse(given),
            topic=given.value(names.TOPIC),
            delivery=given.value(names.DELIVERY),
            txn_name=given.value(names.TXN_NAME),
            txn_id=given.value(names.TXN_ID),
            compression=given.value(names.COMPRESSION),
            compression_threshold_bytes=given.value(names.COMPRESSION_THRESHOLD),
            create_queues=given.value(names.CREATE_TOPIC),
            producer_group=given.value(names.PRODUCER_GROUP),
            flush=given.value(names.FLUSH),
            max_message_bytes=given.value(names.MAX_MESSAGE_SIZE),
        )


def advice(options: Mapping[str, str], scope: Scope) -> list[str]:
    """A sentence about every option, or part of one, that has no effect; for the log."""
    given = RawOptions(options)
    chosen = _filter(given) if scope & Scope.READ else None
    if chosen is None or chosen.sql is None or not chosen.sql.dropped:
        return given.advice(scope)
    ignored = (
        f"Option {names.SQL} is understood as {chosen.sql.describe()}; RocketMQ's grammar ignores "
        f"the rest: {chosen.sql.dropped}"
    )
    return [*given.advice(scope), ignored]


def _address(text: str) -> str:
    try:
        return parse_address(text).text
    except AddressError as error:
        raise option_errors.invalid_address(error) from error


def _subscription(given: RawOptions) -> Subscription:
    chosen = given.among(STRATEGIES)
    if not chosen:
        raise option_errors.no_strategy(
            (names.SUBSCRIBE, names.SUBSCRIBE_PATTERN, names.ASSIGN), f"{names.SUBSCRIBE}=orders"
        )
    if len(chosen) > 1:
        raise option_errors.several_strategies(STRATEGIES, chosen)
    option = chosen[0]
    if option == names.ASSIGN:
        return Assigned(option, parse_assignment(option, given.raw(option)))
    if option == names.SUBSCRIBE_PATTERN:
        return Pattern(option, _pattern(given))
    topics = {item.strip() for item in given.raw(option).split(",") if item.strip()}
    if not topics:
        raise option_errors.empty(option, given.raw(option), "topics, separated by commas")
    return Topics(option, tuple(sorted(topics)))


def _pattern(given: RawOptions) -> str:
    text: str = given.value(names.SUBSCRIBE_PATTERN)
    try:
        re.compile(text)
    except re.error as error:
        expected = f"a regular expression ({error})"
        raise option_errors.invalid(names.SUBSCRIBE_PATTERN, text, expected, "orders-.*") from error
    return text


def _starting(given: RawOptions) -> OffsetSpec | None:
    chosen = given.among(STARTS)[:1]
    if not chosen:
        return None
    if chosen != [names.STARTING_OFFSETS]:
        return _by_time(given, chosen[0])
    text = given.raw(names.STARTING_OFFSETS).strip()
    match text.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case "group":
            return AtGroup(_group(given, f"{names.STARTING_OFFSETS}=group starts where it stands."))
    return _by_offset(
        names.STARTING_OFFSETS, text, "earliest, latest, group or JSON offsets per queue"
    )


def _ending(given: RawOptions) -> OffsetSpec | None:
    chosen = given.among(ENDS)[:1]
    if not chosen:
        return None
    if chosen != [names.ENDING_OFFSETS]:
        return _by_time(given, chosen[0])
    text = given.raw(names.ENDING_OFFSETS).strip()
    match text.lower():
        case "earliest":
            raise option_errors.offsets_end_is_earliest(names.ENDING_OFFSETS)
        case "latest":
            return Latest()
    position = _by_offset(names.ENDING_OFFSETS, text, "latest or JSON offsets per queue")
    for key, offset in position.numbers.numbers.items():
        if offset == EARLIEST:
            raise option_errors.offsets_end_is_earliest(names.ENDING_OFFSETS, str(key))
    return position


def _by_offset(option: str, text: str, expected: str) -> AtOffsets:
    if not text.startswith("{"):
        raise option_errors.invalid(option, text, expected, OFFSETS_EXAMPLE)
    return AtOffsets(parse_offsets(option, text))


def _by_time(given: RawOptions, option: str) -> AtTime | AtTimes:
    if option in {names.STARTING_TIMESTAMP, names.ENDING_TIMESTAMP}:
        return AtTime(option, given.value(option))
    return AtTimes(parse_times(option, given.raw(option)))


def _limits(given: RawOptions) -> TriggerLimits:
    limits = TriggerLimits(
        given.value(names.MAX_OFFSETS_PER_TRIGGER),
        given.value(names.MIN_OFFSETS_PER_TRIGGER),
        given.value(names.MAX_TRIGGER_DELAY),
        given.value(names.MAX_BYTES_PER_TRIGGER),
    )
    low, high = limits.min_messages, limits.max_messages
    if low is not None and high is not None and low > high:
        raise option_errors.min_above_max(low, high)
    return limits


def _columns(given: RawOptions) -> tuple[str, ...]:
    if given.has(names.COLUMNS):
        return parse_columns(given.value(names.COLUMNS))
    if given.value(names.INCLUDE_PROPERTIES):
        return (*DEFAULT_COLUMNS, PROPERTIES)
    return DEFAULT_COLUMNS


def _group(given: RawOptions, purpose: str) -> str:
    if not given.has(names.CONSUMER_GROUP):
        raise option_errors.missing(names.CONSUMER_GROUP, purpose, "my-group")
    group: str = given.value(names.CONSUMER_GROUP)
    return group


def _filter(given: RawOptions) -> MessageFilter | None:
    if given.has(names.TAGS) and given.has(names.SQL):
        raise option_errors.conflict(
            (names.TAGS, names.SQL), "a message is chosen by its tag or by its properties."
        )
    try:
        return MessageFilter.of(tags=given.value(names.TAGS), sql=given.value(names.SQL))
    except FilterSyntaxError as error:
        option = given.among((names.TAGS, names.SQL))[0]
        raise option_errors.invalid_filter(option, error) from error


def _check_group(options: SourceOptions) -> None:
    if options.commit_offsets and options.consumer_group is None:
        raise option_errors.missing(
            names.CONSUMER_GROUP, f"{names.COMMIT_OFFSETS} reports progress to it.", "my-group"
        )


def _check_order(start: OffsetSpec | None, end: OffsetSpec | None) -> None:
    """Refuse a given start after a given end, as far as the texts alone can tell."""
    if isinstance(start, AtTime) and isinstance(end, AtTime):
        if start.timestamp_ms > end.timestamp_ms:
            raise option_errors.offsets_start_after_end(
                start.option, start.timestamp_ms, end.option, end.timestamp_ms, "every queue"
            )
        return
    if isinstance(start, AtOffsets | AtTimes) and isinstance(end, AtOffsets | AtTimes):
        _check_queues(start.numbers, end.numbers, is_same_kind=type(start) is type(end))


def _check_queues(start: QueueNumbers, end: QueueNumbers, *, is_same_kind: bool) -> None:
    first, last = start.numbers, end.numbers
    # One text may leave brokers out that the other names; then only the broker can compare them.
    has_all_brokers = all(key.broker_name for key in (*first, *last))
    has_no_brokers = not any(key.broker_name for key in (*first, *last))
    if first.keys() != last.keys() and (has_all_brokers or has_no_brokers):
        raise option_errors.offsets_queues_differ(
            start.option, end.option, first.keys() - last.keys(), last.keys() - first.keys()
        )
    for key in sorted(first.keys() & last.keys()):
        if is_same_kind and first[key] >= 0 and 0 <= last[key] < first[key]:
            raise option_errors.offsets_start_after_end(
                start.option, first[key], end.option, last[key], str(key)
            )
