"""Our source on `rocketmq://` against the official Java pull client, on one Apache broker.

Both read the same topic from the same broker in turns, once with the broker's own transfer limits
and once with raised ones. The store is written by us, which Apache's broker takes as its own; the
Java client has a thread for each queue and a JVM that has had its first round to get warm. There
are as many messages as for other reads by Spark: what a query costs to start and to end is part of
our time, and should be small beside the reading; the Java client is timed without its start.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from broker_core import open_broker
from tests.bench.data import BODY_BYTES, TOPIC, fill
from tests.bench.figure import Figure, Seconds, Turn, rate_figure, take_turns, tell
from tests.bench.spark_read import COLUMN_SETS, ROWS
from tests.bench.spark_session import session, stream_seconds
from tests.interop.kit import peers
from tests.interop.kit.servers import Broker, NameServer

_JVM = ("-Xms512m", "-Xmx1g")
_ASKED = 10_000
_APACHE = {"Count": 32, "Bytes": 256 << 10}
_RAISED = {"Count": 10_000, "Bytes": 4 << 20}


def _limits(most: Mapping[str, int], on_disk: int = 1) -> dict[str, object]:
    """A broker's transfer limits; Apache's own for what it thinks is on disk are lower."""
    memory = {f"maxTransfer{what}OnMessageInMemory": value for what, value in most.items()}
    disk = {f"maxTransfer{what}OnMessageInDisk": value // on_disk for what, value in most.items()}
    return {**memory, **disk}


SETTINGS = {
    "read.cluster.vs_java_client": _limits(_APACHE, on_disk=4),
    "read.cluster.raised.vs_java_client": _limits(_RAISED),
}
NAMES = tuple(f"{name}{suffix}" for name in SETTINGS for suffix in COLUMN_SETS)


def run(scratch: Path, names: frozenset[str]) -> Iterator[Figure]:
    """One store, and a broker on it for each set of limits."""
    store = scratch / "cluster"
    tell(f"cluster: writing {ROWS:,} messages")
    fill(store, ROWS)
    with ExitStack() as stack:
        spark = stack.enter_context(session(scratch))
        name_server = stack.enter_context(NameServer(scratch))
        for base, settings in SETTINGS.items():
            chosen = {f"{base}{suffix}": columns for suffix, columns in COLUMN_SETS.items()}
            chosen = {name: columns for name, columns in chosen.items() if name in names}
            if chosen:
                with Broker(store, name_server, scratch, settings, jvm=_JVM):
                    yield from _figures(spark, scratch, name_server.address, chosen)


def _figures(
    spark: SparkSession, scratch: Path, name_server: str, chosen: Mapping[str, str]
) -> Iterator[Figure]:
    address = f"rocketmq://{name_server}"
    _await_topic(address)
    with _java_client(name_server) as java:
        for name, columns in chosen.items():
            tell(f"{name} ({columns})")
            turns: dict[str, Turn] = {
                "ours": lambda: stream_seconds(_ours(spark, address, columns), scratch, ROWS),  # noqa: B023 - called before the loop goes on
                "java": lambda: _pull_all(java),
            }
            times = take_turns(turns)
            yield rate_figure(name, ROWS, times["ours"], times["java"], columns=columns)


def _ours(spark: SparkSession, address: str, columns: str) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("broker", address)
    reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
    return reader.option("columns", columns).load()


def _await_topic(address: str) -> None:
    """Look until the broker has made its topic known; it registers a moment after its start."""
    with open_broker(address) as broker:
        while TOPIC not in broker.topics():
            pass


@contextmanager
def _java_client(name_server: str) -> Iterator[subprocess.Popen[str]]:
    source = Path(__file__).parent / "peers" / "PullAll.java"
    with Path("/dev/null").open("w") as nowhere:
        process = peers.java_process(
            source, name_server, TOPIC, str(_ASKED), stderr=nowhere, jvm=_JVM
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _pull_all(java: subprocess.Popen[str]) -> Seconds:
    assert java.stdin is not None
    assert java.stdout is not None
    java.stdin.write("once more\n")
    java.stdin.flush()
    messages, size_bytes, seconds = java.stdout.readline().split()
    assert (int(messages), int(size_bytes)) == (ROWS, ROWS * BODY_BYTES)
    return float(seconds)
