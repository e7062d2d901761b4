from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from broker_core import (
    IllegalMessageError,
    LogicalOffset,
    OffsetRange,
    OffsetRangeError,
    QueueRef,
    RequestError,
)
from broker_core.api import Broker
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties
from tests.contract.conftest import Place


def outgoing(*bodies: bytes, topic: str = "orders", queue_id: int = 0) -> MessageBatch:
    numbers = pa.array([f"{number:032X}" for number in range(len(bodies))])
    return MessageBatch(
        topics=[topic],
        topic_codes=np.zeros(len(bodies), dtype=np.int32),
        queue_ids=np.full(len(bodies), queue_id, dtype=np.int32),
        bodies=pa.array(bodies, type=pa.binary()),
        properties=join_properties([("UNIQ_KEY", numbers), ("TAGS", "A")], len(bodies)),
        born_timestamps=1_700_000_000_000,
    )


# Sending


def test_a_message_comes_back_as_it_was_sent(broker: Broker) -> None:
    broker.create_topic("orders", queues=4)

    sent = broker.send(
        "orders", b"hello", tags="A", keys=["k1", "k2"], properties={"price": "10"}, queue_id=2
    )

    columns = ["topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "body"]
    columns += ["properties", "offsetMsgId", "physicalOffset"]
    [row] = broker.read("orders", queue_id=2, columns=columns).to_pylist()
    assert row.pop("properties") == [
        ("UNIQ_KEY", sent.msg_id),
        ("TAGS", "A"),
        ("KEYS", "k1 k2"),
        ("price", "10"),
    ]
    assert row == {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 2,
        "queueOffset": 0,
        "msgId": sent.msg_id,
        "tags": "A",
        "keys": "k1 k2",
        "body": b"hello",
        "offsetMsgId": sent.offset_msg_id,
        "physicalOffset": sent.physical_offset,
    }
    assert sent.queue == QueueRef("orders", "broker-a", 2)


def test_offsets_of_a_queue_count_up(broker: Broker) -> None:
    broker.create_topic("orders", queues=2)

    sent = [broker.send("orders", b"x", queue_id=1) for _ in range(3)]

    assert [each.queue_offset for each in sent] == [0, 1, 2]
    assert broker.offsets("orders") == {
        QueueRef("orders", "broker-a", 0): (0, 0),
        QueueRef("orders", "broker-a", 1): (0, 3),
    }


def test_messages_without_a_queue_go_round(broker: Broker) -> None:
    broker.create_topic("orders", queues=3)

    for _ in range(6):
        broker.send("orders", b"x")

    assert list(broker.offsets("orders").values()) == [(0, 2)] * 3


@pytest.mark.parametrize("topic", ["%RETRY%group", "%DLQ%group", "BenchmarkTest"])
def test_topics_of_consumer_groups_can_be_written(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, queues=1)

    broker.send(topic, b"x")

    assert broker.read(topic).num_rows == 1


def test_one_sharding_key_is_one_queue(broker: Broker) -> None:
    broker.create_topic("orders", queues=4)

    queues = {broker.send("orders", b"x", sharding_key="customer-7").queue_id for _ in range(4)}

    assert len(queues) == 1


@pytest.mark.parametrize(
    ("body", "words"), [(b"", "no body"), (b"x" * (4 << 20) + b"y", "limit is 4194304")]
)
def test_bodies_that_rocketmq_refuses_are_refused(broker: Broker, body: bytes, words: str) -> None:
    broker.create_topic("orders", queues=1)

    with pytest.raises(IllegalMessageError, match=words):
        broker.send("orders", body)
    assert broker.offsets("orders") == {QueueRef("orders", "broker-a", 0): (0, 0)}


def test_reserved_properties_are_refused(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)

    with pytest.raises(IllegalMessageError, match="UNIQ_KEY"):
        broker.send("orders", b"x", properties={"UNIQ_KEY": "mine"})


def test_a_queue_that_is_not_there_is_refused(broker: Broker) -> None:
    broker.create_topic("orders", queues=2)

    with pytest.raises(RequestError, match="queues 0 to 1"):
        broker.send("orders", b"x", queue_id=2)
    with pytest.raises(RequestError, match="queues 0 to 1"):
        broker.append(outgoing(b"x", queue_id=-1))


def test_a_delayed_message_waits_in_the_schedule_topic(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)

    sent = broker.send("orders", b"later", delay_level=3)

    assert (sent.topic, sent.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert broker.read("orders").num_rows == 0
    with pytest.raises(IllegalMessageError, match="not one of 1 to 18"):
        broker.send("orders", b"x", delay_level=19)


def test_a_batch_is_appended_as_a_whole(broker: Broker) -> None:
    broker.create_topic("orders", queues=2)
    bodies = [f"body {number}".encode() for number in range(1000)]
    batch = replace(outgoing(*bodies), queue_ids=np.arange(1000, dtype=np.int32) % 2)

    placed = broker.append(batch, flush="sync")

    assert placed.queue_ids.tolist() == [0, 1] * 500
    assert placed.queue_offsets.tolist() == [number // 2 for number in range(1000)]
    assert broker.read("orders", queue_id=1).column("body").to_pylist() == bodies[1::2]
    rows = broker.read("orders", queue_id=0, columns=["physicalOffset", "storeSize"])
    assert rows.column("physicalOffset").to_pylist() == placed.physical_offsets[::2].tolist()
    assert rows.column("storeSize").to_pylist() == placed.sizes[::2].tolist()


def test_who_does_not_ask_for_places_gets_all_of_them_or_none(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)

    placed = broker.append(outgoing(b"a", b"b"), wants_places=False)

    assert placed.queue_offsets.tolist() in ([], [0, 1])
    assert placed.store_timestamp_ms > 0
    assert broker.read("orders").column("body").to_pylist() == [b"a", b"b"]


def test_a_batch_with_a_bad_message_leaves_nothing(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    batch = replace(outgoing(b"a", b"b"), queue_ids=np.array([0, 7], dtype=np.int32))

    with pytest.raises(RequestError, match="queues 0 to 0"):
        broker.append(batch)
    assert broker.read("orders").num_rows == 0


def test_what_one_sends_the_other_reads(place: Place) -> None:
    writer, reader = place.open(), place.open("r")
    writer.create_topic("orders", queues=1)
    seen = []

    for number in range(3):
        writer.send("orders", b"%d" % number)
        seen.append(reader.read("orders").num_rows)

    assert seen == [1, 2, 3]


# Reading


def wanted(start: int, end: int, topic: str = "orders", queue_id: int = 0) -> OffsetRange:
    queue = QueueRef(topic, "broker-a", queue_id)
    return OffsetRange(queue, LogicalOffset(start), LogicalOffset(end))


def test_parts_of_a_range_make_the_whole(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    # Several segments of 64 KiB, so that a range crosses their ends.
    broker.append(outgoing(*[bytes([number % 251]) * 1000 for number in range(300)]))

    whole = broker.read("orders").column("body").to_pylist()
    parts = [broker.read("orders", start=a, end=a + 50) for a in range(0, 300, 50)]

    assert whole == [bytes([number % 251]) * 1000 for number in range(300)]
    assert [body for part in parts for body in part.column("body").to_pylist()] == whole


def test_batches_keep_their_limits_and_say_how_far_they_came(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    broker.append(outgoing(*[b"x" * 100 for _ in range(100)]))

    batches = list(broker.pull(wanted(10, 90), batch_rows=30, batch_bytes=2000))

    assert [at for batch in batches for at in batch.offsets.tolist()] == list(range(10, 90))
    assert max(len(batch) for batch in batches) <= 30
    assert max(batch.size_bytes for batch in batches) <= 2000
    ends = [batch.next_offset for batch in batches]
    assert ends == [int(batch.offsets[-1]) + 1 for batch in batches]


def test_batches_that_could_hold_nothing_are_refused_at_once(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    broker.append(outgoing(b"a", b"b"))

    with pytest.raises(RequestError, match="batch_rows=0; 1 is the least"):
        broker.pull(wanted(0, 2), batch_rows=0)
    with pytest.raises(RequestError, match="batch_bytes=-1; 1 is the least"):
        broker.pull(wanted(0, 2), batch_bytes=-1)


def test_an_empty_range_is_empty(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    broker.send("orders", b"x")

    assert [frames for frames in broker.pull(wanted(1, 1)) if len(frames)] == []
    assert broker.read("orders", start=1).num_rows == 0


def await_messages(broker: Broker, count: int) -> None:
    """Apache's broker acknowledges a message a moment before its queue has it."""
    deadline_s = time.monotonic() + 30
    while sum(end for _, end in broker.offsets("orders").values()) < count:
        assert time.monotonic() < deadline_s, "they never came"
        time.sleep(0.01)


@pytest.mark.parametrize(("start", "end"), [(0, 4), (4, 5), (-1, 2), (2, 1)])
def test_a_range_that_is_not_there_names_what_is(broker: Broker, start: int, end: int) -> None:
    broker.create_topic("orders", queues=1)
    for _ in range(3):
        broker.send("orders", b"x")
    await_messages(broker, 3)

    with pytest.raises(OffsetRangeError) as caught:
        list(broker.pull(wanted(start, end)))
    assert (caught.value.minimum, caught.value.maximum) == (0, 3)


def test_deleting_files_moves_the_start(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    placed = broker.append(outgoing(*[b"x" * 1000 for _ in range(200)]))

    log_start = broker.delete_before(int(placed.physical_offsets[150]))

    [(minimum, maximum)] = broker.offsets("orders").values()
    assert (log_start, maximum) == (131072, 200)
    assert int(placed.physical_offsets[minimum - 1]) < log_start
    assert int(placed.physical_offsets[minimum]) >= log_start
    with pytest.raises(OffsetRangeError) as caught:
        broker.read("orders", start=0)
    assert caught.value.minimum == minimum
    assert broker.read("orders").num_rows == 200 - minimum


def test_a_queue_that_never_was_can_not_be_read(broker: Broker) -> None:
    broker.create_topic("orders", queues=2)

    with pytest.raises(RequestError, match="queues 0 to 1, not 5"):
        broker.read("orders", queue_id=5)


def test_an_unknown_column_is_refused(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)

    with pytest.raises(RequestError, match="There is no column 'color'"):
        broker.read("orders", columns=["color"])


def test_offsets_are_found_by_time(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    for _ in range(20):
        broker.send("orders", b"x")
    stored = broker.read("orders", columns=["storeTimestamp"]).column("storeTimestamp")
    times = [int(moment.timestamp() * 1000) for moment in stored.to_pylist()]

    found = [broker.offset_at("orders", 0, time_ms) for time_ms in times]

    assert found == [times.index(time_ms) for time_ms in times]
    assert broker.offset_at("orders", 0, 0) == 0
    assert broker.offset_at("orders", 0, times[-1] + 1) == 20


# Consumer groups


def test_a_group_has_the_offsets_it_committed(broker: Broker) -> None:
    broker.create_topic("orders", queues=3)

    broker.commit_offset("group", "orders", 0, 7)
    broker.commit_offset("group", "orders", 2, 9)
    broker.commit_offset("group", "orders", 2, 11)

    assert broker.consumer_offsets("group", "orders") == {
        QueueRef("orders", "broker-a", 0): 7,
        QueueRef("orders", "broker-a", 2): 11,
    }
    assert broker.consumer_offsets("other", "orders") == {}


def test_negative_offsets_and_other_brokers_are_refused(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)

    with pytest.raises(RequestError, match="negative"):
        broker.commit_offset("group", "orders", 0, -1)
    with pytest.raises(RequestError, match="broker-b"):
        broker.commit_offset("group", "orders", 0, 1, broker_name="broker-b")
    with pytest.raises(RequestError, match="broker-b"):
        broker.offset_at("orders", 0, 0, broker_name="broker-b")
