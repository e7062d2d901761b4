"""The messages of benchmarks: 100-byte bodies with tags, keys and unique keys, in 4 queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core import open_broker
from broker_core.codec.ids import UNIQUE_ID_CHARS, UniqueIds
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties

TOPIC = "bench"
QUEUES = 4
BODY_BYTES = 100
_BATCH = 100_000


def batches(
    count: int, *, body_bytes: int = BODY_BYTES, keys: bool = True, first: int = 0
) -> Iterator[MessageBatch]:
    """Messages numbered from `first`, in batches; every hundredth has the tag `rare`."""
    ids = UniqueIds()
    for start in range(first, first + count, _BATCH):
        yield batch(start, min(_BATCH, first + count - start), ids, body_bytes, keys)


def batch(start: int, count: int, ids: UniqueIds, body_bytes: int, keys: bool) -> MessageBatch:
    """One batch of messages numbered from `start`."""
    numbers = np.arange(start, start + count)
    texts = pc.cast(pa.array(numbers), pa.string())
    tags = pa.array(["rare", "common"]).take(pa.array((numbers % 100 != 0).astype(np.int8)))
    unique = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(UNIQUE_ID_CHARS), count, [None, pa.py_buffer(ids.make(count))]
    ).cast(pa.binary())
    pairs: list[tuple[str, pa.Array]] = [("TAGS", tags)]
    if keys:
        key = pc.binary_join_element_wise(pa.scalar("order-"), texts, pa.scalar(""))
        pairs = [("UNIQ_KEY", unique), ("KEYS", key), *pairs]
    regions = pa.array(["eu", "us"]).take(pa.array((numbers % 100 != 0).astype(np.int8)))
    pairs.append(("region", regions))
    return MessageBatch(
        topics=[TOPIC],
        topic_codes=np.zeros(count, dtype=np.int32),
        queue_ids=(numbers % QUEUES).astype(np.int32),
        bodies=pc.utf8_lpad(texts, body_bytes, "x").cast(pa.binary()),
        properties=join_properties(pairs, count),
        born_timestamps=1_700_000_000_000,
    )


def fill(store: Path, count: int, *, body_bytes: int = BODY_BYTES, keys: bool = True) -> None:
    """A closed store with `count` messages."""
    with open_broker(f"file:{store}", mode="rw", create=True) as broker:
        broker.create_topic(TOPIC, queues=QUEUES)
        for each in batches(count, body_bytes=body_bytes, keys=keys):
            broker.append(each)
