"""What each figure means: the group it is shown in, its goal, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Figures = Mapping[str, Mapping[str, Any]]
"""Figures by name, as `./run bench --json` prints them."""


@dataclass(frozen=True)
class Meaning:
    """One figure in words. A goal is a floor for the ratio, or a ceiling if `is_cost`."""

    ours: str
    peer: str
    goal: float | None = None
    is_cost: bool = False

    def is_met(self, value: float) -> bool | None:
        """Whether a ratio meets the goal; None where there is no goal."""
        if self.goal is None:
            return None
        return value <= self.goal if self.is_cost else value >= self.goal


@dataclass(frozen=True)
class Group:
    """Figures that are shown together, and a paragraph about what limits them."""

    title: str
    limits: str
    meanings: dict[str, Meaning]


COLUMN_SETS = {"": "Kafka's six columns", ".default": "ten columns", ".body": "two columns"}


def _read(name: str, ours: str, peer: str, *goals: float) -> dict[str, Meaning]:
    """One figure for each set of columns."""
    return {
        f"{name}{suffix}": Meaning(f"{ours}, {words}", peer, goal)
        for (suffix, words), goal in zip(COLUMN_SETS.items(), goals or (None,) * 3, strict=True)
    }


GROUPS = (
    Group(
        "Reading into Spark",
        "The ceiling is a Python source that yields batches made beforehand: what is left of the "
        "time is Spark's, which copies every Arrow batch from the Python worker to the JVM. The "
        "rest of our time goes into decoding, which is one compiled walk over the records: most "
        "of it is waiting for memory, for records of one queue lie apart from each other. A remote "
        "read adds the same bytes over a socket, sent by one server process that shares the "
        "machine's cores with Spark. Kafka's source is JVM code, and makes rows one at a time. "
        "Spark's setting `spark.python.unix.domain.socket.enabled=true`, off here as it is by "
        "default, lets batches travel without TCP, which helps every Python source a little.",
        {
            **_read(
                "read.stream.embedded.vs_kafka",
                "stream from `file:`",
                "Spark's Kafka source",
                3.0,
                2.0,
                3.5,
            ),
            **_read(
                "read.stream.remote.vs_kafka",
                "stream from `grpc://`",
                "Spark's Kafka source",
                2.0,
                2.0,
                2.0,
            ),
            **_read(
                "read.stream.embedded.vs_ceiling",
                "stream from `file:`",
                "the ceiling",
                0.80,
                0.75,
                0.85,
            ),
            **_read(
                "read.batch.embedded.vs_ceiling",
                "batch read from `file:`",
                "the ceiling",
                0.80,
                0.75,
                0.85,
            ),
            **_read(
                "read.stream.remote.vs_ceiling",
                "stream from `grpc://`",
                "the ceiling",
                0.60,
                0.60,
                0.60,
            ),
        },
    ),
    Group(
        "Reading a cluster",
        "The broker's own limits on what one pull returns decide both sides; pulls that are "
        "under way at the same time, and decoding by columns, decide the ratio.",
        {
            **_read(
                "read.cluster.vs_java_client",
                "`rocketmq://`, a broker's own limits",
                "the official Java pull client",
                1.2,
                1.2,
                1.2,
            ),
            **_read(
                "read.cluster.raised.vs_java_client",
                "`rocketmq://`, raised limits",
                "the official Java pull client",
                1.2,
                1.2,
                1.2,
            ),
        },
    ),
    Group(
        "Writing from Spark",
        "Spark hands rows over in Arrow batches of at most 10,000; encoding, appending, and "
        "dispatch to consume queues and index follow. Exactly once writes every message twice, "
        "as RocketMQ's transactions do: in a half message, and as the copy that becomes visible. "
        "Kafka's sink, which is at-least-once, is the peer of both; it is JVM code, and still "
        "becoming faster after ten rounds. A Python sink that discards what it gets marks what "
        "Spark's way to Python costs: no sink written in Python can be that much faster than "
        "Kafka's. Topics stay for all rounds, ours as Kafka's.\n\n"
        "Spark is set up as [Operations](operations.md#spark-as-a-writer) advises for small "
        "messages, `spark.sql.execution.arrow.maxBytesPerBatch=2147483647`: otherwise it adds up "
        "the size of the whole Arrow batch again after every row, which takes a third of the "
        "time that it needs for rows on their way to Python. That setting is no matter to "
        "Kafka's sink.",
        {
            "write.exactly_once.vs_kafka": Meaning(
                "exactly once, Spark tuned", "Spark's Kafka sink", 1.5
            ),
            "write.exactly_once.vs_kafka.untuned": Meaning(
                "exactly once, Spark as it comes", "Spark's Kafka sink", 1.5
            ),
            "write.at_least_once.vs_kafka": Meaning(
                "at least once, Spark tuned", "Spark's Kafka sink", 2.5
            ),
            "write.at_least_once.vs_kafka.untuned": Meaning(
                "at least once, Spark as it comes", "Spark's Kafka sink", 2.5
            ),
            "write.vs_ceiling": Meaning("at least once", "a Python sink that discards"),
            "write.ceiling.vs_kafka": Meaning("a Python sink that discards", "Spark's Kafka sink"),
        },
    ),
    Group(
        "The remote core",
        "Sinks on `grpc://` send finished records to one server process, which checks, places and "
        "appends them, and shares the machine's cores with Spark, as it comes. Single sends "
        "and followers are compared with a gRPC server in Python that does nothing but answer; "
        "sends that wait at the same time become one append, and so are faster "
        "than answers one by one.",
        {
            "write.remote.exactly_once.vs_embedded": Meaning(
                "exactly once to `grpc://`", "exactly once to `file:`", 0.7
            ),
            "write.remote.at_least_once.vs_embedded": Meaning(
                "at least once to `grpc://`", "at least once to `file:`", 0.7
            ),
            "send.remote.connection.vs_echo": Meaning("single sends, one connection", "echo"),
            "send.remote.total.vs_echo": Meaning("single sends, four connections", "echo"),
            "follow.remote.vs_echo": Meaning(
                "from an append to its 16 followers", "an echo", is_cost=True
            ),
        },
    ),
    Group(
        "One message at a time",
        "One thread sends a message when the one before is acknowledged, so each bears all that a "
        "send costs. By `file:` that is an append that every process can read from then on, of a "
        "message with a key and no tag; the peer inserts a row in a transaction of its own, with a "
        "write-ahead log, synchronous off and an index on the key. In both turns another process "
        "looks for every hundredth message once it is acknowledged, and finds it. The goal is half "
        "of SQLite's rate; a send also makes and indexes a unique key. By `grpc://` the peer is a "
        "gRPC server in Python that does nothing but send back a request of the same size: the "
        "rest of the time is ours, on both sides of the connection.",
        {
            "send.embedded.vs_sqlite": Meaning(
                "single sends to `file:`", "single inserts into SQLite", 0.5
            ),
            "send.remote.lone.vs_echo": Meaning(
                "single sends to `grpc://`, one thread", "echo of as many bytes"
            ),
        },
    ),
    Group(
        "Filters and lookups",
        "A tag filter reads the 20-byte entries of the consume queue and nothing else of what it "
        "drops. SQL92 has to find the properties of every record, so that it touches the log, but "
        "copies no bodies. A lookup by key goes to the index; all but some milliseconds of it is "
        "Spark starting a task, so the ratio falls when scans become faster.",
        {
            "read.tag.selective": Meaning("read with a tag filter", "read of everything", 20.0),
            "read.sql.selective": Meaning("read with a SQL92 filter", "read of everything", 3.0),
            "query.key.vs_scan": Meaning("`where keys = …`, pushed down", "scan in Spark", 50.0),
        },
    ),
    Group(
        "The codec and the store by themselves",
        "One core, no Spark. The peer copies the records' bytes with a single Arrow `take`, and "
        "so does nothing that reading could do without: it marks the speed of memory. Appending "
        "is compared with the same, though it also writes files, dispatches to consume queues "
        "and hashes keys into the index.",
        {
            "decode.default.vs_take": Meaning("decode to ten columns", "one `take`", 0.22),
            "decode.body.vs_take": Meaning("decode to two columns", "one `take`", 0.70),
            "append.keys.vs_take": Meaning("append, with keys", "one `take`", 0.04),
            "append.nokeys.vs_take": Meaning("append, without keys", "one `take`", 0.07),
        },
    ),
    Group(
        "What does not grow",
        "Opening a store maps its newest files and reads its tables; how much it holds does not "
        "matter. An empty micro-batch asks for offsets and starts as many tasks as there are "
        "queues, as the peer's does.",
        {
            "open.growth": Meaning(
                "opening a store 100 times as large", "opening the small one", 3.0, is_cost=True
            ),
            "batch.overhead": Meaning(
                "an empty micro-batch", "one of a source that does nothing", 1.3, is_cost=True
            ),
        },
    ),
)


def shown(figures: Figures) -> list[Group]:
    """The groups, each with the figures that there are; those without words come last."""
    groups = [
        Group(each.title, each.limits, {n: m for n, m in each.meanings.items() if n in figures})
        for each in GROUPS
    ]
    known = {name for group in groups for name in group.meanings}
    others = {name: Meaning("ours", "its peer") for name in figures if name not in known}
    return [group for group in [*groups, Group("Others", "", others)] if group.meanings]


README_FIGURES = (
    "read.stream.embedded.vs_kafka",
    "read.stream.remote.vs_kafka",
    "read.stream.embedded.vs_ceiling",
    "write.exactly_once.vs_kafka",
    "write.exactly_once.vs_kafka.untuned",
    "write.at_least_once.vs_kafka",
    "write.at_least_once.vs_kafka.untuned",
    "read.cluster.vs_java_client",
    "read.tag.selective",
    "query.key.vs_scan",
)
