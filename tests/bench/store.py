"""The embedded store by itself: append, open, filtered reads. One core, no Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from broker_core import open_broker
from broker_core.api import Broker
from broker_core.codec.decode import decode
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.schema import DEFAULT_COLUMNS
from broker_core.filter.pipeline import MessageFilter
from broker_core.types import OffsetRange
from tests.bench.data import QUEUES, TOPIC, batches, fill
from tests.bench.figure import (
    Figure,
    Seconds,
    rate_figure,
    take_turns,
    tell,
    time_figure,
    timed,
)
from tests.bench.take import take_spans

NAMES = (
    "append.keys.vs_take",
    "append.nokeys.vs_take",
    "open.growth",
    "read.tag.selective",
    "read.sql.selective",
)
ROWS = 1_000_000
_LARGE_BODY = 1024
_LARGE_ROWS = 300_000


def run(scratch: Path, names: frozenset[str]) -> Iterator[Figure]:
    """Each figure with a store of its own."""
    if any(name.startswith("append") for name in names):
        yield from _append(scratch, names)
    if "open.growth" in names:
        yield _open(scratch)
    if "read.tag.selective" in names:
        yield _selective(scratch, "tag", ROWS, 100, MessageFilter.of(tags="rare"))
    if "read.sql.selective" in names:
        wanted = MessageFilter.of(sql="region = 'eu'")
        yield _selective(scratch, "sql", _LARGE_ROWS, _LARGE_BODY, wanted)


def _append(scratch: Path, names: frozenset[str]) -> Iterator[Figure]:
    """Append with dispatch and index, beside one take of as many records' bytes."""
    count = ROWS // 2
    for name, keys in (("append.keys.vs_take", True), ("append.nokeys.vs_take", False)):
        if name in names:
            messages = list(batches(count, keys=keys))
            store = scratch / name
            times = take_turns({"append": _appending(store, messages), "take": _taking(count)})
            yield rate_figure(name, count, times["append"], times["take"])
            shutil.rmtree(store, ignore_errors=True)


def _appending(store: Path, messages: list[MessageBatch]) -> Callable[[], Seconds]:
    def turn() -> Seconds:
        shutil.rmtree(store, ignore_errors=True)
        with open_broker(f"file:{store}", mode="rw", create=True) as broker:
            broker.create_topic(TOPIC, queues=QUEUES)
            begin = time.perf_counter()
            for batch in messages:
                broker.append(batch)
            return time.perf_counter() - begin

    return turn


def _taking(count: int) -> Callable[[], Seconds]:
    """A take of `count` records of 300 bytes, every fourth of a larger buffer."""
    width = 300
    buffer = np.zeros(count * width * 4, dtype=np.uint8)
    starts = np.arange(count, dtype=np.int64) * width * 4
    sizes = np.full(count, width, dtype=np.int32)
    return timed(lambda: take_spans(buffer, starts, sizes))


def _open(scratch: Path) -> Figure:
    """Open a store and ask for its offsets: does a hundred times the messages cost more?"""
    small, large = scratch / "open-small", scratch / "open-large"
    fill(small, ROWS // 100)
    fill(large, ROWS)
    times = take_turns(
        {"large": timed(lambda: _look(large)), "small": timed(lambda: _look(small))}, 9
    )
    return time_figure("open.growth", ROWS, times["large"], times["small"])


def _look(store: Path) -> None:
    with open_broker(f"file:{store}") as broker:
        broker.offsets(TOPIC)


def _selective(
    scratch: Path, kind: str, rows: int, body_bytes: int, wanted: MessageFilter | None
) -> Figure:
    """Read everything, and read the one message in a hundred that a filter wants."""
    tell(f"read.{kind}.selective: writing {rows:,} messages")
    store = scratch / f"selective-{kind}"
    fill(store, rows, body_bytes=body_bytes)
    with open_broker(f"file:{store}") as broker:
        assert _read(broker, wanted) * 100 == _read(broker, None) == rows
        turns = {
            "filtered": timed(lambda: _read(broker, wanted)),
            "full": timed(lambda: _read(broker, None)),
        }
        times = take_turns(turns, rounds=5)
    shutil.rmtree(store)
    return rate_figure(
        f"read.{kind}.selective", rows, times["filtered"], times["full"], note="1 % selected"
    )


def _read(broker: Broker, wanted: MessageFilter | None) -> int:
    found = 0
    for queue, (first, last) in broker.offsets(TOPIC).items():
        for frames in broker.pull(OffsetRange(queue, first, last), message_filter=wanted):
            rows: pa.RecordBatch = decode(frames, DEFAULT_COLUMNS)
            found += rows.num_rows
    return found
