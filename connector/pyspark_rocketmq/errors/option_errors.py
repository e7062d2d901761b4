"""Errors of options: ROCKETMQ_OPTION, ROCKETMQ_OFFSETS and ROCKETMQ_SCHEMA.

One function per condition. It returns the error and the caller raises it; the sentences are in
pyspark_rocketmq/conditions.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark_rocketmq.errors import OptionError, SchemaError, listed, shown
from pyspark_rocketmq.options import names

if TYPE_CHECKING:
    from broker_core.types import QueueRef


# ROCKETMQ_OFFSETS


def offsets_ambiguous_broker(option: str, topic: str, brokers: Iterable[str]) -> OptionError:
    """Refuse two-level offsets for a topic that lives on several brokers."""
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


def offsets_end_is_earliest(option: str, queue: str | None = None) -> OptionError:
    """Refuse a read that would end at the earliest message."""
    return OptionError("ROCKETMQ_OFFSETS.END_IS_EARLIEST", {"option": option, "where": _for(queue)})


def offsets_not_the_assigned(
    option: str, missing: Iterable[Any], extra: Iterable[Any]
) -> OptionError:
    """Refuse offsets that do not cover exactly the queues that are read."""
    return OptionError(
        "ROCKETMQ_OFFSETS.NOT_THE_ASSIGNED_QUEUES",
        {"option": option, "missing": listed(missing), "extra": listed(extra)},
    )


def offsets_queues_differ(
    starting: str, ending: str, only_start: Iterable[Any], only_end: Iterable[Any]
) -> OptionError:
    """Refuse start and end offsets that name different queues."""
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
    """Refuse a batch read whose start, once resolved, is after its end."""
    return OptionError(
        "ROCKETMQ_OFFSETS.RESOLVED_START_AFTER_END",
        {"queue": str(queue), "start": start, "end": end},
    )


def offsets_start_after_end(
    starting: str, start: int, ending: str, end: int, queue: str
) -> OptionError:
    """Refuse a start after an end, both offsets or both times; `queue` may be "every queue"."""
    return OptionError(
        "ROCKETMQ_OFFSETS.START_AFTER_END",
        {"starting": starting, "start": start, "ending": ending, "end": end, "where": queue},
    )


def offsets_start_is_latest(option: str, queue: str | None = None) -> OptionError:
    """Refuse a batch read that would start at latest."""
    return OptionError("ROCKETMQ_OFFSETS.START_IS_LATEST", {"option": option, "where": _for(queue)})


def offsets_timestamp_not_found(queue: QueueRef, timestamp_ms: int) -> OptionError:
    """Refuse a starting timestamp after a queue's last message."""
    return OptionError(
        "ROCKETMQ_OFFSETS.TIMESTAMP_NOT_FOUND",
        {
            "queue": str(queue),
            "timestamp_ms": timestamp_ms,
            "strategy": names.STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY,
        },
    )


# ROCKETMQ_OPTION


def conflict(options: Iterable[str], reason: str) -> OptionError:
    """Refuse options that exclude each other."""
    return OptionError(
        "ROCKETMQ_OPTION.CONFLICT", {"names": " and ".join(options), "reason": reason}
    )


def empty(name: str, value: str, expected: str) -> OptionError:
    """Refuse an option whose text is empty."""
    return OptionError(
        "ROCKETMQ_OPTION.EMPTY", {"name": name, "value": shown(value), "expected": expected}
    )


def invalid(name: str, value: str, expected: str, example: str) -> OptionError:
    """Refuse a text that does not have the option's form."""
    return OptionError(
        "ROCKETMQ_OPTION.INVALID",
        {"name": name, "value": shown(value), "expected": expected, "example": example},
    )


def invalid_address(reason: object) -> OptionError:
    """Refuse a malformed address, or one with credentials, which `reason` must not show."""
    return OptionError(
        "ROCKETMQ_OPTION.INVALID_ADDRESS", {"name": names.BROKER, "reason": str(reason)}
    )


def invalid_filter(name: str, reason: object) -> OptionError:
    """Refuse a filter that does not compile."""
    return OptionError("ROCKETMQ_OPTION.INVALID_FILTER", {"name": name, "reason": str(reason)})


def min_above_max(minimum: int, maximum: int) -> OptionError:
    """Refuse a least size of a micro-batch above its largest size."""
    return OptionError(
        "ROCKETMQ_OPTION.MIN_ABOVE_MAX",
        {
            "min_name": names.MIN_OFFSETS_PER_TRIGGER,
            "minimum": minimum,
            "max_name": names.MAX_OFFSETS_PER_TRIGGER,
            "maximum": maximum,
        },
    )


def missing(name: str, purpose: str, example: str) -> OptionError:
    """Refuse options without a required one."""
    return OptionError(
        "ROCKETMQ_OPTION.MISSING", {"name": name, "purpose": purpose, "example": example}
    )


def no_strategy(strategies: Iterable[str], example: str) -> OptionError:
    """Refuse options that choose no topic."""
    return OptionError(
        "ROCKETMQ_OPTION.NO_STRATEGY", {"names": ", ".join(strategies), "example": example}
    )


def not_in_stream(name: str) -> OptionError:
    """Refuse an option that only a batch read has."""
    return OptionError("ROCKETMQ_OPTION.NOT_IN_STREAM", {"name": name})


def several_strategies(strategies: Iterable[str], given: Iterable[str]) -> OptionError:
    """Refuse several options that each choose topics."""
    return OptionError(
        "ROCKETMQ_OPTION.SEVERAL_STRATEGIES",
        {"names": ", ".join(strategies), "given": " and ".join(given)},
    )


# ROCKETMQ_SCHEMA


def schema_differs(difference: str) -> SchemaError:
    """Refuse a user's schema that is not the source's."""
    return SchemaError(
        "ROCKETMQ_SCHEMA.DIFFERS", {"difference": difference, "columns": names.COLUMNS}
    )


def schema_duplicate_column(column: str) -> SchemaError:
    """Refuse two columns of one name."""
    return SchemaError(
        "ROCKETMQ_SCHEMA.DUPLICATE_COLUMN", {"column": column, "columns": names.COLUMNS}
    )


def schema_unknown_column(column: str, nearest: str | None, known: Iterable[str]) -> SchemaError:
    """Refuse a column that the source does not have."""
    return SchemaError(
        "ROCKETMQ_SCHEMA.UNKNOWN_COLUMN",
        {
            "column": shown(column),
            "columns": names.COLUMNS,
            "hint": f" Did you mean '{nearest}'?" if nearest else "",
            "known": ", ".join(known),
        },
    )


def _for(queue: str | None) -> str:
    return f" for {queue}" if queue else ""
