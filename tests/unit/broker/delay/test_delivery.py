from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from broker_core.broker.admission import door
from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.delay.delivery import DELAY_OFFSETS_FILE, DelayedDelivery
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_records import Delivered
from broker_core.broker.transactions.half import destination_text
from broker_core.codec.message_batch import LOOPBACK, MessageBatch
from broker_core.errors import IllegalMessageError, StorageError
from broker_core.store import config_files
from broker_core.types import BatchRef, Receipt
from tests.kit.fixtures import SIZES, expected, extract
from tests.kit.transactions import (
    FILE_BYTES,
    ManualClock,
    attempt_id,
    open_store,
    outgoing,
    visible,
)

pytestmark = pytest.mark.usefixtures("either_way")

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store", clock) as opened:
        opened.create_topic("t", queues=2)
        yield opened


def test_a_delayed_message_is_delivered_when_it_is_due(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    broker.send("t", b"later", tags="a", queue_id=1, delay_level=2)

    clock.advance(4_999)
    too_early = broker.transactions.deliver_due()
    clock.advance(1)
    due = broker.transactions.deliver_due()
    again = broker.transactions.deliver_due()

    rows = broker.read("t", queue_id=1, columns=["body", "tags", "properties"])
    assert (too_early, due, again) == (0, 1, 0)
    assert rows["body"].to_pylist() == [b"later"]
    assert rows["tags"].to_pylist() == ["a"]
    properties = dict(rows["properties"].to_pylist()[0])
    assert (properties["DELAY"], properties["REAL_TOPIC"]) == ("2", "t")


def test_levels_are_delivered_each_in_its_order(broker: EmbeddedBroker, clock: ManualClock) -> None:
    for level in (3, 1, 2, 1):
        broker.send("t", b"level %d" % level, queue_id=0, delay_level=level)
        clock.advance(100)

    seen = []
    for wait_ms in (1_000, 4_000, 6_000):
        clock.advance(wait_ms)
        broker.transactions.deliver_due()
        seen.append(len(visible(broker)))

    assert seen == [2, 3, 4]
    assert visible(broker) == [b"level 1", b"level 1", b"level 2", b"level 3"]


def test_a_process_that_forgot_how_far_it_was_delivers_nothing_twice(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    broker.send("t", b"once", delay_level=1)
    clock.advance(2_000)
    broker.transactions.deliver_due()
    # As after a crash between the append and the saving of the offset.
    for path in (broker.reader.root / "config").glob("delayOffset.json*"):
        path.unlink()

    again = broker.transactions.deliver_due()

    assert (again, visible(broker)) == (0, [b"once"])


def test_how_far_it_was_is_remembered_beyond_retention(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    broker.send("t", b"once", delay_level=1)
    clock.advance(2_000)
    broker.transactions.deliver_due()
    broker.send("t", b"pending", delay_level=18)
    for number in range(12):
        broker.send("t", b"%d" % number + b"." * (FILE_BYTES // 4))
    _, end = broker.reader.log_range()
    for path in (broker.reader.root / "config").glob("delayOffset.json*"):
        path.unlink()

    broker.delete_before(end // FILE_BYTES * FILE_BYTES)

    assert broker.transactions.deliver_due() == 0


def test_progress_is_kept_where_apache_keeps_it(broker: EmbeddedBroker, clock: ManualClock) -> None:
    broker.send("t", b"one", delay_level=1)
    broker.send("t", b"two", delay_level=3)
    clock.advance(2_000)

    broker.transactions.deliver_due()

    document = config_files.load(broker.reader.root / DELAY_OFFSETS_FILE)
    assert document["offsetTable"] == {"1": 1, "3": 0}


def test_after_the_clock_was_set_back_nobody_waits_longer_than_the_delay(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    broker.send("t", b"m", delay_level=1)
    clock.advance(-3_600_000)

    assert broker.transactions.deliver_due() == 1


def test_a_commit_of_delayed_messages_waits_for_its_level(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    batch = BatchRef("query:q", "", 0)
    messages = outgoing("t", [b"a", b"b"], attempt_id(1), born_ms=clock())
    delayed = _delayed(messages)
    prepared = broker.transactions.prepare_batch(batch, attempt_id(1), delayed, is_first=True)
    broker.transactions.commit_batch(batch, [Receipt(batch, attempt_id(1), (prepared,))])
    before = visible(broker)

    clock.advance(10_000)
    delivered = broker.transactions.deliver_due()

    assert (before, delivered) == ([], 2)
    assert sorted(visible(broker)) == [b"a", b"b"]
    assert broker.transactions.check_back().waiting == 0


def _delayed(messages: MessageBatch) -> MessageBatch:
    """The messages as a sink composes them with a delay of ten seconds."""
    texts = [
        text + destination_text("t", int(queue)).replace(b"REAL_TOPIC", b"DELAY\x013\x02REAL_TOPIC")
        for text, queue in zip(
            messages.property_texts.to_pylist(), messages.queue_ids.tolist(), strict=True
        )
    ]
    return replace(
        messages,
        topics=[SCHEDULE],
        queue_ids=np.full(len(messages), 2, dtype=np.int32),
        properties=pa.array(texts, type=pa.binary()),
    )


def test_what_apache_left_pending_is_delivered_as_apache_would(tmp_path: Path) -> None:
    root = extract("delay-retry-dlq-5.5", tmp_path)
    before = expected("delay-retry-dlq-5.5")["topics"]["Delayed"]["queues"]
    with EmbeddedBroker.open("apache", root, mode="rw", config=SIZES) as broker:
        pending = {level: broker.reader.queue_range(SCHEDULE, level - 1)[1] for level in (17, 18)}
        offsets = expected("delay-retry-dlq-5.5")["delayOffsets"]

        delivered = broker.transactions.deliver_due()

        done = sum(offsets.get(str(level), 0) for level in pending)
        assert delivered == sum(pending.values()) - done
        queue, held = next(iter(before.items()))
        _, end = broker.reader.queue_range("Delayed", int(queue))
        assert end > held["maxOffset"]
        entry = broker.reader.entries("Delayed", int(queue), end - 1, end)[0]
        record = broker.reader.record_at(int(entry["physical_offset"]))
        assert record.property_map["DELAY"] in {"17", "18"}
        assert record.prepared_offset == 0


def test_a_delivered_message_is_as_it_was_sent(broker: EmbeddedBroker, clock: ManualClock) -> None:
    sent = broker.send(
        "t", b"x", tags="A", keys=["k"], properties={"p": "v"}, queue_id=1, delay_level=1
    )
    clock.advance(1000)

    broker.transactions.deliver_due()

    columns = ["queueId", "msgId", "tags", "keys", "properties", "preparedTransactionOffset"]
    [row] = broker.read("t", queue_id=1, columns=columns, tags="A").to_pylist()
    assert row["properties"][-3:] == [("DELAY", "1"), ("REAL_TOPIC", "t"), ("REAL_QID", "1")]
    assert (row["queueId"], row["msgId"], row["keys"]) == (1, sent.msg_id, "k")
    assert row["preparedTransactionOffset"] == 0
    assert broker.message(sent.msg_id).column("topic").to_pylist() == ["t"]


def test_what_is_for_a_topic_that_is_gone_is_dropped_and_told(
    broker: EmbeddedBroker,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.create_topic("gone", queues=1)
    broker.send("gone", b"lost", delay_level=1)
    broker.send("t", b"kept", queue_id=0, delay_level=1)
    broker.delete_topic("gone")
    clock.advance(1000)

    assert broker.transactions.deliver_due() == 1

    assert visible(broker) == [b"kept"]
    assert "gone" not in broker.topics()
    assert "event=delayed_set_aside topic='gone' reason=topic_not_found" in caplog.text


ODD = {
    "no destination": b"DELAY\x011\x02",
    "no queue": b"DELAY\x011\x02REAL_TOPIC\x01t\x02",
    "no number": b"DELAY\x011\x02REAL_TOPIC\x01t\x02REAL_QID\x01abc\x02",
    "negative": b"DELAY\x011\x02REAL_TOPIC\x01t\x02REAL_QID\x01-1\x02",
    "no topic": b"DELAY\x011\x02REAL_QID\x010\x02",
    "a path": b"DELAY\x011\x02REAL_TOPIC\x01../../x\x02REAL_QID\x010\x02",
    "decisions": b"DELAY\x011\x02" + destination_text("RMQ_SYS_TRANS_BATCH_TOPIC", 0),
    "op messages": b"DELAY\x011\x02" + destination_text("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0),
    "half messages": b"DELAY\x011\x02" + destination_text("rmq_sys_trans_half_topic", 0),
    "itself": b"DELAY\x011\x02" + destination_text(SCHEDULE, 0),
}


def scheduled(*texts: bytes) -> MessageBatch:
    """Messages of level 1 that no client of ours could send: another broker left them."""
    nowhere = np.zeros(len(texts), dtype=np.int32)
    return MessageBatch(
        topics=[SCHEDULE],
        topic_codes=nowhere,
        queue_ids=nowhere,
        bodies=pa.array([b"odd"] * len(texts), type=pa.binary()),
        properties=pa.array(texts, type=pa.binary()),
    )


@pytest.mark.parametrize("odd", ODD)
def test_what_can_not_be_delivered_is_set_aside_and_hurts_no_other(
    broker: EmbeddedBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture, odd: str
) -> None:
    broker.send("t", b"before", queue_id=0, delay_level=1)
    broker.writer.append(scheduled(ODD[odd]))
    broker.send("t", b"behind", queue_id=0, delay_level=1)
    broker.send("t", b"later", queue_id=1, delay_level=2)
    clock.advance(60_000)
    topics = broker.topics()

    assert broker.transactions.deliver_due() == 3

    assert visible(broker) == [b"before", b"behind", b"later"]
    assert "event=delayed_set_aside" in caplog.text
    assert set(broker.topics()) - set(topics) <= {
        "RMQ_SYS_TRANS_BATCH_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
    assert not broker.transactions.deliver_due()


@pytest.mark.parametrize("offset", [1, 3, 10**30, -1])
def test_a_word_about_messages_that_were_not_there_yet_is_not_believed(
    broker: EmbeddedBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture, offset: int
) -> None:
    broker.transactions.deliver_due()
    journal = DecisionLookup(broker.reader)
    broker.writer.append(journal.records([Delivered(1, offset)], clock(), LOOPBACK))
    for body in (b"one", b"two", b"three"):
        broker.send("t", body, queue_id=0, delay_level=1)
    clock.advance(1_000)

    assert broker.transactions.deliver_due() == 3

    assert visible(broker) == [b"one", b"two", b"three"]
    assert "event=journal_record_ignored" in caplog.text
    assert not broker.transactions.deliver_due()


LONG = "%RETRY%" + "g" * 240


def largest_delayed(broker: EmbeddedBroker) -> int:
    """The most bytes of a body that is taken for a topic with a long name, delayed."""
    low, high = 1, FILE_BYTES
    while high - low > 1:
        middle = (low + high) // 2
        try:
            broker.send(LONG, b"x" * middle, delay_level=1)
            low = middle
        except IllegalMessageError:
            high = middle
    return low


def test_the_largest_delayed_message_is_delivered(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    broker.create_topic(LONG, queues=1)
    largest = largest_delayed(broker)
    clock.advance(1_000)

    assert broker.transactions.deliver_due() > 0

    assert max(map(len, visible(broker, LONG))) == largest


def test_one_whose_copy_does_not_fit_is_set_aside_alone(
    broker: EmbeddedBroker,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.create_topic(LONG, queues=1)
    broker.send("t", b"before", queue_id=0, delay_level=1)
    with monkeypatch.context() as older:
        older.setattr(door, "require_deliverable", lambda *_: None)
        broker.send(LONG, b"x" * largest_delayed(broker), delay_level=1)
    broker.send("t", b"behind", queue_id=0, delay_level=1)
    broker.send("t", b"later", queue_id=1, delay_level=2)
    clock.advance(60_000)

    assert broker.transactions.deliver_due() > 0

    assert visible(broker) == [b"before", b"behind", b"later"]
    assert "event=delayed_set_aside physical_offset=" in caplog.text
    assert not broker.transactions.deliver_due()


def test_a_level_that_fails_does_not_stop_the_others(
    broker: EmbeddedBroker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send("t", b"one", queue_id=0, delay_level=1)
    broker.send("t", b"two", queue_id=0, delay_level=2)
    clock.advance(60_000)
    count = DelayedDelivery._count_due

    def fail(delivery: DelayedDelivery, level: int, *arguments: int) -> int:
        if level == 1:
            raise StorageError
        return count(delivery, level, *arguments)

    with monkeypatch.context() as failing:
        failing.setattr(DelayedDelivery, "_count_due", fail)
        with pytest.raises(StorageError):
            broker.transactions.deliver_due()

    assert visible(broker) == [b"two"]
    assert broker.transactions.deliver_due() == 1
    assert visible(broker) == [b"two", b"one"]


def test_a_queue_that_its_topic_no_longer_has_is_another_one(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    broker.writer.append(scheduled(b"DELAY\x011\x02" + destination_text("t", 999_999_999)))
    clock.advance(60_000)

    assert broker.transactions.deliver_due() == 1

    assert visible(broker) == [b"odd"]
    assert set(broker.reader.queue_ids("t")) <= {0, 1}


def test_a_topic_without_configuration_costs_what_it_holds(broker: EmbeddedBroker) -> None:
    far = replace(scheduled(b""), queue_ids=np.array([3_000_000], dtype=np.int32))
    broker.writer.append(far)

    described = broker.describe(SCHEDULE)

    assert [queue.queue_id for queue in described.queues] == [3_000_000]
    assert [queue.queue_id for queue in broker.offsets(SCHEDULE)] == [3_000_000]
