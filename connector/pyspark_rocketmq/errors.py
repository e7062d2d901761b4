"""Everything the connector raises on purpose.

    ConnectorError
      OptionError              an option, or a combination of options, that can't be used
      SchemaError              columns that do not exist or a schema that is not the source's
      CheckpointError          a checkpoint that another source wrote
      DataLossError            messages that a query still needed are gone
      TopicNotFoundError       a topic named by an option does not exist
      BrokerUnavailableError   the broker did not answer in all attempts (retryable)
      BrokerFailedError        the broker answered with an error that repeating can't cure
      WriteError               the sink refused rows or could not deliver them

An error is (condition, parameters), both plain values, so it pickles and can be logged as data.
Spark turns it into text on the way to the user, hence `str(error)` stands alone: the condition in
brackets, what happened, where, the numbers, the next step, the SQLSTATE. One function per condition
below builds it; `raise` sites never write a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_rocketmq.conditions import CATALOGUE
from pyspark_rocketmq.options import names

if TYPE_CHECKING:
    from broker_core.types import QueueRef

SHOWN_CHARS = 300
SHOWN_ITEMS = 10


class ConnectorError(Exception):
    """A condition of the catalogue and its parameters."""

    retryable = False

    def __init__(self, condition: str, parameters: Mapping[str, object]) -> None:
        super().__init__(condition, dict(parameters))
        self.condition = condition
        self.parameters = dict(parameters)

    @property
    def sqlstate(self) -> str:
        """The five characters that SQL tools know."""
        return CATALOGUE[self.condition].sqlstate

    @property
    def message(self) -> str:
        """The sentence without condition and SQLSTATE."""
        return CATALOGUE[self.condition].message.format_map(self.parameters)

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message} SQLSTATE: {self.sqlstate}"


class OptionError(ConnectorError):
    """An option, or a combination of options, that can't be used."""


class SchemaError(ConnectorError):
    """Columns that do not exist, or a schema that is not the source's."""


class CheckpointError(ConnectorError):
    """A checkpoint that this source did not write."""


class DataLossError(ConnectorError):
    """Messages that a query still needed are gone."""


class TopicNotFoundError(ConnectorError):
    """A topic named by an option does not exist."""


class BrokerUnavailableError(ConnectorError):
    """The broker did not answer in all attempts; a later run may succeed."""

    retryable = True


class BrokerFailedError(ConnectorError):
    """The broker answered with an error that repeating can't cure."""


class WriteError(ConnectorError):
    """The sink refused rows or could not deliver them."""


def shown(text: object) -> str:
    """A value as messages show it: on one line and never longer than a screen row or three."""
    line = " ".join(str(text).split())
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}… ({len(line)} characters)"


def listed(items: Iterable[Any]) -> str:
    """Queues or the like as messages show them: sorted, the first few by name.

    >>> listed(range(12))
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more'
    """
    ordered = [str(item) for item in sorted(items)]
    more = len(ordered) - SHOWN_ITEMS
    return (", ".join(ordered[:SHOWN_ITEMS]) or "none") + (f" and {more} more" if more > 0 else "")


# ROCKETMQ_AVAILABLE_NOW


def available_now_end_after_latest(queue: QueueRef, end: int, latest: int) -> DataLossError:
    """The planned end is beyond what the queue holds now."""
    return DataLossError(
        "ROCKETMQ_AVAILABLE_NOW.END_AFTER_LATEST",
        {"queue": str(queue), "end": end, "latest": latest},
    )


def available_now_end_after_target(queue: QueueRef, end: int, target: int) -> DataLossError:
    """The planned end is beyond the run's target."""
    return DataLossError(
        "ROCKETMQ_AVAILABLE_NOW.END_AFTER_TARGET",
        {"queue": str(queue), "end": end, "target": target},
    )


def available_now_queues_differ(
    end: Iterable[QueueRef], target: Iterable[QueueRef]
) -> DataLossError:
    """The planned end and the run's target name different queues."""
    return DataLossError(
        "ROCKETMQ_AVAILABLE_NOW.QUEUES_DIFFER",
        {"end": listed(end), "target": listed(target)},
    )


def available_now_queues_lost(queues: Iterable[QueueRef]) -> DataLossError:
    """Queues of the planned end exist no more."""
    return DataLossError("ROCKETMQ_AVAILABLE_NOW.QUEUES_LOST", {"queues": listed(queues)})


# ROCKETMQ_BROKER


def broker_failed(broker: str, action: str, reason: object) -> BrokerFailedError:
    """The broker refused, for a reason of its own."""
    return BrokerFailedError(
        "ROCKETMQ_BROKER.FAILED", {"broker": broker, "action": action, "reason": str(reason)}
    )


def broker_store_damaged(broker: str, action: str, reason: object) -> BrokerFailedError:
    """Bytes of the store contradict its format."""
    return BrokerFailedError(
        "ROCKETMQ_BROKER.STORE_DAMAGED", {"broker": broker, "action": action, "reason": str(reason)}
    )


def broker_unavailable(
    broker: str, action: str, attempts: int, reason: object
) -> BrokerUnavailableError:
    """The broker did not answer in all attempts."""
    return BrokerUnavailableError(
        "ROCKETMQ_BROKER.UNAVAILABLE",
        {"broker": broker, "action": action, "attempts": attempts, "reason": str(reason)},
    )


def broker_unsupported(broker: str, action: str, reason: object) -> BrokerFailedError:
    """This kind of broker has no way to do it."""
    return BrokerFailedError(
        "ROCKETMQ_BROKER.UNSUPPORTED", {"broker": broker, "action": action, "reason": str(reason)}
    )


# ROCKETMQ_CHECKPOINT


def checkpoint_malformed(text: object) -> CheckpointError:
    """An offset in the checkpoint has not our form."""
    return CheckpointError("ROCKETMQ_CHECKPOINT.MALFORMED", {"text": shown(text)})


# ROCKETMQ_DATA_LOSS


def new_queue_starts_late(queue: QueueRef, earliest: int) -> DataLossError:
    """A queue that the query never read does not begin at 0."""
    return DataLossError(
        "ROCKETMQ_DATA_LOSS.NEW_QUEUE_STARTS_LATE",
        {"queue": str(queue), "earliest": earliest, "lost": earliest},
    )


def offset_expired(queue: QueueRef, start: int, earliest: int, lost: int) -> DataLossError:
    """Retention removed messages that were still to be read."""
    return DataLossError(
        "ROCKETMQ_DATA_LOSS.OFFSET_EXPIRED",
        {"queue": str(queue), "start": start, "earliest": earliest, "lost": lost},
    )


def offset_not_reached(queue: QueueRef, end: int, latest: int) -> DataLossError:
    """A queue became shorter after the batch was planned."""
    return DataLossError(
        "ROCKETMQ_DATA_LOSS.OFFSET_NOT_REACHED",
        {"queue": str(queue), "end": end, "latest": latest},
    )


def offset_went_back(queue: QueueRef, start: int, end: int) -> DataLossError:
    """A queue is shorter than what was already read of it."""
    return DataLossError(
        "ROCKETMQ_DATA_LOSS.OFFSET_WENT_BACK", {"queue": str(queue), "start": start, "end": end}
    )


def queues_deleted(queues: Iterable[QueueRef]) -> DataLossError:
    """Queues that were read before exist no more."""
    return DataLossError("ROCKETMQ_DATA_LOSS.QUEUES_DELETED", {"queues": listed(queues)})


def queue_start_unknown(queue: QueueRef) -> DataLossError:
    """A new queue has no earliest offset that could be asked for."""
    return DataLossError("ROCKETMQ_DATA_LOSS.QUEUE_START_UNKNOWN", {"queue": str(queue)})


# ROCKETMQ_OFFSETS


def offsets_ambiguous_broker(option: str, topic: str, brokers: Iterable[str]) -> OptionError:
    """Two-level offsets for a topic that lives on several brokers."""
    ordered = sorted(brokers)
    return OptionError(
        "ROCKETMQ_OFFSETS.AMBIGUOUS_BROKER",
        {
            "option": option,
            "topic": topic,
            "brokers": ", ".join(ordered),
            "broker": ordered[0],
        },
    )


def offsets_end_is_earliest(option: str, place: str | None = None) -> OptionError:
    """A read that would end at the earliest message."""
    return OptionError("ROCKETMQ_OFFSETS.END_IS_EARLIEST", {"option": option, "where": _for(place)})


def offsets_not_the_assigned(
    option: str, missing: Iterable[Any], extra: Iterable[Any]
) -> OptionError:
    """Offsets that do not cover exactly the queues that are read."""
    return OptionError(
        "ROCKETMQ_OFFSETS.NOT_THE_ASSIGNED_QUEUES",
        {"option": option, "missing": listed(missing), "extra": listed(extra)},
    )


def offsets_queues_differ(
    starting: str, ending: str, only_start: Iterable[Any], only_end: Iterable[Any]
) -> OptionError:
    """Start and end offsets name different queues."""
    return OptionError(
        "ROCKETMQ_OFFSETS.QUEUES_DIFFER",
        {
            "starting": starting,
            "ending": ending,
            "only_start": listed(only_start),
            "only_end": listed(only_end),
        },
    )


def offsets_resolved_start_after_end(queue: QueueRef, start: int, end: int) -> OptionError:
    """After resolution a batch read would run backwards."""
    return OptionError(
        "ROCKETMQ_OFFSETS.RESOLVED_START_AFTER_END",
        {"queue": str(queue), "start": start, "end": end},
    )


def offsets_start_after_end(
    starting: str, start: int, ending: str, end: int, place: str
) -> OptionError:
    """Two given numbers of the same kind are in the wrong order."""
    return OptionError(
        "ROCKETMQ_OFFSETS.START_AFTER_END",
        {"starting": starting, "start": start, "ending": ending, "end": end, "where": place},
    )


def offsets_start_is_latest(option: str, place: str | None = None) -> OptionError:
    """A batch read that would start at the end."""
    return OptionError("ROCKETMQ_OFFSETS.START_IS_LATEST", {"option": option, "where": _for(place)})


def offsets_timestamp_not_found(queue: QueueRef, timestamp_ms: int) -> OptionError:
    """No message is as young as the starting timestamp."""
    return OptionError(
        "ROCKETMQ_OFFSETS.TIMESTAMP_NOT_FOUND",
        {
            "queue": str(queue),
            "timestamp_ms": timestamp_ms,
            "strategy": names.STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY,
        },
    )


# ROCKETMQ_OPTION


def option_conflict(given: Iterable[str], reason: str) -> OptionError:
    """Options that exclude each other."""
    return OptionError("ROCKETMQ_OPTION.CONFLICT", {"names": " and ".join(given), "reason": reason})


def option_empty(name: str, value: str, expected: str) -> OptionError:
    """An option that is given and says nothing."""
    return OptionError(
        "ROCKETMQ_OPTION.EMPTY", {"name": name, "value": shown(value), "expected": expected}
    )


def option_invalid(name: str, value: str, expected: str, example: str) -> OptionError:
    """A value that does not have the option's form."""
    return OptionError(
        "ROCKETMQ_OPTION.INVALID",
        {"name": name, "value": shown(value), "expected": expected, "example": example},
    )


def option_invalid_address(reason: object) -> OptionError:
    """A broker address that is none, or that carries credentials; then it is not shown."""
    return OptionError(
        "ROCKETMQ_OPTION.INVALID_ADDRESS", {"name": names.BROKER, "reason": str(reason)}
    )


def option_invalid_filter(name: str, reason: object) -> OptionError:
    """A filter text that does not compile."""
    return OptionError("ROCKETMQ_OPTION.INVALID_FILTER", {"name": name, "reason": str(reason)})


def option_min_above_max(minimum: int, maximum: int) -> OptionError:
    """The least that is worth a batch is more than the most it may hold."""
    return OptionError(
        "ROCKETMQ_OPTION.MIN_ABOVE_MAX",
        {
            "min_name": names.MIN_OFFSETS_PER_TRIGGER,
            "minimum": minimum,
            "max_name": names.MAX_OFFSETS_PER_TRIGGER,
            "maximum": maximum,
        },
    )


def option_missing(name: str, purpose: str, example: str) -> OptionError:
    """A required option that is not there."""
    return OptionError(
        "ROCKETMQ_OPTION.MISSING", {"name": name, "purpose": purpose, "example": example}
    )


def option_no_strategy(strategies: Iterable[str], example: str) -> OptionError:
    """Nothing says which topics to read."""
    return OptionError(
        "ROCKETMQ_OPTION.NO_STRATEGY", {"names": ", ".join(strategies), "example": example}
    )


def option_not_in_stream(name: str) -> OptionError:
    """An option that only a bounded read can obey."""
    return OptionError("ROCKETMQ_OPTION.NOT_IN_STREAM", {"name": name})


def option_several_strategies(strategies: Iterable[str], given: Iterable[str]) -> OptionError:
    """More than one option says which topics to read."""
    return OptionError(
        "ROCKETMQ_OPTION.SEVERAL_STRATEGIES",
        {"names": ", ".join(strategies), "given": " and ".join(given)},
    )


# ROCKETMQ_SCHEMA


def schema_differs(difference: str) -> SchemaError:
    """The user's schema is not the source's."""
    return SchemaError(
        "ROCKETMQ_SCHEMA.DIFFERS", {"difference": difference, "columns": names.COLUMNS}
    )


def schema_duplicate_column(column: str) -> SchemaError:
    """Two columns of one name."""
    return SchemaError(
        "ROCKETMQ_SCHEMA.DUPLICATE_COLUMN", {"column": column, "columns": names.COLUMNS}
    )


def schema_unknown_column(column: str, nearest: str | None, known: Iterable[str]) -> SchemaError:
    """A column that the source does not have."""
    return SchemaError(
        "ROCKETMQ_SCHEMA.UNKNOWN_COLUMN",
        {
            "column": shown(column),
            "columns": names.COLUMNS,
            "hint": f" Did you mean '{nearest}'?" if nearest else "",
            "known": ", ".join(known),
        },
    )


# ROCKETMQ_SINK


def sink_body_too_large(topic: str, size: int, limit: int) -> WriteError:
    """A body over the limit."""
    return WriteError(
        "ROCKETMQ_SINK.BODY_TOO_LARGE",
        {"topic": topic, "size": size, "limit": limit, "option": names.MAX_MESSAGE_SIZE},
    )


def sink_column_missing(column: str, purpose: str, found: Iterable[str]) -> SchemaError:
    """A column that a message can't do without."""
    return SchemaError(
        "ROCKETMQ_SINK.COLUMN_MISSING",
        {"column": column, "purpose": purpose, "found": listed(found)},
    )


def sink_column_twice(column: str, alias: str) -> SchemaError:
    """A column under both of its names."""
    return SchemaError("ROCKETMQ_SINK.COLUMN_TWICE", {"column": column, "alias": alias})


def sink_column_type(column: str, found: str, expected: str) -> SchemaError:
    """A column of a type that no message property has."""
    return SchemaError(
        "ROCKETMQ_SINK.COLUMN_TYPE", {"column": column, "found": found, "expected": expected}
    )


def sink_delay_level(topic: str, level: int, levels: int) -> WriteError:
    """A delay level that does not exist."""
    return WriteError(
        "ROCKETMQ_SINK.DELAY_LEVEL", {"topic": topic, "level": level, "levels": levels}
    )


def sink_empty_body(topic: str) -> WriteError:
    """A row without a body."""
    return WriteError("ROCKETMQ_SINK.EMPTY_BODY", {"topic": topic})


def sink_exactly_once_unsupported(broker: str, reason: str) -> OptionError:
    """A broker that can't refuse a repeated batch."""
    return OptionError(
        "ROCKETMQ_SINK.EXACTLY_ONCE_UNSUPPORTED",
        {"broker": broker, "reason": reason, "option": names.DELIVERY},
    )


def sink_illegal_text(topic: str, what: str, text: str, why: str) -> WriteError:
    """A text that can't be stored as it is."""
    return WriteError(
        "ROCKETMQ_SINK.ILLEGAL_TEXT",
        {"topic": topic, "what": what, "text": shown(ascii(text)[1:-1]), "why": why},
    )


def sink_null_topic() -> WriteError:
    """A row that says nowhere where it belongs."""
    return WriteError("ROCKETMQ_SINK.NULL_TOPIC", {"option": names.TOPIC})


def sink_overwrite() -> WriteError:
    """A save mode that a log of messages does not have."""
    return WriteError("ROCKETMQ_SINK.OVERWRITE", {})


def sink_queue_out_of_range(topic: str, queue_id: int, count: int) -> WriteError:
    """A queue that the topic does not have."""
    return WriteError(
        "ROCKETMQ_SINK.QUEUE_OUT_OF_RANGE", {"topic": topic, "queue_id": queue_id, "count": count}
    )


def sink_reserved_property(topic: str, name: str, column: str | None) -> WriteError:
    """A user property with a name of RocketMQ's; `column` is what sets it, if anything does."""
    hint = f", or use the column '{column}'" if column else ""
    return WriteError(
        "ROCKETMQ_SINK.RESERVED_PROPERTY", {"topic": topic, "name": shown(name), "hint": hint}
    )


def sink_topic_missing(topic: str, broker: str) -> WriteError:
    """A row for a topic that does not exist."""
    return WriteError(
        "ROCKETMQ_SINK.TOPIC_MISSING",
        {"topic": shown(topic), "broker": broker, "option": names.CREATE_TOPIC},
    )


def sink_written_twice(batch: object) -> WriteError:
    """Two writes of one foreachBatch that can't be told apart."""
    text = str(batch)
    return WriteError(
        "ROCKETMQ_SINK.WRITTEN_TWICE",
        {"batch": text[:1].upper() + text[1:], "option": names.TXN_NAME},
    )


# ROCKETMQ_TOPIC_NOT_FOUND


def topic_not_found(topic: str, broker: str, option: str) -> TopicNotFoundError:
    """A topic named by an option does not exist."""
    return TopicNotFoundError(
        "ROCKETMQ_TOPIC_NOT_FOUND", {"topic": topic, "broker": broker, "option": option}
    )


def _for(place: str | None) -> str:
    return f" for {place}" if place else ""
