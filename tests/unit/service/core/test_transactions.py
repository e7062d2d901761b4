"""Handlers of transactions: what a request may name."""

from __future__ import annotations

import pytest

from broker_core.errors import RequestError
from broker_core.service.core import transactions
from broker_core.service.core.transactions import TransactionHandlers
from broker_core.wire.core import broker_pb2 as pb


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
