"""Handlers of transactions: what a request may name."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from broker_core.errors import IllegalMessageError, RequestError, UnavailableError
from broker_core.service.auth.user_rights import ANYONE
from broker_core.service.core import transactions
from broker_core.service.core.transactions import TransactionHandlers
from broker_core.service.group_commit import GroupCommit
from broker_core.types import BatchRef, LogicalOffset, Prepared, Receipt
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.methods import Limits
from broker_core.wire.core.transactions import pack_receipt, unpack_receipt


@pytest.mark.parametrize("handler", ["commit_batch", "abort_batch"])
@pytest.mark.parametrize(
    "receipts",
    [
        [pb.Receipt()] * 4,
        [pb.Receipt(prepared=[pb.Prepared()] * 6)],
        [pb.Receipt(prepared=[pb.Prepared()] * 2)] * 3,
    ],
    ids=["receipts", "ranges of one", "ranges of all"],
)
def test_a_decision_that_names_too_much_is_refused_before_anything_is_made_of_it(
    monkeypatch: pytest.MonkeyPatch, handler: str, receipts: list[pb.Receipt]
) -> None:
    monkeypatch.setattr(transactions, "MAX_RECEIPTS", 3)
    monkeypatch.setattr(transactions, "MAX_RANGES", 5)
    monkeypatch.delattr(transactions, "unpack_receipt")
    handlers = object.__new__(TransactionHandlers)  # it must need nothing of a server

    with pytest.raises(RequestError, match="limits are 3 and 5"):
        getattr(handlers, handler)(pb.Decide(receipts=receipts), None)


BATCH = BatchRef("query:q", "", 1)


def test_ranges_of_nothing_are_neither_sent_nor_taken() -> None:
    parts = [Prepared(LogicalOffset(start), LogicalOffset(end)) for start, end in ((3, 3), (3, 5))]
    packed = pack_receipt(Receipt(BATCH, "A", tuple(parts)))
    assert len(packed.prepared) == 1
    packed.prepared.extend([pb.Prepared(start=9, end=9), pb.Prepared(start=9, end=8)])

    found = unpack_receipt(packed, BATCH)

    # What is the wrong way round stays: it is refused.
    assert [(part.start, part.end) for part in found.prepared] == [(3, 5), (9, 8)]


def test_no_object_is_made_of_receipts_that_name_nothing() -> None:
    batch = pb.Batch(owner="query:q", number=1)
    empty = pb.Receipt(batch=batch, attempt="A")
    own = pb.Receipt(batch=batch, attempt="B", prepared=[pb.Prepared(start=1, end=2)])
    request = pb.Decide(batch=batch, receipts=[empty] * 3 + [own] + [empty] * 3)

    assert [each.attempt for each in transactions._receipts(request, BATCH)] == ["B"]
    request.receipts.append(pb.Receipt(batch=pb.Batch(owner="query:q", number=2)))
    with pytest.raises(RequestError, match="can't be part of batch 1"):
        transactions._receipts(request, BATCH)


@pytest.mark.parametrize(
    "request_",
    [
        pb.PrepareMessage(properties={str(number): "x" for number in range(8192)}),
        pb.PrepareMessage(keys=["k"] * 16_384),
        pb.PrepareMessage(
            keys=["k"] * 8192, properties={str(number): "" for number in range(4096)}
        ),
    ],
    ids=["properties", "keys", "both"],
)
def test_properties_that_can_not_be_stored_are_refused_by_their_number(
    request_: pb.PrepareMessage,
) -> None:
    handlers: Any = object.__new__(TransactionHandlers)  # it must need nothing of a server

    with pytest.raises(IllegalMessageError, match="all of them can have 32767 bytes"):
        handlers.prepare_message(request_, None)


class Late:
    """A call whose time is over: it gets what is free."""

    identity, deadline_s = ANYONE, 0.0

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        ("prepare_message", pb.PrepareMessage(topic="orders", body=bytes(500))),
        ("commit_batch", pb.Decide(receipts=[pb.Receipt()] * 3)),
        ("abort_batch", pb.Decide(receipts=[pb.Receipt(prepared=[pb.Prepared()] * 2)])),
    ],
)
def test_requests_of_one_part_take_room(handler: str, request_: Any) -> None:
    commit: Any = GroupCommit(None, 1000, monotonic=lambda: 1.0)  # type: ignore[arg-type]  # unused
    handlers: Any = TransactionHandlers(None, Limits(), commit, None)  # type: ignore[arg-type]

    with commit.room(900, None), pytest.raises(UnavailableError, match="900 bytes of requests"):
        getattr(handlers, handler)(request_, Late())
