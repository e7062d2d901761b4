"""Every option, once: name, parser, default, where it applies, and what it is for.

The rows are the documentation: docs/options.md is generated from them (tools/reference_pages.py).
Options whose meaning depends on others (offsets, columns, subscriptions) stay text here; they are
parsed in options/options.py, which knows the others.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from pyspark_rocketmq.options import names, parsers
from pyspark_rocketmq.options.parsers import Parser


class Scope(enum.Flag):
    """The kinds of query in which an option has a meaning."""

    STREAM_READ = enum.auto()
    BATCH_READ = enum.auto()
    WRITE = enum.auto()
    READ = STREAM_READ | BATCH_READ
    ANY = STREAM_READ | BATCH_READ | WRITE


@dataclass(frozen=True)
class Option:
    """One row. `shown` is the default as the documentation shows it, if not by its value."""

    name: str
    parse: Parser
    default: Any
    scope: Scope
    doc: str
    shown: str = ""


STREAM, BATCH, READ, WRITE, ANY = (
    Scope.STREAM_READ,
    Scope.BATCH_READ,
    Scope.READ,
    Scope.WRITE,
    Scope.ANY,
)

GROUPS: dict[str, tuple[Option, ...]] = {
    "Which broker": (
        Option(
            names.BROKER,
            parsers.text,
            None,
            ANY,
            "Where the messages are: `file:/path/to/store` or a bare path (embedded), "
            "`grpc://host:port` or `grpcs://host:port` (remote), `rocketmq://ns1:9876,ns2:9876` "
            "(an Apache RocketMQ cluster). Never with credentials in it.",
            shown="required",
        ),
        Option(names.ACCESS_KEY, parsers.text, None, ANY, "Access key of a cluster's ACL."),
        Option(names.SECRET_KEY, parsers.secret, None, ANY, "Secret key of a cluster's ACL."),
        Option(names.SECURITY_TOKEN, parsers.secret, None, ANY, "Session token of temporary keys."),
        Option(names.TOKEN, parsers.secret, None, ANY, "Token that a remote core asks for."),
        Option(names.TLS_CA, parsers.text, None, ANY, "File with the certificates to trust."),
        Option(names.TLS_CERT, parsers.text, None, ANY, "File with the client's certificate."),
        Option(names.TLS_KEY, parsers.text, None, ANY, "File with the client's private key."),
        Option(
            names.TLS_SERVER_NAME,
            parsers.text,
            None,
            ANY,
            "Name to expect in the server's certificate, if it is not the host's.",
        ),
    ),
    "Which queues (exactly one of these)": (
        Option(
            names.SUBSCRIBE,
            parsers.text,
            None,
            READ,
            "Topics, comma-separated. System topics can be named. A missing one is an error.",
        ),
        Option(
            names.TOPIC,
            parsers.text,
            None,
            ANY,
            f"Reading: another name for `{names.SUBSCRIBE}`. Writing: the topic of every row, "
            "before the column `topic`.",
        ),
        Option(
            names.SUBSCRIBE_PATTERN,
            parsers.text,
            None,
            READ,
            "A regular expression that is searched in topic names, not anchored. Never matches "
            "system topics; matching nothing is no error, and topics made later join.",
        ),
        Option(
            names.ASSIGN,
            parsers.text,
            None,
            READ,
            'Single queues: `{"orders":{"broker-a":[0,1]}}`, or `{"orders":[0,1]}` where the topic '
            "lives on one broker. Queues that do not exist are left out.",
        ),
    ),
    "Which messages": (
        Option(
            names.STARTING_OFFSETS,
            parsers.text,
            None,
            READ,
            "`earliest`, `latest`, `group` (the consumer group's offsets), or offsets for "
            'exactly the queues read: `{"orders":{"broker-a":{"0":23,"1":-2}}}`, where -2 is '
            "earliest and -1 latest. A stream uses it only when it has no checkpoint; queues "
            "found later start at earliest. A batch can't start at latest.",
            shown="stream: `latest`; batch: `earliest`",
        ),
        Option(
            names.STARTING_TIMESTAMP,
            parsers.timestamp_ms,
            None,
            READ,
            "Start at the first message stored at or after this time, in milliseconds since 1970. "
            f"Beats `{names.STARTING_OFFSETS_BY_TIMESTAMP}`, which beats "
            f"`{names.STARTING_OFFSETS}`.",
        ),
        Option(
            names.STARTING_OFFSETS_BY_TIMESTAMP,
            parsers.text,
            None,
            READ,
            f"`{names.STARTING_TIMESTAMP}` per queue, in the form of `{names.STARTING_OFFSETS}`.",
        ),
        Option(
            names.STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY,
            parsers.choice("error", "latest"),
            "error",
            READ,
            "For queues without a message that young: fail, or start at their end.",
        ),
        Option(
            names.ENDING_OFFSETS,
            parsers.text,
            None,
            BATCH,
            "`latest`, or offsets for exactly the queues read, each exclusive; -1 is latest.",
            shown="`latest`",
        ),
        Option(
            names.ENDING_TIMESTAMP,
            parsers.timestamp_ms,
            None,
            BATCH,
            "End before the first message stored at or after this time; latest if there is none.",
        ),
        Option(
            names.ENDING_OFFSETS_BY_TIMESTAMP,
            parsers.text,
            None,
            BATCH,
            f"`{names.ENDING_TIMESTAMP}` per queue, in the form of `{names.ENDING_OFFSETS}`.",
        ),
        Option(
            names.TAGS,
            parsers.text,
            None,
            READ,
            "Only messages with one of these tags: `A || B`; `*` is all. Decided before bodies are "
            f"read. Not with `{names.SQL}`.",
        ),
        Option(
            names.SQL,
            parsers.text,
            None,
            READ,
            "Only messages whose properties satisfy this SQL92 expression, for example "
            "`price > 5 AND region = 'eu'`.",
        ),
        Option(
            names.FAIL_ON_DATA_LOSS,
            parsers.boolean,
            True,
            READ,
            "Fail when messages that are still needed are gone (expired, topic deleted or created "
            "anew). When false, log it and read what is there.",
        ),
        Option(
            names.SKIP_CORRUPT,
            parsers.boolean,
            False,
            READ,
            "Leave out damaged records, and log each, instead of failing.",
        ),
    ),
    "Which columns": (
        Option(
            names.COLUMNS,
            parsers.text,
            None,
            READ,
            "Comma list of columns, in the order wanted. Columns that are not named cost nothing. "
            "`property:NAME` is one property as a column called NAME.",
            shown="the ten default columns",
        ),
        Option(
            names.INCLUDE_PROPERTIES,
            parsers.boolean,
            False,
            READ,
            f"Add the column `properties` to the default ones; not with `{names.COLUMNS}`.",
        ),
    ),
    "How much at once": (
        Option(
            names.MAX_OFFSETS_PER_TRIGGER,
            parsers.positive_long,
            None,
            STREAM,
            "Upper bound on offsets per micro-batch, shared between queues by backlog; every queue "
            "with messages moves by at least one.",
        ),
        Option(
            names.MIN_OFFSETS_PER_TRIGGER,
            parsers.positive_long,
            None,
            STREAM,
            f"Wait until this many offsets have come, or `{names.MAX_TRIGGER_DELAY}` has passed. "
            "The first trigger of a run never waits.",
        ),
        Option(
            names.MAX_TRIGGER_DELAY,
            parsers.duration_ms,
            15 * 60 * 1000,
            STREAM,
            f"Longest time that `{names.MIN_OFFSETS_PER_TRIGGER}` holds messages back: `90s`, "
            "`15m`.",
            shown="`15m`",
        ),
        Option(
            names.MAX_BYTES_PER_TRIGGER,
            parsers.positive_long,
            None,
            STREAM,
            "Upper bound on stored bytes per micro-batch, shared between queues by backlog; every "
            "queue with messages moves by at least one.",
        ),
        Option(
            names.MIN_PARTITIONS,
            parsers.positive_int,
            None,
            READ,
            "Tasks to cut a read into, approximately, if there are fewer queues than that.",
        ),
        Option(
            names.MAX_RECORDS_PER_PARTITION,
            parsers.positive_long,
            None,
            READ,
            "Upper bound on offsets per task.",
        ),
        Option(
            names.BATCH_ROWS,
            parsers.positive_int,
            100_000,
            READ,
            "Rows per Arrow batch; a batch is also cut at 64 MiB, so large bodies need no tuning.",
        ),
        Option(
            names.FILTER_PUSHDOWN,
            parsers.boolean,
            False,
            BATCH,
            f"Let Spark hand filters to the source. Needs `{names.SPARK_PUSHDOWN}=true` too; "
            "without it nothing is pushed. Call `load()` once per filter: Spark (4.1 to 4.3) keeps "
            "what was pushed for a DataFrame and uses it for every other read of the same "
            "DataFrame, also in a union or self-join, whose rows are then wrong.",
        ),
    ),
    "Talking to the broker": (
        Option(
            names.CONSUMER_GROUP,
            parsers.text,
            None,
            READ,
            f"The consumer group of `{names.STARTING_OFFSETS}=group` and `{names.COMMIT_OFFSETS}`.",
        ),
        Option(
            names.COMMIT_OFFSETS,
            parsers.boolean,
            False,
            STREAM,
            f"Commit offsets to `{names.CONSUMER_GROUP}` after each batch, for tools that show the "
            "lag. Spark's checkpoint alone decides what is read.",
        ),
        Option(
            names.FETCH_RETRIES,
            parsers.positive_int,
            3,
            READ,
            "Attempts to ask the broker for topics and offsets.",
        ),
        Option(
            names.FETCH_INTERVAL,
            parsers.natural_long,
            1000,
            READ,
            "Pause between these attempts, in ms.",
        ),
        Option(
            names.PULL_TIMEOUT,
            parsers.positive_long,
            120_000,
            READ,
            "Longest time that a task waits for messages that must be there, in ms.",
        ),
    ),
    "Writing": (
        Option(
            names.DELIVERY,
            parsers.choice("exactly-once", "at-least-once"),
            None,
            WRITE,
            "`exactly-once`: a replayed batch adds nothing. `at-least-once`: it is sent again.",
            shown="`exactly-once` where the broker can",
        ),
        Option(
            names.TXN_NAME,
            parsers.text,
            None,
            WRITE,
            "Keeps several writes of one `foreachBatch` apart.",
        ),
        Option(
            names.TXN_ID,
            parsers.text,
            None,
            WRITE,
            "Makes a plain batch save idempotent: a second save with this id to the same topic "
            "adds nothing, whatever its rows. Inside a foreachBatch it names the write in place of "
            "the query's ids, and other rows under one id are an error.",
        ),
        Option(
            names.ON_CONFLICT,
            parsers.choice("refuse", "repeat", "write"),
            "refuse",
            WRITE,
            "What to do with a batch whose number is decided already, but for other rows, as after "
            "a checkpoint was restored or copied, or so long ago that the broker has forgotten for "
            "which. `refuse`: fail. `repeat`: leave it out. `write`: write it. Set it for the run "
            "that gets past the conflict only.",
        ),
        Option(
            names.ALLOW_GAP,
            parsers.boolean,
            False,
            WRITE,
            "Let a streaming sink go on where the batch before is not in the store, as with a "
            "store that is older than the checkpoint, or after a query has changed its sink.",
        ),
        Option(
            names.COMPRESSION,
            parsers.choice("none", "zlib", "lz4", "zstd"),
            "none",
            WRITE,
            "Compression of bodies.",
        ),
        Option(
            names.COMPRESSION_THRESHOLD,
            parsers.natural_long,
            4096,
            WRITE,
            "Smallest body to compress, in bytes.",
        ),
        Option(
            names.CREATE_TOPIC,
            parsers.positive_int,
            None,
            WRITE,
            "Create missing topics with this many queues.",
            shown="a missing topic is an error",
        ),
        Option(names.PRODUCER_GROUP, parsers.text, None, WRITE, "Producer group of the messages."),
        Option(
            names.FLUSH,
            parsers.choice("async", "sync"),
            None,
            WRITE,
            "`sync`: acknowledged messages also survive loss of power.",
            shown="the broker's own setting",
        ),
        Option(
            names.MAX_MESSAGE_SIZE,
            parsers.positive_int,
            4 * 1024 * 1024,
            WRITE,
            "Largest body, in bytes.",
        ),
    ),
}

TABLE: dict[str, Option] = {option.name: option for rows in GROUPS.values() for option in rows}
