"""Batches of half messages for tests, and what a store shows of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from broker_core import open_broker
from broker_core.api import Broker, BrokerTransactions
from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.api import Transactions
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from broker_core.codec.property_names import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from broker_core.store.reader import StoreReader
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from broker_core.types import BatchRef, Receipt

START_MS = 1_800_000_000_000
FILE_BYTES = 1 << 16
SMALL_FILES = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
}


class ManualClock:
    """A clock that tests turn, in milliseconds."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms


def open_store(path: Path, clock: Callable[[], int] | None = None) -> EmbeddedBroker:
    """A store with small files, made if it is not there, whose clock may be a test's."""
    if clock is None:
        broker = open_broker(f"file:{path}", mode="rw", create=True, config=SMALL_FILES)
        return cast("EmbeddedBroker", broker)
    writer = StoreWriter.open(
        path, StoreSettings.load(SMALL_FILES), create=True, options=SessionOptions(clock_ms=clock)
    )
    return EmbeddedBroker(str(path), StoreReader(path, writer.settings), writer, clock_ms=clock)


def in_pieces(broker: EmbeddedBroker, rows: int, *, block_rows: int = 1) -> Transactions:
    """The broker's transactions, with appends of at most so many messages, in such blocks."""
    return Transactions(
        broker.reader,
        broker.writer,
        broker.catalog,
        broker._admin,
        broker._clock_ms,
        append_rows=rows // block_rows,
        block_rows=block_rows,
    )


def attempt_id(number: int) -> str:
    return f"{number:020X}"


def outgoing(
    topic: str, bodies: Sequence[bytes], attempt: str, *, born_ms: int = 0, queues: int = 2
) -> MessageBatch:
    """Messages to round the queues of a topic, as a sink composes them."""
    count = len(bodies)
    keys = pa.array([f"{attempt}{row:012X}" for row in range(count)])
    pairs = [("TRAN_MSG", "true"), ("PGROUP", "sink"), ("UNIQ_KEY", keys)]
    return MessageBatch(
        topics=[topic],
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=(np.arange(count) % queues).astype(np.int32),
        bodies=pa.array(bodies, type=pa.binary()),
        properties=join_properties(pairs, count),
        born_timestamps=born_ms,
    )


def prepare(
    transactions: BrokerTransactions,
    batch: BatchRef,
    attempt: int,
    bodies: Sequence[bytes],
    *,
    topic: str = "t",
    born_ms: int = START_MS,
) -> Receipt:
    """One attempt that prepares all of its messages in one call."""
    name = attempt_id(attempt)
    messages = outgoing(topic, bodies, name, born_ms=born_ms)
    prepared = transactions.prepare_batch(batch, name, messages, is_first=True)
    return Receipt(batch, name, (prepared,))


def visible(broker: Broker, topic: str = "t") -> list[bytes]:
    """The bodies that a consumer sees, queue after queue."""
    found: list[bytes] = []
    for queue in sorted(broker.offsets(topic)):
        found += broker.read(topic, queue_id=queue.queue_id, columns=["body"])["body"].to_pylist()
    return found


def put_check_back_progress(root: Path, half_offset: int) -> None:
    """Say in the file that check-back, that of another broker, has come to a half message."""
    path = root / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    document = {"offsetTable": {f"{HALF_TOPIC}@{TRANSACTION_GROUP}": {"0": half_offset}}}
    path.write_text(json.dumps(document), "utf-8")


def half_count(broker: Broker) -> int:
    if HALF_TOPIC not in broker.topics():
        return 0
    return sum(maximum for _, maximum in broker.offsets(HALF_TOPIC).values())


def op_count(broker: EmbeddedBroker) -> int:
    return broker.reader.queue_range(OP_TOPIC, 0)[1]
