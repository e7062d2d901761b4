"""Columnar decode against one Arrow `take` of the same records' whole bytes. One core, no Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from broker_core import open_broker
from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec.decode import decode
from broker_core.codec.frames import FrameBatch
from broker_core.codec.schema import DEFAULT_COLUMNS
from broker_core.types import OffsetRange
from tests.bench.data import TOPIC, fill
from tests.bench.figure import Figure, rate_figure, take_turns, tell, timed
from tests.bench.take import take_records

NAMES = ("decode.default.vs_take", "decode.body.vs_take")
ROWS = 1_000_000
_BODY_COLUMNS = ("body", "queueOffset")


def run(scratch: Path, names: frozenset[str]) -> Iterator[Figure]:
    """Decode a million mapped messages, over and over."""
    tell(f"decode: writing {ROWS:,} messages")
    store = scratch / "decode"
    fill(store, ROWS)
    with open_broker(f"file:{store}") as broker:
        assert isinstance(broker, EmbeddedBroker)
        frames = [
            batch
            for queue, (first, last) in broker.offsets(TOPIC).items()
            for batch in broker.pull(OffsetRange(queue, first, last))
        ]
        turns = {
            "take": timed(lambda: _take(frames), time.process_time),
            "default": timed(lambda: _decode(frames, DEFAULT_COLUMNS), time.process_time),
            "body": timed(lambda: _decode(frames, _BODY_COLUMNS), time.process_time),
        }
        times = take_turns(turns, rounds=5)
    for kind, columns in (("default", DEFAULT_COLUMNS), ("body", _BODY_COLUMNS)):
        name = f"decode.{kind}.vs_take"
        if name in names:
            yield rate_figure(name, ROWS, times[kind], times["take"], columns=",".join(columns))


def _take(frames: list[FrameBatch]) -> None:
    for batch in frames:
        take_records(batch)


def _decode(frames: list[FrameBatch], columns: Sequence[str]) -> None:
    for batch in frames:
        decode(batch, columns)
