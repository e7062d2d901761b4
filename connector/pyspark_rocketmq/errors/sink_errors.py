"""Errors of writes: ROCKETMQ_SINK.

One function per condition. It returns the error and the caller raises it; the sentences are in
pyspark_rocketmq/conditions.py. Errors about rows name the first row that is wrong by its topic.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_rocketmq.errors import OptionError, SchemaError, WriteError, listed, shown
from pyspark_rocketmq.options import names

TXN_ID_LINE = f'.option("{names.TXN_ID}", "name-of-the-query-" + str(batch_id))'
"""The line that gives a write an identity where Spark gives it none."""

# ROCKETMQ_SINK


def batch_conflict(batch: object, checkpoint: str | None, reason: object) -> WriteError:
    """Refuse a batch whose number is decided already, for other rows."""
    return WriteError(
        "ROCKETMQ_SINK.BATCH_CONFLICT",
        {
            "batch": _capital(batch),
            "checkpoint": f" (checkpoint {checkpoint})" if checkpoint else "",
            "reason": shown(reason),
            "option": names.ON_CONFLICT,
            "txn_id": names.TXN_ID,
        },
    )


def batch_gap(batch: object, checkpoint: str | None, broker: str, reason: object) -> WriteError:
    """Refuse a batch if the store does not have the one before it."""
    return WriteError(
        "ROCKETMQ_SINK.BATCH_GAP",
        {
            "batch": _capital(batch),
            "checkpoint": f" (checkpoint {checkpoint})" if checkpoint else "",
            "broker": broker,
            "reason": shown(reason),
            "option": names.ALLOW_GAP,
        },
    )


def batch_unknown(*, is_connect: bool) -> WriteError:
    """Refuse a write of a foreachBatch that does not know its batch."""
    where = "under Spark Connect" if is_connect else "from a thread that Spark did not start"
    thread = "" if is_connect else ", or start the thread as pyspark.InheritableThread"
    return WriteError(
        "ROCKETMQ_SINK.BATCH_UNKNOWN",
        {"where": where, "line": TXN_ID_LINE, "thread": thread},
    )


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


def own_topic(topic: str, where: str) -> WriteError:
    """Refuse a topic that only the broker itself may write to; `where` begins the sentence."""
    return WriteError("ROCKETMQ_SINK.OWN_TOPIC", {"where": where, "topic": shown(topic)})


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
    return WriteError(
        "ROCKETMQ_SINK.WRITTEN_TWICE", {"batch": _capital(batch), "option": names.TXN_NAME}
    )


def _capital(batch: object) -> str:
    text = str(batch)
    return text[:1].upper() + text[1:]
