"""Replies joined to batches."""

from __future__ import annotations

import numpy as np

from broker_core.clients.cluster.pull.batch import BatchBuilder, PullReply
from broker_core.codec.record import Record, encode_record
from broker_core.types import QueueRef

QUEUE = QueueRef("orders", "broker-a", 0)


def test_a_reply_with_many_messages_is_not_copied() -> None:
    replies = [
        PullReply(
            first, first + count, count, b"".join(small_record(first + n) for n in range(count))
        )
        for first, count in ((0, 10), (10, 5000), (5010, 10), (5020, 10))
    ]
    builder = BatchBuilder(QUEUE, "broker", is_dense=True, batch_rows=10_000, batch_bytes=1 << 30)

    batches = [batch for reply in replies for batch in builder.add(reply)] + [*builder.flush()]

    assert [len(batch) for batch in batches] == [10, 5000, 20]
    assert [at for batch in batches for at in batch.offsets.tolist()] == list(range(5030))
    assert np.shares_memory(batches[1].buffer, np.frombuffer(replies[1].body, dtype=np.uint8))


def small_record(offset: int) -> bytes:
    return encode_record(Record("t", 0, offset, 0, b"x"))
