"""What we send is what the official client reads, and topics and groups are as asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from broker_core.clients.cluster.cluster import ClusterBroker
from broker_core.codec.compression import Compression, compress, compression_flags
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from broker_core.errors import TopicExistsError, TopicNotFoundError, UnsupportedError
from tests.interop.cluster.opening import await_count, opened
from tests.interop.kit.clients import dump
from tests.interop.kit.servers import Broker, NameServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

QUEUES = 4
COUNT = 6_000
BODIES = [f"body {number} ".encode() * (1 + number % 50) for number in range(COUNT)]
KINDS: tuple[Compression, ...] = ("none", "zlib", "lz4", "zstd")


def batch(topic: str, write_queues: list[int]) -> MessageBatch:
    """Messages with all columns, compressed in four ways in four stretches."""
    kinds = [KINDS[number * len(KINDS) // COUNT] for number in range(COUNT)]
    packed = [compress(body, kind) for body, kind in zip(BODIES, kinds, strict=True)]
    texts = [
        ("UNIQ_KEY", pa.array([f"{topic}-{number}" for number in range(COUNT)])),
        ("TAGS", pa.array([("red", "green", None)[number % 3] for number in range(COUNT)])),
        ("KEYS", pa.array([f"k{number} all" for number in range(COUNT)])),
        ("näme", pa.array([f"wért 订单 {number}" for number in range(COUNT)])),
    ]
    return MessageBatch(
        topics=[topic],
        topic_codes=np.zeros(COUNT, dtype=np.int32),
        queue_ids=np.array(write_queues, dtype=np.int32),
        bodies=pa.array(packed, type=pa.binary()),
        properties=join_properties(texts, COUNT),
        born_timestamps=1_700_000_000_000,
        sys_flags=np.array([compression_flags(kind) for kind in kinds], dtype=np.int32),
        flags=np.arange(COUNT, dtype=np.int32),
    )


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_official_client_reads_what_we_send(
    version: str, name_server: NameServer, tmp_path: Path
) -> None:
    write_queues = [number % QUEUES for number in range(COUNT)]

    with (
        Broker(tmp_path / "store", name_server, tmp_path, version=version) as broker,
        opened(name_server.address) as ours,
    ):
        _manage_topics(ours)
        placed = ours.append(batch("Batch", write_queues))
        single = ours.send("Single", b"one", tags="T", keys=["a", "b"], properties={"p": "1"})
        delayed = ours.send("Single", b"soon", delay_level=1)
        await_count(ours, "Single", 2)
        found = dump(broker)["topics"]
        broker.kill()

    assert _bodies(found["Batch"]) == [
        [(number, _digest(BODIES[number])) for number in range(write_queue, COUNT, QUEUES)]
        for write_queue in range(QUEUES)
    ]
    messages = [
        message for queue in found["Batch"]["queues"].values() for message in queue["messages"]
    ]
    assert {message["uniqKey"] for message in messages} == {f"Batch-{n}" for n in range(COUNT)}
    assert all(
        message["properties"]["näme"] == f"wért 订单 {message['flag']}"
        and message["tags"] == ("red", "green", None)[message["flag"] % 3]
        and message["keys"] == f"k{message['flag']} all"
        and message["bornTimestamp"] == 1_700_000_000_000
        and message["queueOffset"] == placed.queue_offsets[message["flag"]]
        and message["commitLogOffset"] == placed.physical_offsets[message["flag"]]
        for message in messages
    )
    (one, soon) = [m for queue in found["Single"]["queues"].values() for m in queue["messages"]]
    assert (one["uniqKey"], one["msgId"]) == (single.msg_id, single.offset_msg_id)
    assert (one["tags"], one["keys"], one["properties"]["p"]) == ("T", "a b", "1")
    assert soon["uniqKey"] == delayed.msg_id


def _manage_topics(ours: ClusterBroker) -> None:
    """Make, grow and delete topics, and see each step."""
    for topic in ("Batch", "Single", "Gone"):
        ours.create_topic(topic, 1 if topic == "Single" else QUEUES)
    with pytest.raises(TopicExistsError):
        ours.create_topic("Batch")
    assert ours.add_queues("Gone", 6).read_queues == 6
    ours.commit_offset("readers", "Batch", 2, 77)
    assert [(q.queue_id, o) for q, o in ours.consumer_offsets("readers", "Batch").items()] == [
        (2, 77)
    ]
    ours.delete_topic("Gone")
    with pytest.raises(TopicNotFoundError):
        ours.describe("Gone")


def _bodies(topic: dict[str, Any]) -> list[list[tuple[int, str]]]:
    return [
        [(message["flag"], message["bodySha256"]) for message in queue["messages"]]
        for _, queue in sorted(topic["queues"].items())
    ]


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_broker_without_sql_says_which_setting_it_lacks(
    name_server: NameServer, tmp_path: Path
) -> None:
    settings = {"enablePropertyFilter": "false"}

    with (
        Broker(tmp_path / "store", name_server, tmp_path, settings) as broker,
        opened(name_server.address) as ours,
    ):
        ours.create_topic("Plain", 1)
        ours.send("Plain", b"one", tags="A")
        await_count(ours, "Plain", 1)
        with pytest.raises(UnsupportedError, match="enablePropertyFilter=true"):
            ours.read("Plain", 0, sql="TAGS = 'A'")
        by_tag = ours.read("Plain", 0, tags="A")
        broker.kill()

    assert len(by_tag) == 1
