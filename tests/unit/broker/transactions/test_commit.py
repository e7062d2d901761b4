from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from broker_core import open_broker
from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions import unpack
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_records import Decision
from broker_core.codec import layout
from broker_core.codec.layout import MAX_PROPERTIES_BYTES
from broker_core.codec.properties.checksum import ROOM_BYTES as CHECKSUM_BYTES
from broker_core.codec.property_names import HALF_TOPIC
from broker_core.codec.spans import sliding
from broker_core.errors import (
    BatchConflictError,
    IllegalMessageError,
    IllegalTransitionError,
    UnknownTransactionError,
)
from broker_core.types import BatchOutcome, BatchRef, LogicalOffset, Prepared, Receipt
from tests.kit.stores import deleted_maps
from tests.kit.transactions import (
    FILE_BYTES,
    SMALL_FILES,
    START_MS,
    ManualClock,
    attempt_id,
    half_count,
    in_pieces,
    op_count,
    open_store,
    outgoing,
    prepare,
    visible,
)

pytestmark = pytest.mark.usefixtures("either_way")

BATCH = BatchRef("query:q", "", 5)
NEXT = replace(BATCH, number=6)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store", clock) as opened:
        opened.create_topic("t", queues=2)
        yield opened


def bodies(count: int, name: str = "m") -> list[bytes]:
    return [f"{name}-{number:05d}".encode() for number in range(count)]


def test_what_is_prepared_is_invisible_until_it_is_committed(broker: EmbeddedBroker) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, bodies(5))
    before = visible(broker)

    outcome = broker.transactions.commit_batch(BATCH, [receipt], run="r1")

    assert before == []
    assert sorted(visible(broker)) == bodies(5)
    assert outcome == BatchOutcome(is_repeat=False, run="r1")


def test_order_within_a_task_and_queue_is_kept(broker: EmbeddedBroker) -> None:
    receipts = [
        prepare(broker.transactions, BATCH, task, bodies(6, f"task{task}")) for task in (2, 1)
    ]

    broker.transactions.commit_batch(BATCH, receipts)

    first_queue = broker.read("t", queue_id=0, columns=["body"])["body"].to_pylist()
    evens = [b"task2-00000", b"task2-00002", b"task2-00004"]
    assert first_queue == [*evens, *(body.replace(b"task2", b"task1") for body in evens)]


def test_an_attempt_may_prepare_in_several_calls(broker: EmbeddedBroker) -> None:
    one = prepare(broker.transactions, BATCH, 1, bodies(3, "a"))
    other = prepare(broker.transactions, BATCH, 2, bodies(3, "b"))
    more = prepare(broker.transactions, BATCH, 1, bodies(3, "c"))
    receipt = Receipt(BATCH, one.attempt, one.prepared + more.prepared)

    broker.transactions.commit_batch(BATCH, [receipt])

    assert sorted(visible(broker)) == bodies(3, "a") + bodies(3, "c")
    assert other.count == 1


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_commit_in_pieces_is_the_same_commit(broker: EmbeddedBroker, rows: int) -> None:
    transactions = in_pieces(broker, rows)
    receipts = [prepare(transactions, BATCH, task, bodies(5, f"t{task}")) for task in range(3)]

    transactions.commit_batch(BATCH, receipts)

    expected = [body for task in range(3) for body in bodies(5, f"t{task}")]
    assert sorted(visible(broker)) == expected
    assert broker.transactions.check_back().waiting == 0


def test_a_batch_larger_than_a_segment_is_committed_whole(broker: EmbeddedBroker) -> None:
    large = [body.ljust(FILE_BYTES // 8) for body in bodies(40)]

    broker.transactions.commit_batch(BATCH, [prepare(broker.transactions, BATCH, 1, large)])

    assert sorted(visible(broker)) == large


def test_a_commit_lets_go_of_what_others_deleted(broker: EmbeddedBroker, tmp_path: Path) -> None:
    large = [body.ljust(FILE_BYTES // 8) for body in bodies(40)]
    broker.transactions.commit_batch(BATCH, [prepare(broker.transactions, BATCH, 1, large)])
    with open_store(tmp_path / "store") as other:
        start = other.delete_before(1 << 62)
    held = deleted_maps(tmp_path)

    broker.transactions.commit_batch(NEXT, [prepare(broker.transactions, NEXT, 2, bodies(1))])

    assert start > 0
    assert held
    assert not deleted_maps(tmp_path)


def test_messages_too_large_for_a_block_are_committed_in_their_turn(broker: EmbeddedBroker) -> None:
    mixed = [body.ljust(FILE_BYTES // 3) if row % 3 else body for row, body in enumerate(bodies(9))]
    receipt = prepare(broker.transactions, BATCH, 1, mixed)

    broker.transactions.commit_batch(BATCH, [receipt])

    assert receipt.count == 9
    assert visible(broker) == mixed[::2] + mixed[1::2]


def test_a_block_of_which_a_loss_of_power_left_a_part_is_completed(broker: EmbeddedBroker) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, bodies(5))
    [frames] = broker.reader.frames(HALF_TOPIC, 0, 0, receipt.count)
    [whole] = unpack.visible_copies(frames)
    decision = Decision(BATCH, "r1", ((0, receipt.count),))
    host = broker.writer.settings.store_host
    broker.writer.append(DecisionLookup(broker.reader).records([decision], START_MS, host))
    broker.writer.append(whole.without(whole.prepared_offsets[3:]).batch())
    left = visible(broker)

    outcome = broker.transactions.commit_batch(BATCH, [receipt])

    assert sorted(left) == bodies(3)
    assert outcome == BatchOutcome(is_repeat=True, run="r1")
    assert sorted(visible(broker)) == bodies(5)
    assert broker.transactions.check_back().waiting == 0


def test_a_plain_message_does_not_pass_for_the_copy_of_a_row(broker: EmbeddedBroker) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, bodies(3))
    [frames] = broker.reader.frames(HALF_TOPIC, 0, 0, receipt.count)
    [whole] = unpack.visible_copies(frames)
    decision = Decision(BATCH, "r1", ((0, receipt.count),))
    host = broker.writer.settings.store_host
    broker.writer.append(DecisionLookup(broker.reader).records([decision], START_MS, host))
    # As an older release would have taken it: the door writes 0 there now.
    forged = outgoing("t", [b"from-peer"], attempt_id(9))
    broker.writer.append(replace(forged, prepared_offsets=int(whole.prepared_offsets[1])))

    broker.transactions.commit_batch(BATCH, [receipt])

    assert sorted(visible(broker)) == sorted([b"from-peer", *bodies(3)])


def test_a_commit_with_another_key_does_not_pass_for_the_copy_of_a_row(
    broker: EmbeddedBroker,
) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, bodies(3))
    prepare(broker.transactions, NEXT, 2, [b"other"])
    [frames] = broker.reader.frames(HALF_TOPIC, 0, 0, receipt.count)
    [others] = broker.reader.frames(HALF_TOPIC, 0, receipt.count, receipt.count + 1)
    [whole], [odd] = unpack.visible_copies(frames), unpack.visible_copies(others)
    decision = Decision(BATCH, "r1", ((0, receipt.count),))
    host = broker.writer.settings.store_host
    broker.writer.append(DecisionLookup(broker.reader).records([decision], START_MS, host))
    at = odd.records.starts + layout.PREPARED_OFFSET
    sliding(odd.records.buffer, ">i8")[at] = whole.prepared_offsets[1]
    broker.writer.append(odd.batch())

    broker.transactions.commit_batch(BATCH, [receipt])

    assert sorted(visible(broker)) == sorted([b"other", *bodies(3)])


def test_a_repeat_changes_nothing_and_says_so(broker: EmbeddedBroker) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, bodies(4))
    broker.transactions.commit_batch(BATCH, [receipt], run="first")

    same = broker.transactions.commit_batch(BATCH, [receipt], run="second")
    replayed = prepare(broker.transactions, BATCH, 2, bodies(4))
    other = broker.transactions.commit_batch(BATCH, [replayed], run="third")

    assert sorted(visible(broker)) == bodies(4)
    assert same == other == BatchOutcome(is_repeat=True, run="first")
    assert broker.transactions.check_back().waiting == 0


def test_an_earlier_batch_comes_too_late(broker: EmbeddedBroker) -> None:
    broker.transactions.commit_batch(NEXT, [prepare(broker.transactions, NEXT, 1, bodies(1, "n"))])

    late = prepare(broker.transactions, BATCH, 2, bodies(1, "late"))
    with pytest.raises(BatchConflictError, match="batch 6 is committed already"):
        broker.transactions.commit_batch(BATCH, [late])
    outcome = broker.transactions.commit_batch(BATCH, [late], conflict="repeat")

    assert outcome.is_repeat
    assert visible(broker) == bodies(1, "n")


@pytest.mark.parametrize(
    "other",
    [BatchRef("query:q", "audit", 5), BatchRef("query:p", "", 5), BatchRef("query:q", "#", 5)],
    ids=["name", "owner", "odd-name"],
)
def test_batches_of_other_owners_and_names_are_others(
    broker: EmbeddedBroker, other: BatchRef
) -> None:
    broker.transactions.commit_batch(BATCH, [prepare(broker.transactions, BATCH, 1, bodies(1))])

    outcome = broker.transactions.commit_batch(
        other, [prepare(broker.transactions, other, 2, bodies(1))]
    )

    assert not outcome.is_repeat
    assert visible(broker) == bodies(1) * 2


def test_a_decided_batch_need_not_be_prepared(broker: EmbeddedBroker) -> None:
    before = broker.transactions.is_batch_decided(BATCH)

    broker.transactions.commit_batch(BATCH, [prepare(broker.transactions, BATCH, 1, bodies(1))])

    assert not before
    assert broker.transactions.is_batch_decided(BATCH)
    assert not broker.transactions.is_batch_decided(NEXT)


def test_preparing_nothing_is_nothing(broker: EmbeddedBroker) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, [])

    outcome = broker.transactions.commit_batch(BATCH, [receipt])

    assert (receipt.count, half_count(broker)) == (0, 0)
    assert not outcome.is_repeat


def test_an_empty_batch_leaves_no_trace(broker: EmbeddedBroker) -> None:
    broker.transactions.check_back()
    before = broker.reader.log_range()

    outcome = broker.transactions.commit_batch(BATCH, [Receipt(BATCH, "a")])

    assert not outcome.is_repeat
    assert broker.reader.log_range() == before


def test_an_aborted_batch_is_gone_and_may_be_written_again(broker: EmbeddedBroker) -> None:
    first = prepare(broker.transactions, BATCH, 1, bodies(3, "first"))
    broker.transactions.abort_batch(BATCH, [first])

    again = prepare(broker.transactions, BATCH, 2, bodies(3, "again"))
    outcome = broker.transactions.commit_batch(BATCH, [again])

    assert not outcome.is_repeat
    assert sorted(visible(broker)) == bodies(3, "again")
    assert broker.transactions.check_back().waiting == 0


def test_abort_after_commit_changes_nothing(broker: EmbeddedBroker) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, bodies(3))
    broker.transactions.commit_batch(BATCH, [receipt])

    broker.transactions.abort_batch(BATCH, [receipt])

    assert sorted(visible(broker)) == bodies(3)


def test_abort_of_nothing_is_nothing(broker: EmbeddedBroker) -> None:
    broker.transactions.abort_batch(BATCH, [])

    assert half_count(broker) == op_count(broker) == 0


def test_a_batch_whose_messages_were_rolled_back_is_refused_as_a_whole(
    broker: EmbeddedBroker,
) -> None:
    kept = prepare(broker.transactions, BATCH, 1, bodies(3))
    lost = prepare(broker.transactions, BATCH, 2, bodies(2))
    broker.transactions.abort_batch(BATCH, [lost])

    with pytest.raises(IllegalTransitionError, match=r"1 of its 2 half .* number 1\..*again"):
        broker.transactions.commit_batch(BATCH, [kept, lost])

    assert visible(broker) == []
    assert not broker.transactions.commit_batch(BATCH, [kept]).is_repeat


def test_a_batch_that_check_back_gave_up_is_refused(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, bodies(3), born_ms=clock())
    clock.advance(73 * 3_600_000)
    given_up = broker.transactions.check_back().given_up

    with pytest.raises(IllegalTransitionError, match="1 of its 1 half"):
        broker.transactions.commit_batch(BATCH, [receipt])

    assert given_up == 1
    [block] = visible(broker, "TRANS_CHECK_MAX_TIME_TOPIC")
    assert all(body in block for body in bodies(3))


def test_receipts_of_another_store_are_refused(broker: EmbeddedBroker) -> None:
    prepare(broker.transactions, BATCH, 1, bodies(3))
    strange = Prepared(LogicalOffset(2), LogicalOffset(9))

    with pytest.raises(UnknownTransactionError, match="does not hold"):
        broker.transactions.commit_batch(BATCH, [Receipt(BATCH, attempt_id(1), (strange,))])


def test_what_a_decided_batch_left_over_is_rolled_back_by_check_back(
    broker: EmbeddedBroker,
) -> None:
    winner = prepare(broker.transactions, BATCH, 1, bodies(3, "winner"))
    prepare(broker.transactions, BATCH, 2, bodies(3, "loser"))
    prepare(broker.transactions, NEXT, 3, bodies(2, "next"))
    broker.transactions.commit_batch(BATCH, [winner])

    report = broker.transactions.check_back()

    assert (report.rolled_back, report.waiting) == (0, 1)  # the commit's own round was first
    assert sorted(visible(broker)) == bodies(3, "winner")


def test_what_may_still_be_committed_waits_for_its_batch(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, bodies(2), born_ms=clock())
    clock.advance(3_600_000)

    report = broker.transactions.check_back()
    broker.transactions.commit_batch(BATCH, [receipt])

    assert (report.waiting, half_count(broker)) == (1, 1)
    assert sorted(visible(broker)) == bodies(2)


def test_decisions_outlive_the_files_they_were_in(broker: EmbeddedBroker) -> None:
    broker.transactions.commit_batch(BATCH, [prepare(broker.transactions, BATCH, 1, bodies(2))])
    filler = [body.ljust(FILE_BYTES // 4) for body in bodies(12)]
    for body in filler:
        broker.send("t", body)
    start, end = broker.reader.log_range()

    remaining = broker.delete_before(end // FILE_BYTES * FILE_BYTES)
    replayed = prepare(broker.transactions, BATCH, 2, bodies(2, "again"))

    assert start < remaining
    assert broker.transactions.commit_batch(BATCH, [replayed]).is_repeat


def test_a_finished_batch_that_nobody_repeats_is_not_carried_along(
    broker: EmbeddedBroker,
) -> None:
    receipt = prepare(broker.transactions, BATCH, 1, bodies(2))
    broker.transactions.commit_batch(BATCH, [receipt], keep=False)
    for body in bodies(12):
        broker.send("t", body.ljust(FILE_BYTES // 4))
    _, end = broker.reader.log_range()

    broker.delete_before(end // FILE_BYTES * FILE_BYTES)

    assert broker.reader.log_range()[1] == end


def test_a_message_without_room_for_its_checksum_is_refused_when_it_is_prepared(
    tmp_path: Path,
) -> None:
    config = {**SMALL_FILES, "mappedFileSizeCommitLog": 1 << 18, "enabledAppendPropCRC": "true"}
    name = attempt_id(1)
    messages = outgoing("t", [b"short", b"long"], name)
    short, long = messages.property_texts.to_pylist()
    with open_broker(f"file:{tmp_path / 'store'}", mode="rw", create=True, config=config) as opened:
        opened.create_topic("t", queues=2)
        transactions = in_pieces(cast("EmbeddedBroker", opened), 1)

        def prepared(length: int) -> Prepared:
            text = long + b"p\x01" + b"x" * (length - len(long) - 3) + b"\x02"
            texts = pa.array([short, text], type=pa.binary())
            return transactions.prepare_batch(
                BATCH, name, replace(messages, properties=texts), is_first=True
            )

        with pytest.raises(IllegalMessageError, match="enabledAppendPropCRC"):
            prepared(MAX_PROPERTIES_BYTES - CHECKSUM_BYTES + 1)
        receipt = Receipt(BATCH, name, (prepared(MAX_PROPERTIES_BYTES - CHECKSUM_BYTES),))

        assert transactions.commit_batch(BATCH, [receipt]) == BatchOutcome(is_repeat=False, run="")
        assert visible(opened) == [b"short", b"long"]
