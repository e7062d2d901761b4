"""A broker is killed while it is written to: all that was acknowledged is there when it is back."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from broker_core.codec.decode import property_columns
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from broker_core.types import OffsetRange
from tests.interop.cluster.opening import opened
from tests.interop.kit.servers import Broker, NameServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BATCHES = 60
ROWS = 5_000
QUEUES = 4


def batch(number: int) -> MessageBatch:
    keys = pa.array([f"{number:04d}-{row:06d}" for row in range(ROWS)])
    return MessageBatch(
        topics=["Written"],
        topic_codes=np.zeros(ROWS, dtype=np.int32),
        queue_ids=np.arange(ROWS, dtype=np.int32) % QUEUES,
        bodies=pa.array([b"x" * 100] * ROWS, type=pa.binary()),
        properties=join_properties([("UNIQ_KEY", keys)], ROWS),
    )


def test_nothing_acknowledged_is_lost_when_a_broker_is_killed(
    name_server: NameServer, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    written = threading.Semaphore(0)
    first = Broker(store, name_server, tmp_path)
    try:
        with opened(name_server.address) as ours:
            ours.create_topic("Written", QUEUES)

            def write() -> None:
                for number in range(BATCHES):
                    ours.append(batch(number))
                    written.release()

            writer = threading.Thread(target=write)
            writer.start()
            for _ in range(BATCHES // 3):
                written.acquire()
            first.kill()
            with Broker(store, name_server, tmp_path) as second:
                writer.join()
                keys: list[str] = []
                for queue, bounds in ours.offsets("Written").items():
                    for frames in ours.pull(OffsetRange(queue, *bounds)):
                        keys += property_columns(frames, ["UNIQ_KEY"])["UNIQ_KEY"].to_pylist()
                second.kill()
    finally:
        first.kill()

    expected = {f"{number:04d}-{row:06d}" for number in range(BATCHES) for row in range(ROWS)}
    assert set(keys) == expected
    assert len(keys) - len(expected) <= ours.possible_duplicates
