"""Errors of writes: ROCKETMQ_SINK.

One function per condition. It returns the error and the caller raises it; the sentences are in
pyspark_rocketmq/conditions.py. Errors about rows name the first row that is wrong by its topic.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_rocketmq.errors import OptionError, SchemaError, WriteError, listed, shown
from pyspark_rocketmq.options import names

# ROCKETMQ_SINK


def body_too_large(topic: str, size: int, limit: int) -> WriteError:
    """Refuse a body over the limit."""
    return WriteError(
        "ROCKETMQ_SINK.BODY_TOO_LARGE",
        {"topic": topic, "size": size, "limit": limit, "option": names.MAX_MESSAGE_SIZE},
    )


def column_missing(column: str, purpose: str, found: Iterable[str]) -> SchemaError:
    """Refuse a DataFrame without a required column."""
    return SchemaError(
        "ROCKETMQ_SINK.COLUMN_MISSING",
        {"column": column, "purpose": purpose, "found": listed(found)},
    )


def column_twice(column: str, alias: str) -> SchemaError:
    """Refuse a DataFrame with a column under both of its names."""
    return SchemaError("ROCKETMQ_SINK.COLUMN_TWICE", {"column": column, "alias": alias})


def column_type(column: str, found: str, expected: str) -> SchemaError:
    """Refuse a column of a type that the sink does not take."""
    return SchemaError(
        "ROCKETMQ_SINK.COLUMN_TYPE", {"column": column, "found": found, "expected": expected}
    )


def delay_level(topic: str, level: int, levels: int) -> WriteError:
    """Refuse a delay level that does not exist."""
    return WriteError(
        "ROCKETMQ_SINK.DELAY_LEVEL", {"topic": topic, "level": level, "levels": levels}
    )


def empty_body(topic: str) -> WriteError:
    """Refuse a row without a body."""
    return WriteError("ROCKETMQ_SINK.EMPTY_BODY", {"topic": topic})


def exactly_once_unsupported(broker: str, reason: str) -> OptionError:
    """Refuse exactly once on a broker that can't refuse a repeated batch."""
    return OptionError(
        "ROCKETMQ_SINK.EXACTLY_ONCE_UNSUPPORTED",
        {"broker": broker, "reason": reason, "option": names.DELIVERY},
    )


def illegal_text(topic: str, what: str, text: str, why: str) -> WriteError:
    """Refuse a text that can't be stored unchanged."""
    return WriteError(
        "ROCKETMQ_SINK.ILLEGAL_TEXT",
        {"topic": topic, "what": what, "text": shown(ascii(text)[1:-1]), "why": why},
    )


def null_topic() -> WriteError:
    """Refuse a row without a topic."""
    return WriteError("ROCKETMQ_SINK.NULL_TOPIC", {"option": names.TOPIC})


def overwrite() -> WriteError:
    """Refuse the save mode `overwrite`."""
    return WriteError("ROCKETMQ_SINK.OVERWRITE", {})


def queue_out_of_range(topic: str, queue_id: int, count: int) -> WriteError:
    """Refuse a queue id that the topic does not have."""
    return WriteError(
        "ROCKETMQ_SINK.QUEUE_OUT_OF_RANGE", {"topic": topic, "queue_id": queue_id, "count": count}
    )


def reserved_property(topic: str, name: str, column: str | None) -> WriteError:
    """Refuse a user property with a reserved name; `column` is the column that sets it, if any."""
    hint = f", or use the column '{column}'" if column else ""
    return WriteError(
        "ROCKETMQ_SINK.RESERVED_PROPERTY", {"topic": topic, "name": shown(name), "hint": hint}
    )


def topic_missing(topic: str, broker: str) -> WriteError:
    """Refuse a row for a topic that does not exist."""
    return WriteError(
        "ROCKETMQ_SINK.TOPIC_MISSING",
        {"topic": shown(topic), "broker": broker, "option": names.CREATE_TOPIC},
    )


def written_twice(batch: object) -> WriteError:
    """Refuse a second write of one foreachBatch that can't be told from the first."""
    text = str(batch)
    return WriteError(
        "ROCKETMQ_SINK.WRITTEN_TWICE",
        {"batch": text[:1].upper() + text[1:], "option": names.TXN_NAME},
    )
