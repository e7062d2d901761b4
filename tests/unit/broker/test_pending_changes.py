"""Whoever changes a store with a pending tail dispatches it first, or goes on behind their own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from broker_core import LocalTransactionState, SqlFilter, TopicNotFoundError
from broker_core.broker.admission.records import admit
from broker_core.broker.broker import EmbeddedBroker
from broker_core.codec.property_names import HALF_TOPIC, OP_TOPIC
from broker_core.filter.pipeline import MessageFilter
from broker_core.filter.registered import load_registered, registration_of
from broker_core.service.transient_pool import PooledWriter
from broker_core.store.check.store import check
from broker_core.store.few_records import FewRecords
from broker_core.store.recovery.checkpoint import read_checkpoint
from broker_core.store.recovery.plan import RecoveryKind, plan
from broker_core.types import BatchRef, HalfMessage, LogicalOffset, OffsetRange
from tests.kit import fixtures
from tests.kit.batches import batch
from tests.kit.pending import marker, pending_records, require_pending
from tests.kit.stores import open_r, open_rw
from tests.kit.transactions import FILE_BYTES, ManualClock, open_store, prepare, visible
from tests.unit.broker.test_pending_tail import ALL, LOOKS, PENDING, fill, opened
from tests.unit.service.test_group_commit import records as client_records
from tests.unit.service.test_transient_pool import bodies as bodies_of_pool
from tests.unit.service.test_transient_pool import open_pool
from tests.unit.service.test_transient_pool import send as send_to_pool


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def broker(root: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    """A writer that stays open, and whose last six messages are pending."""
    with opened(root, clock) as writer:
        fill(writer, clock)
        require_pending(root, PENDING)
        yield writer


def require_sound(root: Path) -> None:
    """Fail unless a store that nobody has open is right, and was closed."""
    assert check(root) == []
    assert not (root / "abort").exists()
    assert pending_records(root) == 0


# Other writers


def test_another_writer_numbers_on_behind_what_is_pending(
    root: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    with open_store(root, clock) as other:
        sent = [other.send("t", b"other", queue_id=0).queue_offset for _ in range(2)]
        assert pending_records(root) == 2
        sent.append(broker.send("t", b"mine again", queue_id=0).queue_offset)

    assert sent == [5, 6, 7]
    assert broker.read("t", 0, 5)["body"].to_pylist() == [b"other", b"other", b"mine again"]
    broker.close()
    require_sound(root)


def test_a_reader_that_was_open_before_sees_it(
    root: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    early = root.with_name("early")
    writer = opened(early, clock)
    writer.create_topic("t", queues=2)
    with open_r(early) as reader:
        assert reader.offsets("t") == {writer.catalog.ref("t", n): (0, 0) for n in range(2)}
        writer.delete_topic("t")
        fill(writer, clock)
        require_pending(early, PENDING)
        for look in LOOKS:
            look(reader)
        writer.writer.flush()
        for look in LOOKS:
            look(reader)


@pytest.mark.parametrize("is_believed", [True, False], ids=["cp -a", "cp -r"])
def test_a_copy_of_an_open_store_is_recovered_whole(
    root: Path, broker: EmbeddedBroker, is_believed: bool
) -> None:
    copy = Path(shutil.copytree(root, root.with_name("copy"), copy_function=shutil.copy2))
    if not is_believed:
        os.utime(copy / "lock")
    expected = RecoveryKind.FINISH if is_believed else RecoveryKind.ABNORMAL
    assert plan(copy, broker.writer.settings).kind is expected

    with open_rw(copy) as opened_copy:
        for look in LOOKS:
            look(opened_copy)
        assert opened_copy.send("t", b"next", queue_id=1).queue_offset == 5
    require_sound(copy)


def test_a_flush_dispatches_and_only_then_says_so(root: Path, broker: EmbeddedBroker) -> None:
    dispatched = marker(root).dispatched_end
    assert read_checkpoint(root / "checkpoint").logics_physical_offset == dispatched

    broker.writer.flush()

    assert pending_records(root) == 0
    assert read_checkpoint(root / "checkpoint").logics_physical_offset == marker(root).log_end
    assert marker(root).durable_end == marker(root).log_end > dispatched


def test_check_tells_of_a_dispatch_that_broke_off_in_the_index(
    root: Path, broker: EmbeddedBroker
) -> None:
    checkpoint = (root / "checkpoint").read_bytes()
    broker.writer.flush()
    # As if killed before the marker said so.
    (root / "checkpoint").write_bytes(checkpoint)

    (problem,) = check(root)
    assert "a writer died; recovery will dispatch what is in the log" in problem.what
    with open_rw(root) as other:
        for look in LOOKS:
            look(other)
    require_sound(root)


@pytest.mark.parametrize("is_pending", [True, False], ids=["pending", "dispatched"])
def test_check_misses_an_entry_unless_it_is_pending(
    root: Path, broker: EmbeddedBroker, is_pending: bool
) -> None:
    if not is_pending:
        broker.writer.flush()
    queue = next((root / "consumequeue/t/0").iterdir())
    # Messages 0 and 1 were dispatched by the first flush, 2 to 4 are pending or were by the second.
    first = 1 if is_pending else 4
    data = queue.read_bytes()
    queue.write_bytes(data[: 20 * first].ljust(len(data), b"\0"))

    (problem,) = check(root)
    assert problem.what.startswith(f"message {first} at physical offset")


# Topics and groups


def test_queues_are_added_and_filled(root: Path, broker: EmbeddedBroker) -> None:
    with open_rw(root) as other:
        other.add_queues("t", 3)
        assert pending_records(root) == 0
        assert other.send("t", b"new", queue_id=2).queue_offset == 0
    assert broker.send("t", b"newer", queue_id=2).queue_offset == 1
    assert visible(broker) == [*ALL[::2], *ALL[1::2], b"new", b"newer"]


def test_a_deleted_topic_takes_its_pending_messages_along(
    root: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    with open_store(root, clock) as other:
        other.delete_topic("t")
        with pytest.raises(TopicNotFoundError):
            broker.offsets("t")
        with pytest.raises(TopicNotFoundError):
            broker.send("t", b"too late")
        other.create_topic("t", queues=2)
        # The numbers of messages that were pending are not used twice.
        assert other.send("t", b"anew", queue_id=1).queue_offset == 5
    # Nor does a recovery that looks at the whole log bring them back.
    os.utime(root / "lock")
    with open_rw(root) as again:
        assert again.offsets("t")[again.catalog.ref("t", 1)] == (5, 6)
        assert visible(again) == [b"anew"]


def test_a_group_may_have_read_what_is_pending(root: Path, broker: EmbeddedBroker) -> None:
    with open_rw(root) as consumer:
        for queue, (_, end) in consumer.offsets("t").items():
            consumer.commit_offset("g", "t", queue.queue_id, end)
    found = broker.consumer_offsets("g", "t")
    assert found == {queue: end for queue, (_, end) in broker.offsets("t").items()}
    assert set(found.values()) == {5}


# Retention


@pytest.mark.parametrize("is_by_offset", [True, False], ids=["before", "expired"])
def test_retention_keeps_what_is_pending(
    root: Path, clock: ManualClock, is_by_offset: bool
) -> None:
    writer = opened(root, clock)
    writer.create_topic("t", queues=1)
    for number in range(3):
        writer.send("t", b"%d" % number * (FILE_BYTES * 2 // 5), queue_id=0)
    for number in range(3):
        writer.send("t", b"pending %d" % number)
    require_pending(root, 3)

    with open_store(root, clock) as other:
        if is_by_offset:
            start = other.delete_before(FILE_BYTES)
        else:
            clock.now_ms += 10**12
            start = other.writer.delete_expired(is_on_demand=True)
        assert start == FILE_BYTES
    with open_r(root) as reader:
        assert reader.offsets("t") == {reader.catalog.ref("t", 0): (2, 6)}
        assert reader.read("t", 0, 3)["body"].to_pylist() == [b"pending %d" % n for n in range(3)]
    writer.close()
    require_sound(root)


# Delays, transactions


def test_a_pending_delayed_message_is_delivered_once(
    root: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    broker.send("t", b"makes the queue", queue_id=0, delay_level=1)
    broker.writer.flush()
    broker.send("t", b"later", queue_id=1, delay_level=1)
    require_pending(root, 1)
    clock.advance(1_500)
    with open_store(root, clock) as other:
        assert other.transactions.deliver_due() == 2
    assert broker.transactions.deliver_due() == 0
    assert visible(broker)[-1:] == [b"later"]


class Asked:
    """Commits what it is asked about, and remembers it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def execute_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    def check_local_transaction(
        self, half: HalfMessage, body: bytes, properties: Mapping[str, str]
    ) -> LocalTransactionState:
        self.bodies.append(body)
        return LocalTransactionState.COMMIT


def pending_half(broker: EmbeddedBroker, body: bytes) -> HalfMessage:
    """A half message that is pending; the first of a store makes the queue."""
    broker.transactions.prepare("t", b"first", group="other")
    broker.writer.flush()
    half = broker.transactions.prepare("t", body, group="g")
    require_pending(broker.reader.root, 1)
    return half


def test_check_back_asks_about_a_pending_half_message(
    root: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    pending_half(broker, b"asked")
    clock.advance(6_001)
    listener = Asked()
    with open_store(root, clock) as other:
        other.transactions.listen("g", listener)
        other.transactions.check_back()
        other.transactions.check_back()
    assert listener.bodies == [b"asked"]
    assert visible(broker).count(b"asked") == 1


@pytest.mark.parametrize("state", [LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK])
def test_a_pending_half_message_is_settled_once(
    root: Path, broker: EmbeddedBroker, clock: ManualClock, state: LocalTransactionState
) -> None:
    half = pending_half(broker, b"once")
    with open_store(root, clock) as other:
        other.transactions.end(half, state)
    assert visible(broker).count(b"once") == int(state is LocalTransactionState.COMMIT)
    assert broker.reader.queue_range(OP_TOPIC, 0) == (0, 1)


def test_a_batch_is_decided_once_with_messages_pending_in_between(
    root: Path, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    batch_ref = BatchRef("query", "sink", 0)
    receipts = []
    for number in range(3):
        receipts.append(prepare(broker.transactions, batch_ref, number, [b"in batch %d" % number]))
        broker.send("t", b"between", queue_id=0)
        require_pending(root, 1)
    with open_store(root, clock) as other:
        first = other.transactions.commit_batch(batch_ref, receipts[:2])
        other.send("t", b"between", queue_id=0)
        require_pending(root, 1)
    again = broker.transactions.commit_batch(batch_ref, receipts[:2])

    assert (first.is_repeat, again.is_repeat) == (False, True)
    seen = visible(broker)
    assert [seen.count(b"in batch %d" % number) for number in range(3)] == [1, 1, 0]
    assert seen.count(b"between") == 4
    assert HALF_TOPIC in {topic for topic, _ in broker.reader.queues()}


# What a server adds


def test_the_transient_pool_places_few_records_behind_what_it_holds(tmp_path: Path) -> None:
    pool = open_pool(tmp_path / "store")
    assert isinstance(pool.writer, PooledWriter)
    # Without files of queue and index all go the way of many.
    pool.writer.append(batch(["written"], topic="t"))
    send_to_pool(pool, b"held 0", b"held 1")
    assert pool.writer.held_bytes > 0
    with pool.broker() as broker:
        few = FewRecords.of(admit(broker.door, [client_records(b"few")]))
    assert few is not None

    queue_offsets, _, _ = pool.writer.append_few(few)

    assert queue_offsets == [3]
    assert bodies_of_pool(pool) == [b"written", b"held 0", b"held 1", b"few"]
    pool.close()
    assert check(tmp_path / "store") == []


# Stores of Apache's broker


def test_bitmaps_of_a_registered_filter_leave_pending_messages_in(tmp_path: Path) -> None:
    root = fixtures.extract("bloom-5.5", tmp_path)
    config = {name: str(size) for name, size in fixtures.SIZES.items()}
    expression = "price > 50.5"
    registration = registration_of(load_registered(root), "Filtered", expression)
    assert registration is not None
    writer = EmbeddedBroker.open(f"file:{root}", root, mode="rw", config=config)
    (_, end) = writer.reader.queue_range("Filtered", 0)
    for price in ("51", "50", "52"):
        writer.send("Filtered", b"new", properties={"price": price}, queue_id=0)
    require_pending(root, 3)

    with open_r(root) as reader:
        assert reader._registrations.find("Filtered", expression) is not None
        wanted = MessageFilter(sql=SqlFilter(expression))
        whole = OffsetRange(
            reader.catalog.ref("Filtered", 0), LogicalOffset(0), LogicalOffset(end + 3)
        )
        found = [o for f in reader.pull(whole, message_filter=wanted) for o in f.offsets.tolist()]
    assert [offset for offset in found if offset >= end] == [end, end + 2]
    assert any(offset < end for offset in found)
