"""What is prepared belongs to its user, batch and attempt: neighbours, forged numbers, old records.

The oracle is the world without the attacker: whatever a stranger sends, the victim's batch commits
once, whole, and nothing of theirs is visible before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import cast

import pytest

from broker_core.broker.broker import EmbeddedBroker
from broker_core.broker.transactions.api import Transactions
from broker_core.broker.transactions.decision_lookup import DecisionLookup
from broker_core.broker.transactions.decision_records import BatchAttempt, Decision
from broker_core.broker.transactions.ownership import Caller
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.property_names import OP_TOPIC
from broker_core.errors import (
    BatchConflictError,
    BatchGapError,
    BatchLostError,
    BrokerError,
    IllegalMessageError,
    IllegalTransitionError,
    PermissionDeniedError,
    RequestError,
    UnknownTransactionError,
)
from broker_core.store.batch import Batch
from broker_core.types import (
    BatchOutcome,
    BatchRef,
    HalfMessage,
    LocalTransactionState,
    LogicalOffset,
    PhysicalOffset,
    Prepared,
    Receipt,
)
from tests.kit.retention import LARGE_FILES, open_with
from tests.kit.transactions import (
    FILE_BYTES,
    START_MS,
    ManualClock,
    attempt_id,
    op_count,
    open_store,
    outgoing,
    put_check_back_progress,
    visible,
)

BATCH = BatchRef("query:q", "", 5)
NEXT = replace(BATCH, number=6)
COMMIT, ROLLBACK = LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK
HUGE = (1 << 63) - 1
NUMBERS = [-(1 << 63), -1, 0, 1, 2, 3, 1000, 10**8, HUGE]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with open_store(tmp_path / "store", clock) as opened:
        opened.create_topic("orders", queues=1)
        opened.create_topic("mal", queues=1)
        yield opened


def user(broker: EmbeddedBroker, name: str, *topics: str) -> Transactions:
    """Transactions as a user sees them who may publish to some topics."""

    def permit(wanted: Collection[str]) -> None:
        if set(wanted) - set(topics):
            raise PermissionDeniedError(str(wanted))

    return broker.transactions.asked_by(Caller(name, permit))


def prepare(
    transactions: Transactions,
    batch: BatchRef,
    attempt: int,
    *bodies: bytes,
    topic: str = "orders",
    is_first: bool = True,
) -> Receipt:
    name = attempt_id(attempt)
    messages = outgoing(topic, bodies, name, born_ms=START_MS, queues=1)
    prepared = transactions.prepare_batch(batch, name, messages, is_first=is_first)
    return Receipt(batch, name, (prepared,))


@pytest.fixture
def alice(broker: EmbeddedBroker) -> Transactions:
    return user(broker, "alice", "orders")


@pytest.fixture
def mallory(broker: EmbeddedBroker) -> Transactions:
    return user(broker, "mallory", "mal")


# Batches


@pytest.mark.parametrize(
    "steps", list(permutations(["mine", "prepare", "commit", "ask", "abort"]))[::7]
)
def test_two_users_with_one_batch_have_each_their_own(
    tmp_path: Path, steps: tuple[str, ...]
) -> None:
    with open_store(tmp_path / "store") as broker:
        broker.create_topic("orders", queues=1)
        broker.create_topic("mal", queues=1)
        alice, mallory = user(broker, "alice", "orders"), user(broker, "mallory", "mal")
        later = replace(BATCH, number=10**12)
        receipt, decided = None, None
        for step in steps:
            match step:
                case "mine":
                    receipt = prepare(alice, BATCH, 1, b"row")
                case "prepare":
                    prepare(mallory, BATCH, 2, b"m", topic="mal")
                case "commit":
                    mallory.commit_batch(later, [prepare(mallory, later, 3, b"m", topic="mal")])
                case "ask":
                    decided = alice.is_batch_decided(BATCH)
                case "abort":
                    mallory.abort_batch(BATCH, [prepare(mallory, BATCH, 4, b"m", topic="mal")])
        assert receipt is not None

        outcome = alice.commit_batch(BATCH, [receipt], run="a")
        again = alice.commit_batch(BATCH, [prepare(alice, BATCH, 5, b"row")], run="b")

        assert decided is False
        assert outcome == BatchOutcome(is_repeat=False, run="a")
        assert again == BatchOutcome(is_repeat=True, run="a")
        assert visible(broker, "orders") == [b"row"]


def hostile(own: Receipt, others: Receipt) -> dict[str, list[Receipt]]:
    """Receipts that name what is not a stranger's to decide."""
    mine, theirs = own.prepared[0], others.prepared[0]
    return {
        "foreign": [others],
        "foreign-range": [replace(own, prepared=others.prepared)],
        "both": [replace(own, prepared=(mine, theirs))],
        "overlapping": [replace(own, prepared=(mine, mine))],
        "repeated": [own, own],
        "reversed": [replace(own, prepared=(Prepared(mine.end, mine.start),))],
        "future": [replace(own, prepared=(Prepared(mine.start, LogicalOffset(mine.end + 5)),))],
        "huge": [replace(own, prepared=(Prepared(LogicalOffset(0), LogicalOffset(10**10)),))],
        "negative": [replace(own, prepared=(Prepared(LogicalOffset(-5), mine.end),))],
        "unknown-attempt": [replace(own, attempt=attempt_id(99))],
        "no-attempt": [replace(own, attempt="query:q#")],
        "long-attempt": [replace(own, attempt="F" * 3_000_000)],
        "other-batch": [replace(own, batch=NEXT)],
    }


@pytest.mark.parametrize("call", ["commit_batch", "abort_batch"])
@pytest.mark.parametrize("kind", list(hostile(*[Receipt(BATCH, "", (Prepared(LogicalOffset(0), LogicalOffset(0)),))] * 2)))  # fmt: skip # noqa: E501
def test_what_is_not_the_callers_is_refused_whole(
    broker: EmbeddedBroker, alice: Transactions, mallory: Transactions, call: str, kind: str
) -> None:
    others = prepare(alice, BATCH, 1, b"row")
    own = prepare(mallory, BATCH, 2, b"m", topic="mal")
    before = broker.reader.queue_range(OP_TOPIC, 0)

    with pytest.raises((UnknownTransactionError, RequestError)) as refusal:
        getattr(mallory, call)(BATCH, hostile(own, others)[kind])

    assert "alice" not in str(refusal.value)
    assert broker.reader.queue_range(OP_TOPIC, 0) == before
    assert visible(broker, "orders") == visible(broker, "mal") == []
    assert not alice.commit_batch(BATCH, [others]).is_repeat
    assert visible(broker, "orders") == [b"row"]


def test_a_right_that_was_taken_away_is_missed_at_the_decision(
    broker: EmbeddedBroker, alice: Transactions
) -> None:
    receipt = prepare(alice, BATCH, 1, b"row")

    with pytest.raises(PermissionDeniedError):
        user(broker, "alice", "mal").commit_batch(BATCH, [receipt])

    assert visible(broker, "orders") == []


@pytest.mark.parametrize(
    "attempt",
    ["", "query:q#", "delay#1", "x\x02TAGS\x01delay#1", "a" * 20, "F" * 21, "G" * 20, None, 7],
)
def test_an_attempt_has_the_one_form_that_clients_make(alice: Transactions, attempt: str) -> None:
    messages = outgoing("orders", [b"row"], attempt, queues=1)

    with pytest.raises(RequestError, match="no attempt's id"):
        alice.prepare_batch(BATCH, attempt, messages, is_first=True)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("other", [BATCH, NEXT])
def test_an_attempt_belongs_to_one_user_and_batch(
    broker: EmbeddedBroker,
    alice: Transactions,
    mallory: Transactions,
    other: BatchRef,
    is_first: bool,
) -> None:
    receipt = prepare(alice, BATCH, 1, b"row")

    with pytest.raises(UnknownTransactionError):
        prepare(mallory, other, 1, b"m", topic="mal", is_first=is_first)
    with pytest.raises(UnknownTransactionError):
        prepare(alice, NEXT, 1, b"next", is_first=is_first)

    assert broker.transactions.check_back().rolled_back == 0
    assert not alice.commit_batch(BATCH, [receipt]).is_repeat


@pytest.mark.parametrize("name", ["HALF_BLOCK", "PREPARED_BY"])
@pytest.mark.parametrize("size", [10, 1 << 15], ids=["in-a-block", "larger-than-a-block"])
def test_a_message_can_not_pass_for_a_block(
    broker: EmbeddedBroker, alice: Transactions, name: str, size: int
) -> None:
    plain = outgoing("orders", [b"x" * size], attempt_id(1), queues=1)
    text = plain.property_texts[0].as_py() + f"{name}\x011\x02".encode()
    forged = replace(plain, properties=type(plain.property_texts).from_pandas([text]))

    with pytest.raises(IllegalMessageError, match=name):
        alice.prepare_batch(BATCH, attempt_id(1), forged, is_first=True)

    assert visible(broker, "orders") == []


def test_keys_of_another_attempt_are_refused(alice: Transactions) -> None:
    messages = outgoing("orders", [b"row"], attempt_id(7), queues=1)

    with pytest.raises(IllegalMessageError, match="does not begin with the attempt"):
        alice.prepare_batch(BATCH, attempt_id(1), messages, is_first=True)


@pytest.mark.parametrize(
    "batch",
    [
        BatchRef("", "", 0),
        BatchRef("o" * 1025, "", 0),
        BatchRef("o", "n" * 1025, 0),
        BatchRef("o", "", -1),
        BatchRef("\N{GRINNING FACE}" * 1024, "", 0),
        BatchRef(chr(0xD800), "", 0),
        BatchRef("o", chr(0xDFFF), 0),
        BatchRef(cast("str", None), "", 0),
        BatchRef("o", cast("str", 7), 0),
        BatchRef("o", "", cast("int", "1")),
        BatchRef("o", "", cast("int", 1.0)),
        BatchRef("o", "", True),
    ],
)
def test_a_batch_has_a_name_that_can_be_stored(alice: Transactions, batch: BatchRef) -> None:
    with pytest.raises(RequestError, match="can't be"):
        alice.commit_batch(batch, [])


# What the journal holds beside decisions


def journal(broker: EmbeddedBroker, *records: BatchAttempt | Decision) -> None:
    """Write records of the journal as a version before this one did, or as an attacker might."""
    messages = DecisionLookup(broker.reader).records(
        records, START_MS, broker.writer.settings.store_host
    )
    broker.writer.append(Batch.of_messages(messages))


def test_a_decision_is_found_whatever_else_has_its_tag(
    broker: EmbeddedBroker, alice: Transactions
) -> None:
    alice.commit_batch(BATCH, [prepare(alice, BATCH, 1, b"row")], run="first")
    journal(broker, BatchAttempt(replace(BATCH, owner="x"), "query:q#"))

    again = alice.commit_batch(BATCH, [prepare(alice, BATCH, 2, b"row")])

    assert again == BatchOutcome(is_repeat=True, run="first")


@pytest.mark.parametrize("body", [b"oops", b"{}", b"[]", b'{"kind":"decision"}', b"\xff"])
def test_a_record_that_makes_no_sense_hurts_nobody(
    broker: EmbeddedBroker, alice: Transactions, body: bytes
) -> None:
    alice.commit_batch(BATCH, [prepare(alice, BATCH, 1, b"row")], run="first")
    [forged] = [
        DecisionLookup(broker.reader).records(
            [Decision(replace(BATCH, number=99), "evil")], START_MS, b"\x7f\x00\x00\x01\0\0\0\0"
        )
    ]
    bodies = type(forged.bodies).from_pandas([body])
    broker.writer.append(Batch.of_messages(replace(forged, bodies=bodies)))

    assert alice.commit_batch(BATCH, [prepare(alice, BATCH, 2, b"row")]).is_repeat
    assert not alice.commit_batch(NEXT, [prepare(alice, NEXT, 3, b"next")]).is_repeat


def test_what_was_decided_without_a_user_is_known_to_all(
    broker: EmbeddedBroker, alice: Transactions
) -> None:
    broker.transactions.commit_batch(BATCH, [prepare(broker.transactions, BATCH, 1, b"row")])
    half_done = prepare(broker.transactions, NEXT, 2, b"old")

    repeat = alice.commit_batch(BATCH, [prepare(alice, BATCH, 3, b"row")])
    finished = alice.commit_batch(NEXT, [half_done])

    assert (repeat.is_repeat, finished.is_repeat) == (True, False)
    assert visible(broker, "orders") == [b"row", b"old"]


def test_who_opens_the_files_knows_what_users_decided(
    broker: EmbeddedBroker, alice: Transactions
) -> None:
    alice.commit_batch(BATCH, [prepare(alice, BATCH, 1, b"row")])
    left = prepare(alice, NEXT, 2, b"next")

    again = prepare(broker.transactions, BATCH, 3, b"row")
    assert broker.transactions.commit_batch(BATCH, [again]).is_repeat
    assert not broker.transactions.commit_batch(NEXT, [left]).is_repeat
    assert alice.commit_batch(NEXT, [prepare(alice, NEXT, 4, b"next")]).is_repeat
    assert visible(broker, "orders") == [b"row", b"next"]


# Streams and their fingerprints


@pytest.mark.parametrize(
    ("number", "fingerprint", "conflict", "expected"),
    [
        (5, "f", "refuse", "repeat"),
        (5, "", "refuse", "repeat"),
        (5, "g", "refuse", "refused"),
        (5, "g", "repeat", "repeat"),
        (5, "g", "write", "written"),
        (4, "f", "refuse", "refused"),
        (4, "f", "repeat", "repeat"),
        (4, "f", "write", "written"),
        (6, "g", "refuse", "written"),
    ],
)
def test_a_batch_is_a_repeat_only_if_it_is_the_same(
    broker: EmbeddedBroker, number: int, fingerprint: str, conflict: str, expected: str
) -> None:
    transactions = broker.transactions
    first = prepare(transactions, BATCH, 1, b"row")
    transactions.commit_batch(BATCH, [first], fingerprint="f", run="r")
    batch = replace(BATCH, number=number)
    second = prepare(transactions, batch, 2, b"other")

    def commit() -> str:
        try:
            outcome = transactions.commit_batch(
                batch, [second], fingerprint=fingerprint, conflict=conflict
            )
        except BatchConflictError as error:
            return "refused" if str(number) in str(error) else str(error)
        return "repeat" if outcome.is_repeat else "written"

    transactions.check_back()  # must not roll back what may still be written
    assert commit() == expected
    if expected == "written":
        assert commit() == "repeat"
    assert (b"other" in visible(broker, "orders")) == (expected == "written")


@pytest.mark.parametrize("last", [None, 3, 4])
def test_a_store_older_than_the_checkpoint_is_told(
    broker: EmbeddedBroker, last: int | None
) -> None:
    transactions = broker.transactions
    if last is not None:
        before = replace(BATCH, number=last)
        transactions.commit_batch(before, [prepare(transactions, before, 1)], fingerprint="e")
    receipt = prepare(transactions, BATCH, 2, b"row")

    def commit(previous: int | None) -> BatchOutcome:
        return transactions.commit_batch(BATCH, [receipt], fingerprint="f", previous=previous)

    if last == 4:
        assert not commit(4).is_repeat
    else:
        with pytest.raises(BatchGapError, match="batch 4 comes before it"):
            commit(4)
        assert visible(broker, "orders") == []
        assert not commit(None).is_repeat
    assert visible(broker, "orders") == [b"row"]


# Single messages


def single(transactions: Transactions, group: str = "g") -> HalfMessage:
    return transactions.prepare("orders", b"secret", group=group, queue_id=0)


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
@pytest.mark.parametrize(
    "change",
    [
        {"topic": "mal"},
        {"queue_id": 1},
        {"transaction_id": "x"},
        {"group": "h"},
        *({"half_offset": LogicalOffset(number)} for number in NUMBERS if number),
        *({"physical_offset": number} for number in NUMBERS if number),
    ],
    ids=str,
)
def test_a_handle_that_differs_in_any_field_is_unknown(
    broker: EmbeddedBroker,
    alice: Transactions,
    change: dict[str, object],
    state: LocalTransactionState,
) -> None:
    half = single(alice)

    with pytest.raises(UnknownTransactionError):
        alice.end(replace(half, **change), state)  # type: ignore[arg-type]  # any field

    alice.end(half, COMMIT)
    assert visible(broker, "orders") == [b"secret"]


@pytest.mark.parametrize("name", ["mallory", "neighbour"])
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK, LocalTransactionState.UNKNOWN])
def test_only_who_prepared_a_message_ends_it(
    broker: EmbeddedBroker, alice: Transactions, name: str, state: LocalTransactionState
) -> None:
    half = single(alice)
    rights = ["orders"] if name == "neighbour" else ["mal"]

    with pytest.raises(UnknownTransactionError):
        user(broker, name, *rights).end(half, state)

    assert visible(broker, "orders") == []
    alice.end(half, COMMIT)
    [properties] = broker.read("orders", columns=["properties"])["properties"].to_pylist()
    assert "PREPARED_BY" not in dict(properties)


@pytest.mark.parametrize("is_decided", [True, False])
def test_the_id_that_keys_of_single_messages_begin_with_is_no_way_to_them(
    broker: EmbeddedBroker, clock: ManualClock, alice: Transactions, is_decided: bool
) -> None:
    """All single ones of a server begin alike, and a client may take that for an attempt's id."""
    neighbour = user(broker, "bob", "orders")
    half = alice.prepare("orders", b"row", group="g")
    attempt = half.transaction_id[:20]
    messages = outgoing("orders", [b"b"], attempt, born_ms=START_MS, queues=1)
    prepared = neighbour.prepare_batch(BATCH, attempt, messages, is_first=True)
    own = Receipt(BATCH, attempt, (prepared,))
    stolen = Prepared(half.half_offset, LogicalOffset(half.half_offset + 1))
    others = Receipt(BATCH, attempt, (stolen,))

    for decide in (neighbour.commit_batch, neighbour.abort_batch):
        for receipts in ([others], [own, others]):
            with pytest.raises(UnknownTransactionError):
                decide(BATCH, receipts)
    if is_decided:
        # What else there is of the attempt counts as dropped now.
        neighbour.commit_batch(BATCH, [own])
    clock.advance(10**7)
    assert broker.transactions.check_back().rolled_back == 0
    alice.end(half, COMMIT)

    assert visible(broker, "orders") == ([b"b", b"row"] if is_decided else [b"row"])


def test_a_half_message_of_a_batch_is_not_ended_singly(
    broker: EmbeddedBroker, alice: Transactions
) -> None:
    receipt = prepare(alice, BATCH, 1, b"row")
    place = broker.reader.entries("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 1)[0]["physical_offset"]
    record = broker.reader.record_at(int(place))
    handle = HalfMessage(
        "orders", 0, record.msg_id, "sink", LogicalOffset(0), PhysicalOffset(record.physical_offset)
    )

    with pytest.raises(UnknownTransactionError):
        alice.end(handle, COMMIT)

    assert not alice.commit_batch(BATCH, [receipt]).is_repeat


def test_a_message_becomes_visible_at_most_once(
    broker: EmbeddedBroker, alice: Transactions
) -> None:
    half = single(alice)
    alice.end(half, COMMIT)

    for state in (COMMIT, ROLLBACK, COMMIT):
        with pytest.raises(IllegalTransitionError):
            alice.end(half, state)

    assert visible(broker, "orders") == [b"secret"]


def test_separators_in_a_group_are_refused(broker: EmbeddedBroker, alice: Transactions) -> None:
    with pytest.raises(BrokerError):
        single(alice, group="g\x02HALF_BLOCK\x011")

    assert visible(broker, "orders") == []


# Check-back and retention


def test_a_progress_beyond_the_queue_is_not_believed(
    broker: EmbeddedBroker, alice: Transactions, caplog: pytest.LogCaptureFixture
) -> None:
    receipt = prepare(alice, BATCH, 1, b"row")
    put_check_back_progress(broker.reader.root, 10**15)

    assert not alice.commit_batch(BATCH, [receipt]).is_repeat
    assert "event=check_back_progress_ignored" in caplog.text


def test_a_progress_that_was_not_believed_never_is(tmp_path: Path) -> None:
    """After a loss of power the file may be newer than the queues, which then grow again."""
    with open_store(tmp_path / "store") as broker:
        broker.create_topic("orders", queues=1)
        broker.transactions.prepare("orders", b"first", group="g")
    put_check_back_progress(tmp_path / "store", 3)
    with open_store(tmp_path / "store") as broker:
        halves = [broker.transactions.prepare("orders", b"row", group="g") for _ in range(4)]
        for half in halves:
            broker.transactions.end(half, COMMIT)

        assert visible(broker, "orders") == [b"row"] * 4


@pytest.mark.parametrize("minutes", [70, 3 * 24 * 60])
def test_a_batch_may_be_silent_for_long(
    broker: EmbeddedBroker, clock: ManualClock, alice: Transactions, minutes: int
) -> None:
    first = prepare(alice, BATCH, 1, b"first")
    for _ in range(20):
        clock.advance(minutes * 60_000 // 20)
        broker.transactions.check_back()

    assert not alice.commit_batch(BATCH, [first, prepare(alice, BATCH, 2, b"last")]).is_repeat
    assert visible(broker, "orders") == [b"first", b"last"]


@pytest.mark.parametrize("hours", [1, 100])
def test_the_patience_with_a_batch_can_be_set(tmp_path: Path, hours: int) -> None:
    clock, settings = ManualClock(), {"transactionBatchTimeOut": hours * 3_600_000}
    with open_with(tmp_path / "store", clock, {**LARGE_FILES, **settings}) as broker:
        broker.create_topic("orders", queues=1)
        receipt = prepare(broker.transactions, BATCH, 1, b"row")
        clock.advance(hours * 3_600_000)
        assert broker.transactions.check_back().given_up == 0
        clock.advance(16 * 30_000)
        assert broker.transactions.check_back().given_up == 1

        with pytest.raises(IllegalTransitionError):
            broker.transactions.commit_batch(BATCH, [receipt])


@pytest.mark.parametrize("born_ms", [0, START_MS - 7_200_000, START_MS + 7_200_000, 1 << 31])
@pytest.mark.parametrize("minutes", [1, 70, 3 * 24 * 60])
def test_a_batch_is_given_up_by_the_brokers_clock_alone(
    broker: EmbeddedBroker, clock: ManualClock, born_ms: int, minutes: int
) -> None:
    transactions = broker.transactions
    receipts = []
    for attempt in range(3):
        name = attempt_id(attempt + 1)
        messages: MessageBatch = outgoing("orders", [b"row"], name, born_ms=born_ms, queues=1)
        prepared = transactions.prepare_batch(BATCH, name, messages, is_first=True)
        receipts.append(Receipt(BATCH, name, (prepared,)))
        for _ in range(3):
            clock.advance(min(minutes, 70) * 60_000 // 4)
            transactions.check_back()

    assert not transactions.commit_batch(BATCH, receipts).is_repeat
    assert visible(broker, "orders") == [b"row"] * 3


def test_retention_finishes_what_is_decided(broker: EmbeddedBroker, alice: Transactions) -> None:
    receipt = prepare(alice, BATCH, 1, b"row")
    open_half = single(alice)
    journal(broker, Decision(BATCH, "r", ((0, receipt.count),), user="alice"))
    broker.send("mal", b"x" * (FILE_BYTES * 3 // 4))
    broker.send("mal", b"x" * (FILE_BYTES * 3 // 4))

    broker.delete_before(FILE_BYTES)

    assert visible(broker, "orders") == [b"row"]
    assert broker.reader.queue_range("RMQ_SYS_TRANS_HALF_TOPIC", 0)[0] > open_half.half_offset
    assert broker.transactions.check_back().waiting == 1  # put back, and still open
    assert not alice.commit_batch(NEXT, [prepare(alice, NEXT, 2, b"next")]).is_repeat


@pytest.mark.parametrize("before", ["nothing", "check-back", "retention", "abort"])
def test_a_loss_is_told_once_and_the_query_goes_on(
    broker: EmbeddedBroker, alice: Transactions, before: str
) -> None:
    receipt = prepare(alice, BATCH, 1, b"row")
    broker.send("mal", b"x" * (FILE_BYTES * 3 // 4))
    broker.send("mal", b"x" * (FILE_BYTES * 3 // 4))
    broker.delete_before(FILE_BYTES)
    journal(broker, Decision(BATCH, "r", ((0, receipt.count),), user="alice"))
    following = prepare(alice, NEXT, 2, b"next")
    if before == "check-back":
        broker.transactions.check_back()
    elif before == "retention":
        # Whoever else comes first tells the log alone.
        broker.transactions.keep_decisions(2 * FILE_BYTES, is_locked=False)
    elif before == "abort":
        # Spark drops what is raised then: the commit that follows has to tell it.
        alice.abort_batch(BATCH, [])

    with pytest.raises(BatchLostError, match=r"batch 5 .* 1 of its 1 half messages"):
        alice.commit_batch(NEXT, [following])

    assert not alice.commit_batch(NEXT, [following]).is_repeat
    assert visible(broker, "orders") == [b"next"]


def test_two_users_of_one_stream_are_both_remembered(
    broker: EmbeddedBroker, alice: Transactions, mallory: Transactions
) -> None:
    alice.commit_batch(BATCH, [prepare(alice, BATCH, 1, b"row")])
    mallory.commit_batch(BATCH, [prepare(mallory, BATCH, 2, b"m", topic="mal")])
    for _ in range(2):
        broker.send("mal", b"x" * (FILE_BYTES * 3 // 4))
    broker.delete_before(FILE_BYTES)

    assert alice.commit_batch(BATCH, [prepare(alice, BATCH, 3, b"row")]).is_repeat
    assert mallory.commit_batch(BATCH, [prepare(mallory, BATCH, 4, b"m", topic="mal")]).is_repeat


def test_an_abort_writes_no_more_than_it_settles(
    broker: EmbeddedBroker, alice: Transactions
) -> None:
    receipt = prepare(alice, BATCH, 1, b"row")
    alice.abort_batch(BATCH, [receipt])
    before = op_count(broker)

    alice.abort_batch(BATCH, [receipt])

    assert op_count(broker) == before
