"""Retention of stores with many streams of batches: what one run of it appends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.api import Transactions
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_records import (
    Decision,
    JournalRecord,
)
from broker_core.broker.transactions.ownership import Caller
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from broker_core.codec.property_names import BATCH_TOPIC
from broker_core.store.io.files import Files
from broker_core.store.reader import StoreReader
from broker_core.store.session import SessionOptions
from broker_core.store.settings import StoreSettings
from broker_core.store.writer import StoreWriter
from broker_core.types import BatchRef
from tests.kit.transactions import (
    SMALL_FILES,
    ManualClock,
    prepare,
)

HOUR_MS = 3_600_000
BATCH = BatchRef("query:q", "", 5)
LARGE_FILES = {
    "mappedFileSizeCommitLog": 8 << 20,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "messageIndexEnable": False,
}


def open_with(
    path: Path,
    clock: ManualClock,
    settings: Mapping[str, object] = MappingProxyType({}),
    files: Files | None = None,
) -> EmbeddedBroker:
    writer = StoreWriter.open(
        path,
        StoreSettings.load({**SMALL_FILES, **settings}),
        create=True,
        files=files,
        options=SessionOptions(clock_ms=clock),
    )
    # Check-back belongs to a server's clock here, so that all that is written is retention's.
    return EmbeddedBroker(
        str(path), StoreReader(path, writer.settings), writer, clock_ms=clock, is_served=True
    )


def journal(broker: EmbeddedBroker, *records: JournalRecord) -> None:
    broker.transactions._require_topics()
    host = broker.writer.settings.store_host
    broker.writer.append(DecisionLookup(broker.reader).records(records, broker._clock_ms(), host))


def stream(number: int) -> BatchRef:
    return BatchRef(f"txn:{number:08d}", "orders", 3)


def done_records(numbers: range, now_ms: int) -> MessageBatch:
    """What DecisionLookup.records makes of done batches, by columns: a tenth of the time."""
    count = len(numbers)
    tags = pa.array([f"txn:{number:08d}#orders" for number in numbers])  # stream_tag
    start, end = (
        Decision(stream(0), "run", is_done=True, fingerprint="f" * 32).body().split(b"00000000")
    )
    bodies = pa.array([start + b"%08d" % number + end for number in numbers], type=pa.binary())
    keys = pa.array([f"{number:032X}" for number in numbers])
    return MessageBatch(
        topics=(BATCH_TOPIC,),
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=np.zeros(count, dtype=np.int32),
        bodies=bodies,
        properties=join_properties([("UNIQ_KEY", keys), ("KEYS", tags), ("TAGS", tags)], count),
        born_timestamps=now_ms,
    )


def fill_segment(broker: EmbeddedBroker) -> int:
    """Write until a new segment begins; where that is."""
    file_bytes = broker.writer.settings.commit_log_file_bytes
    most = broker.writer.settings.max_message_bytes
    end = broker.writer._session.tail.log_end
    while broker.writer._session.tail.log_end // file_bytes == end // file_bytes:
        broker.send("t", bytes(min(most, file_bytes // 2)))
    return broker.writer._session.tail.log_end // file_bytes * file_bytes


class Run(NamedTuple):
    """What one run of retention added to the log."""

    records: int
    bytes: int
    appends: int


def retain(broker: EmbeddedBroker, before: int | None = None) -> Run:
    """Delete the segments before one, or all that are full by then; what that has appended."""
    if before is None:
        before = fill_segment(broker)
    writer = broker.writer
    appends = []

    def append(*args: object, **options: object) -> object:
        appends.append(args)
        return StoreWriter.append(writer, *args, **options)  # type: ignore[arg-type]  # as they came

    records, log_end = broker.reader.queue_range(BATCH_TOPIC, 0)[1], writer._session.tail.log_end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "append", append)
        assert broker.delete_before(before) == before
    return Run(
        broker.reader.queue_range(BATCH_TOPIC, 0)[1] - records,
        writer._session.tail.log_end - log_end,
        len(appends),
    )


def commit(
    broker: EmbeddedBroker, batch: BatchRef, attempt: int, body: bytes, **options: object
) -> bool:
    """Prepare and commit a batch; whether it was a repeat."""
    receipt = prepare(broker.transactions, batch, attempt, [body])
    outcome = broker.transactions.commit_batch(
        batch,
        [receipt],
        **options,  # type: ignore[arg-type]  # each test gives what the call takes
    )
    return outcome.is_repeat


def as_user(broker: EmbeddedBroker, name: str) -> Transactions:
    return broker.transactions.asked_by(Caller(name))


def forget(broker: EmbeddedBroker, clock: ManualClock) -> None:
    clock.advance(1000 * HOUR_MS)
    retain(broker)
