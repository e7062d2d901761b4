from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker_core.errors import CorruptRecordError, OffsetRangeError
from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.options.options import SourceOptions
from pyspark_rocketmq.plan.bounded import QueueRange
from pyspark_rocketmq.source.partition_reader import PartitionReader
from tests.kit import stores
from tests.kit.memory_broker import MemoryBroker

QUEUE = QueueRef("t", "broker-a", 0)


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic("t", 1)
    for number in range(10):
        broker.put(QUEUE, b"%d" % number, tags="odd" if number % 2 else "even")
    return broker


def queue_range(start: int | None, end: int | None, **window: int) -> QueueRange:
    return QueueRange(
        QUEUE,
        None if start is None else LogicalOffset(start),
        None if end is None else LogicalOffset(end),
        **{key: LogicalOffset(each) for key, each in window.items()},
    )


def read(broker: MemoryBroker, wanted: QueueRange, **options: str) -> list[int]:
    """The bodies of a range, which are the messages' numbers."""
    texts = {"broker": "memory:", "subscribe": "t", "columns": "body,queueOffset"}
    parsed = SourceOptions.parse(texts | options)
    fake: Any = broker
    batches = list(PartitionReader(fake, parsed, parsed.message_filter).read(wanted))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(int(row["body"]) == row["queueOffset"] for row in rows)
    return [row["queueOffset"] for row in rows]


def test_a_range_is_read_in_order(broker: MemoryBroker) -> None:
    assert read(broker, queue_range(3, 7)) == [3, 4, 5, 6]


def test_a_range_that_is_there_costs_no_question(broker: MemoryBroker) -> None:
    read(broker, queue_range(3, 7))

    assert broker.calls == ["pull"]


def test_the_end_of_a_range_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyspark_rocketmq.source.partition_reader")
    with stores.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        for number in range(10):
            store.send("t", b"x", tags="AB"[number % 2])
        for texts in ({"tags": "A"}, {}):
            options = SourceOptions.parse({"broker": "m", "subscribe": "t"} | texts)
            list(PartitionReader(store, options, options.message_filter).read(queue_range(2, 10)))

    filtered, whole = [record.getMessage() for record in caplog.records]
    assert filtered.startswith(f"event=range_read queue={QUEUE} start=2 end=10 rows=4 ")
    assert "tag_hash_examined=8 tag_hash_dropped=4 tag_hash_bytes=160 tag_text" in filtered
    assert whole == f"event=range_read queue={QUEUE} start=2 end=10 rows=8 "


def test_open_ends_are_found_out_when_reading(broker: MemoryBroker) -> None:
    broker.expire(QUEUE, 4)
    broker.put(QUEUE, b"10")

    assert read(broker, queue_range(None, None)) == [4, 5, 6, 7, 8, 9, 10]


def test_filters_restrict_a_piece(broker: MemoryBroker) -> None:
    assert read(broker, queue_range(None, None, low=2, high=4)) == [2, 3]
    assert read(broker, queue_range(3, 9, low=5)) == [5, 6, 7, 8]
    assert read(broker, queue_range(3, 5, low=7)) == []


def test_a_filter_below_the_earliest_message_is_no_loss(broker: MemoryBroker) -> None:
    broker.expire(QUEUE, 6)

    assert read(broker, queue_range(None, None, low=2)) == [6, 7, 8, 9]


def test_batches_have_the_asked_for_rows(broker: MemoryBroker) -> None:
    options = SourceOptions.parse({"broker": "m", "subscribe": "t", "batchRows": "4"})
    fake: Any = broker

    sizes = [len(batch) for batch in PartitionReader(fake, options, None).read(queue_range(0, 10))]

    assert sizes == [4, 4, 2]


def test_tags_choose_messages(broker: MemoryBroker) -> None:
    assert read(broker, queue_range(0, 10), tags="odd") == [1, 3, 5, 7, 9]


def test_a_filter_that_drops_everything_reads_to_the_end(broker: MemoryBroker) -> None:
    assert read(broker, queue_range(0, 10), tags="none", batchRows="2") == []


def test_expired_messages_fail_or_are_skipped(broker: MemoryBroker) -> None:
    broker.expire(QUEUE, 5)

    assert read(broker, queue_range(3, 8), failOnDataLoss="false") == [5, 6, 7]
    with pytest.raises(DataLossError, match=r"OFFSET_EXPIRED.*starts at 5, but 3.*2 messages"):
        read(broker, queue_range(3, 8))


def test_messages_that_expire_while_reading_fail_or_are_skipped(broker: MemoryBroker) -> None:
    broker.expire_while_reading[QUEUE] = 8

    assert read(broker, queue_range(0, 10), failOnDataLoss="false", batchRows="3") == [
        0,
        1,
        2,
        8,
        9,
    ]
    broker.expire(QUEUE, 0)
    broker.expire_while_reading[QUEUE] = 8
    with pytest.raises(DataLossError, match=r"OFFSET_EXPIRED.*starts at 8, but 3.*5 messages"):
        read(broker, queue_range(0, 10), batchRows="3")


def test_an_end_that_was_cut_off_fails_or_is_where_reading_stops(broker: MemoryBroker) -> None:
    broker.cut(QUEUE, 5)

    assert read(broker, queue_range(3, 8), failOnDataLoss="false") == [3, 4]
    with pytest.raises(DataLossError, match=r"OFFSET_NOT_REACHED.*ends at 5.*up to 8"):
        read(broker, queue_range(3, 8))


def test_a_queue_that_is_gone_fails_or_yields_nothing(broker: MemoryBroker) -> None:
    broker.delete_topic("t")

    assert read(broker, queue_range(3, 8), failOnDataLoss="false") == []
    with pytest.raises(DataLossError, match="OFFSET_NOT_REACHED"):
        read(broker, queue_range(3, 8))


def test_a_broker_that_stops_early_without_a_word_is_found_out(broker: MemoryBroker) -> None:
    class Lazy(MemoryBroker):
        def pull(self, *arguments: Any, **options: Any) -> Any:
            yield next(super().pull(*arguments, **options))

    lazy = Lazy()
    lazy.queues = broker.queues

    with pytest.raises(OffsetRangeError, match=r"up to 4 only, not to 10"):
        read(lazy, queue_range(0, 10), batchRows="4")


def damage(broker: MemoryBroker, number: int) -> None:
    record = bytearray(broker.queues[QUEUE].records[number])
    record[4:8] = b"\0\0\0\0"  # the magic number
    broker.queues[QUEUE].records[number] = bytes(record)


def test_a_damaged_record_is_never_served(broker: MemoryBroker) -> None:
    damage(broker, 4)

    with pytest.raises(CorruptRecordError):
        read(broker, queue_range(0, 10))


def test_damaged_records_are_left_out_one_by_one_when_asked_for(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    damage(broker, 4)
    damage(broker, 9)

    assert read(broker, queue_range(0, 10), skipCorrupt="true") == [0, 1, 2, 3, 5, 6, 7, 8]
    assert caplog.text.count("event=corrupt_record_skipped") == 2


def test_messages_that_the_broker_can_t_find_for_damage_are_left_out_when_asked_for(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.damaged = {(QUEUE, 3), (QUEUE, 4), (QUEUE, 9)}

    assert read(broker, queue_range(0, 10), skipCorrupt="true") == [0, 1, 2, 5, 6, 7, 8]
    assert caplog.text.count("event=corrupt_record_skipped") == 3
    with pytest.raises(CorruptRecordError, match="Entry 3"):
        read(broker, queue_range(0, 10))
