"""Typed options of a read (SourceOptions), of a write (SinkOptions) and of the broker's client.

Option texts are parsed once, when they come from Spark, into frozen values that pickle and hold no
connection. `RawOptions` (raw_options.py) looks up and parses single options; here are the rules
that involve several.

`SourceOptions.parse` checks what is wrong for any read, so that `load()` can fail. Spark does not
say there which kind of read it will be, so the rules of one kind are checked by `for_stream` and
`for_batch`. From here a read goes on in source/stream.py or source/batch.py, a write in
sink/writer.py.

Precedence, for start and end alike: timestamp, timestamps per queue, offsets. An option that a
higher one overrides is not even parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from broker_core.clients.address import BrokerKind, parse_address
from broker_core.codec.compression import Compression
from broker_core.codec.legal_names import check_group, is_own_topic
from broker_core.codec.schema import DEFAULT_COLUMNS
from broker_core.errors import AddressError, FilterSyntaxError, InvalidNameError
from broker_core.filter.pipeline import MessageFilter
from broker_core.types import Conflict, Flush
from pyspark_rocketmq.errors import option_errors, sink_errors
from pyspark_rocketmq.options import names
from pyspark_rocketmq.options.parsers import Secret
from pyspark_rocketmq.options.raw_options import RawOptions
from pyspark_rocketmq.options.table import Scope
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

Delivery = Literal["exactly-once", "at-least-once"]

_NOT_ON_A_CLUSTER = (
    "a RocketMQ cluster commits a transaction again whenever it is asked to, so a replayed batch "
    "can't be refused."
)

STRATEGIES = (names.SUBSCRIBE, names.TOPIC, names.SUBSCRIBE_PATTERN, names.ASSIGN)
STARTS = (
    names.STARTING_TIMESTAMP,
    names.STARTING_OFFSETS_BY_TIMESTAMP,
    names.STARTING_OFFSETS,
)
ENDS = (names.ENDING_TIMESTAMP, names.ENDING_OFFSETS_BY_TIMESTAMP, names.ENDING_OFFSETS)


@dataclass(frozen=True)
class ClientOptions:
    """The broker's address, and the credentials and settings of the client that opens it."""

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
        """True if the broker finds *all* messages with a key; a cluster finds the newest only."""
        return self.kind is not BrokerKind.CLUSTER

    @property
    def kind(self) -> BrokerKind:
        """The kind of broker: embedded, remote or cluster."""
        return parse_address(self.address).kind

    @classmethod
    def parse(cls, raw: RawOptions) -> ClientOptions:
        """Parse the client's options; OptionError for an address that is missing or malformed."""
        if not raw.has(names.BROKER):
            raise option_errors.missing(
                names.BROKER, "it says where the messages are.", "file:/path/to/store"
            )
        return cls(
            _address(raw.value(names.BROKER)),
            access_key=raw.value(names.ACCESS_KEY),
            secret_key=raw.value(names.SECRET_KEY),
            security_token=raw.value(names.SECURITY_TOKEN),
            token=raw.value(names.TOKEN),
            tls_ca=raw.value(names.TLS_CA),
            tls_cert=raw.value(names.TLS_CERT),
            tls_key=raw.value(names.TLS_KEY),
            tls_server_name=raw.value(names.TLS_SERVER_NAME),
            consumer_group=raw.value(names.CONSUMER_GROUP),
            pull_timeout_ms=raw.value(names.PULL_TIMEOUT),
        )


@dataclass(frozen=True)
class Retry:
    """Attempts to ask the broker for topics and offsets, and the pause between them."""

    attempts: int = 3
    interval_ms: int = 1000


@dataclass(frozen=True)
class SourceOptions:
    """The options of a read. `starting` and `ending` are None where the user gave none.

    `ends_given` names the options that would set an end; `late_is_latest` is
    startingOffsetsByTimestampStrategy=latest.
    """

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
        """Parse options as Spark hands them over; OptionError for what no kind of read can do."""
        raw = RawOptions(options)
        parsed = cls(
            client=ClientOptions.parse(raw),
            subscription=_subscription(raw),
            starting=_starting(raw),
            ending=_ending(raw),
            ends_given=tuple(raw.among(ENDS)),
            late_is_latest=raw.value(names.STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY) == "latest",
            limits=_limits(raw),
            columns=_columns(raw),
            message_filter=_filter(raw),
            retry=Retry(raw.value(names.FETCH_RETRIES), raw.value(names.FETCH_INTERVAL)),
            fail_on_data_loss=raw.value(names.FAIL_ON_DATA_LOSS),
            skip_corrupt=raw.value(names.SKIP_CORRUPT),
            min_partitions=raw.value(names.MIN_PARTITIONS),
            max_records_per_partition=raw.value(names.MAX_RECORDS_PER_PARTITION),
            batch_rows=raw.value(names.BATCH_ROWS),
            consumer_group=raw.value(names.CONSUMER_GROUP),
            commit_offsets=raw.value(names.COMMIT_OFFSETS),
            filter_pushdown=raw.value(names.FILTER_PUSHDOWN),
        )
        _check_consumer_group(parsed)
        _check_order(parsed.starting, parsed.ending)
        return parsed

    def for_stream(self) -> SourceOptions:
        """Return the options of a streaming query, which starts at latest and has no end."""
        if self.ends_given:
            raise option_errors.not_in_stream(self.ends_given[0])
        return replace(self, starting=self.starting or Latest())

    def for_batch(self) -> SourceOptions:
        """Return the options of a batch read: earliest to latest; it can't start at latest."""
        if isinstance(self.starting, Latest):
            raise option_errors.offsets_start_is_latest(names.STARTING_OFFSETS)
        if isinstance(self.starting, AtOffsets):
            for key, offset in self.starting.numbers.numbers.items():
                if offset == LATEST:
                    raise option_errors.offsets_start_is_latest(names.STARTING_OFFSETS, str(key))
        return replace(self, starting=self.starting or Earliest(), ending=self.ending or Latest())


@dataclass(frozen=True)
class SinkOptions:
    """The options of a write; None where the user gave none and there is no default."""

    client: ClientOptions
    topic: str | None
    delivery: Delivery | None
    txn_name: str | None
    txn_id: str | None
    compression: Compression
    compression_threshold_bytes: int
    create_queues: int | None
    producer_group: str | None
    flush: Flush | None
    max_message_bytes: int
    on_conflict: Conflict = "refuse"
    allow_gap: bool = False
    checkpoint: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse options as Spark hands them over; OptionError for what no write can do."""
        raw = RawOptions(options)
        parsed = cls(
            client=ClientOptions.parse(raw),
            topic=raw.value(names.TOPIC),
            delivery=raw.value(names.DELIVERY),
            txn_name=raw.value(names.TXN_NAME),
            txn_id=raw.value(names.TXN_ID),
            compression=raw.value(names.COMPRESSION),
            compression_threshold_bytes=raw.value(names.COMPRESSION_THRESHOLD),
            create_queues=raw.value(names.CREATE_TOPIC),
            producer_group=raw.value(names.PRODUCER_GROUP),
            flush=raw.value(names.FLUSH),
            max_message_bytes=raw.value(names.MAX_MESSAGE_SIZE),
            on_conflict=raw.value(names.ON_CONFLICT),
            allow_gap=raw.value(names.ALLOW_GAP),
            checkpoint=_checkpoint(options),
        )
        if parsed.topic is not None and is_own_topic(parsed.topic):
            raise sink_errors.own_topic(parsed.topic, f"The option {names.TOPIC}")
        if parsed.delivery == "exactly-once" and parsed.client.kind is BrokerKind.CLUSTER:
            raise sink_errors.exactly_once_unsupported(parsed.client.address, _NOT_ON_A_CLUSTER)
        _check_producer_group(parsed.producer_group)
        return parsed

    @property
    def is_exactly_once(self) -> bool:
        """True if that was asked for, or if nothing was and the broker can."""
        if self.delivery is None:
            return self.client.kind is not BrokerKind.CLUSTER
        return self.delivery == "exactly-once"


def advice(options: Mapping[str, str], scope: Scope) -> list[str]:
    """Return a sentence for the log about every option, or part of one, without effect."""
    raw = RawOptions(options)
    chosen = _filter(raw) if scope & Scope.READ else None
    if chosen is None or chosen.sql is None or not chosen.sql.dropped:
        return raw.advice(scope)
    ignored = (
        f"Option {names.SQL} is understood as {chosen.sql.describe()}; RocketMQ's grammar ignores "
        f"the rest: {chosen.sql.dropped}"
    )
    return [*raw.advice(scope), ignored]


def _address(text: str) -> str:
    try:
        return parse_address(text).text
    except AddressError as error:
        raise option_errors.invalid_address(error) from error


def _subscription(raw: RawOptions) -> Subscription:
    chosen = raw.among(STRATEGIES)
    if not chosen:
        raise option_errors.no_strategy(
            (names.SUBSCRIBE, names.SUBSCRIBE_PATTERN, names.ASSIGN), f"{names.SUBSCRIBE}=orders"
        )
    if len(chosen) > 1:
        raise option_errors.several_strategies(STRATEGIES, chosen)
    option = chosen[0]
    if option == names.ASSIGN:
        return Assigned(option, parse_assignment(option, raw.text(option)))
    if option == names.SUBSCRIBE_PATTERN:
        return Pattern(option, _pattern(raw))
    topics = {item.strip() for item in raw.text(option).split(",") if item.strip()}
    if not topics:
        raise option_errors.empty(option, raw.text(option), "topics, separated by commas")
    return Topics(option, tuple(sorted(topics)))


def _pattern(raw: RawOptions) -> str:
    text: str = raw.value(names.SUBSCRIBE_PATTERN)
    try:
        re.compile(text)
    except re.error as error:
        expected = f"a regular expression ({error})"
        raise option_errors.invalid(names.SUBSCRIBE_PATTERN, text, expected, "orders-.*") from error
    return text


def _starting(raw: RawOptions) -> OffsetSpec | None:
    chosen = raw.among(STARTS)[:1]
    if not chosen:
        return None
    if chosen != [names.STARTING_OFFSETS]:
        return _by_time(raw, chosen[0])
    text = raw.text(names.STARTING_OFFSETS).strip()
    match text.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case "group":
            purpose = f"{names.STARTING_OFFSETS}=group starts at its offsets."
            return AtGroup(_consumer_group(raw, purpose))
    return _by_offset(
        names.STARTING_OFFSETS, text, "earliest, latest, group or JSON offsets per queue"
    )


def _ending(raw: RawOptions) -> OffsetSpec | None:
    chosen = raw.among(ENDS)[:1]
    if not chosen:
        return None
    if chosen != [names.ENDING_OFFSETS]:
        return _by_time(raw, chosen[0])
    text = raw.text(names.ENDING_OFFSETS).strip()
    match text.lower():
        case "earliest":
            raise option_errors.offsets_end_is_earliest(names.ENDING_OFFSETS)
        case "latest":
            return Latest()
    spec = _by_offset(names.ENDING_OFFSETS, text, "latest or JSON offsets per queue")
    for key, offset in spec.numbers.numbers.items():
        if offset == EARLIEST:
            raise option_errors.offsets_end_is_earliest(names.ENDING_OFFSETS, str(key))
    return spec


def _by_offset(option: str, text: str, expected: str) -> AtOffsets:
    if not text.startswith("{"):
        raise option_errors.invalid(option, text, expected, OFFSETS_EXAMPLE)
    return AtOffsets(parse_offsets(option, text))


def _by_time(raw: RawOptions, option: str) -> AtTime | AtTimes:
    if option in {names.STARTING_TIMESTAMP, names.ENDING_TIMESTAMP}:
        return AtTime(option, raw.value(option))
    return AtTimes(parse_times(option, raw.text(option)))


def _limits(raw: RawOptions) -> TriggerLimits:
    limits = TriggerLimits(
        raw.value(names.MAX_OFFSETS_PER_TRIGGER),
        raw.value(names.MIN_OFFSETS_PER_TRIGGER),
        raw.value(names.MAX_TRIGGER_DELAY),
        raw.value(names.MAX_BYTES_PER_TRIGGER),
    )
    low, high = limits.min_messages, limits.max_messages
    if low is not None and high is not None and low > high:
        raise option_errors.min_above_max(low, high)
    return limits


def _columns(raw: RawOptions) -> tuple[str, ...]:
    if raw.has(names.COLUMNS):
        return parse_columns(raw.value(names.COLUMNS))
    if raw.value(names.INCLUDE_PROPERTIES):
        return (*DEFAULT_COLUMNS, PROPERTIES)
    return DEFAULT_COLUMNS


def _consumer_group(raw: RawOptions, purpose: str) -> str:
    if not raw.has(names.CONSUMER_GROUP):
        raise option_errors.missing(names.CONSUMER_GROUP, purpose, "my-group")
    group: str = raw.value(names.CONSUMER_GROUP)
    return group


def _filter(raw: RawOptions) -> MessageFilter | None:
    if raw.has(names.TAGS) and raw.has(names.SQL):
        raise option_errors.conflict(
            (names.TAGS, names.SQL), "a message is chosen by its tag or by its properties."
        )
    try:
        return MessageFilter.of(tags=raw.value(names.TAGS), sql=raw.value(names.SQL))
    except FilterSyntaxError as error:
        option = raw.among((names.TAGS, names.SQL))[0]
        raise option_errors.invalid_filter(option, error) from error


def _checkpoint(options: Mapping[str, str]) -> str | None:
    """Return where Spark keeps a streaming query's checkpoint, if that is among the options."""
    found = (value for name, value in options.items() if name.lower() == names.CHECKPOINT.lower())
    return next(found, None)


def _check_producer_group(group: str | None) -> None:
    if group is None:
        return
    try:
        check_group(group)
    except InvalidNameError as error:
        raise option_errors.invalid(
            names.PRODUCER_GROUP, group, str(error), "my-producer"
        ) from error


def _check_consumer_group(options: SourceOptions) -> None:
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
