"""Ownership: what is prepared belongs to a user, a batch and an attempt, and stays theirs.

Problem. A receipt is a list of offsets in the one half queue that all users share, and a client
sends it back. Numbers can be counted and guessed, so nothing in a receipt or a handle may be
believed that the store does not say too.

Invariants.

1. Who prepared a half message is in the log, put there by the broker: in the attempt record of a
   batch's half messages (decision_records.py), in the property PREPARED_BY of a single one
   (half.py). An empty name is nobody's: a store that is opened by its files, a server without
   credentials, or a version that did not write names.
2. A decision names only half messages of the batch that it decides, each under the attempt that
   its receipt names, all prepared by one user. That user is the decision's. A caller decides what
   is their own, or nobody's; a caller without a name (who can write the files) decides all.
3. A caller needs the right to publish to every topic that the half messages are for when they are
   decided, not only when they were prepared.
4. A refusal says the same whether such half messages exist or not.
5. The cost of a request is bounded by its own size and by the half queue: ranges are compared with
   it before a number is made of them.

Rejected: sealed receipts. An official client sends plain offsets, so the record has to decide
anyway, and a seal would be a second answer to the same question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from broker_core.broker.admission.numbers import require_number
from broker_core.broker.transactions.decision_records import offsets_in, stream_tag
from broker_core.broker.transactions.half import HALF_QUEUE
from broker_core.broker.transactions.unpack import topics_of_halves
from broker_core.codec.decode import property_columns
from broker_core.codec.ids import MAKER_CHARS
from broker_core.codec.legal_names import is_text
from broker_core.codec.property_names import HALF_TOPIC, TRANSACTION_ID, UNIQ_KEY
from broker_core.errors import RequestError, UnknownTransactionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.broker.transactions.decision_lookup import DecisionLookup
    from broker_core.broker.transactions.settle import HalfSettler
    from broker_core.store.reader import StoreReader
    from broker_core.types import BatchRef, Receipt

Permit = Callable[[Collection[str]], None]
"""Raises PermissionDeniedError unless the caller may publish to all of these topics."""

MAX_NAME_CHARS = 1024
MAX_TAG = 8192
"""Characters of a stream's tag: it stands twice in the properties of a decision."""
MAX_NUMBER = (1 << 63) - 1
MAX_RECEIPTS = 100_000
"""Receipts of one request: one for each task of a batch."""
MAX_RANGES = 200_000
"""Ranges that one request may name: a task makes one of 250,000 rows or 48 MiB, or of its rest."""

_ATTEMPT = re.compile(rf"[0-9A-F]{{{MAKER_CHARS}}}")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever asks: a user's name, what they may publish to, and if they administer the broker.

    Without a name it is somebody who can do everything: who opened the store's files, or any
    client of a server without credentials. `permit` None permits every topic.
    """

    user: str = ""
    permit: Permit | None = None
    is_admin: bool = False

    def may_settle(self, owner: str) -> bool:
        """Tell whether what a user prepared may be decided by this caller."""
        return not self.user or owner in ("", self.user)

    def require_topics(self, topics: Collection[str]) -> None:
        """Raise PermissionDeniedError unless the caller may publish to all of these topics."""
        if self.permit is not None:
            self.permit(topics)


NOBODY_ELSE = Caller()
"""The caller of an embedded broker: the directory's rights are all that protects its store."""


def check_attempt(attempt: str) -> str:
    """Return an attempt's id if it has the form that UniqueIds gives it; else RequestError."""
    if not is_text(attempt) or not _ATTEMPT.fullmatch(attempt):
        message = (
            f"{ascii(attempt)[:64]} is no attempt's id: it has {MAKER_CHARS} digits 0-9, A-F, "
            "those that the unique keys of its messages begin with."
        )
        raise RequestError(message)
    return attempt


def check_batch(batch: BatchRef) -> BatchRef:
    """Return a batch's name if it can be stored; else RequestError."""
    for what in (batch.owner, batch.name):
        if not is_text(what):
            message = f"A batch's owner or name can't be {ascii(what)[:64]}, which is no text."
            raise RequestError(message)
    require_number(batch.number, "A batch's number")
    longest = max(len(batch.owner), len(batch.name))
    is_nameable = batch.owner and longest <= MAX_NAME_CHARS and len(stream_tag(batch)) <= MAX_TAG
    if not is_nameable or not 0 <= batch.number <= MAX_NUMBER:
        message = (
            f"Batch {batch.number} of owner {batch.owner[:64]!r}, name {batch.name[:64]!r}, can't "
            f"be: owners have 1 to {MAX_NAME_CHARS} characters, names at most {MAX_NAME_CHARS} "
            f"(both together {MAX_TAG} when they are escaped as in a URL), and numbers are not "
            "negative."
        )
        raise RequestError(message)
    return batch


@dataclass(frozen=True)
class Claim:
    """Half messages that receipts name, checked: their offsets in order, and who prepared them."""

    offsets: NDArray[np.int64]
    owner: str


class Claims:
    """Checks of what receipts name, against the half queue and the journal. Not thread-safe."""

    def __init__(self, reader: StoreReader, journal: DecisionLookup, settler: HalfSettler) -> None:
        self._reader = reader
        self._journal = journal
        self._settler = settler

    def claim(self, batch: BatchRef, receipts: Sequence[Receipt], caller: Caller) -> Claim:
        """Return what receipts of a batch name, if all of it is the caller's to decide.

        UnknownTransactionError for anything else, with nothing said of what lies there.
        """
        check_batch(batch)
        wanted = [receipt for receipt in receipts if receipt.count]
        for receipt in receipts:
            if receipt.batch != batch:
                message = f"A receipt of {receipt.batch} can't be part of {batch}."
                raise RequestError(message)
        ranges = self._ranges(batch, receipts)
        owners = {self._owner(batch, receipt, caller) for receipt in wanted}
        if len(owners) > 1:
            raise _unknown(batch)
        for receipt in wanted:
            self._require_keys(batch, receipt)
        offsets = offsets_in(ranges)
        if caller.permit is not None and len(offsets):
            caller.require_topics(self.topics(offsets))
        return Claim(offsets, owners.pop() if owners else caller.user)

    def _ranges(self, batch: BatchRef, receipts: Sequence[Receipt]) -> list[tuple[int, int]]:
        """Return the ranges of all receipts, in order, if the half queue holds them once each."""
        count = sum(len(receipt.prepared) for receipt in receipts)
        if count > MAX_RANGES:
            message = f"{batch} names {count} ranges of half messages, {MAX_RANGES} is the limit."
            raise RequestError(message)
        start, end = self._reader.queue_range(HALF_TOPIC, HALF_QUEUE)
        ranges = [
            (int(part.start), int(part.end)) for receipt in receipts for part in receipt.prepared
        ]
        if any(first > last for first, last in ranges):
            raise _unknown(batch)
        named = [(first, last) for first, last in ranges if first < last]
        in_order = sorted(named)
        overlaps = any(second[0] < first[1] for first, second in pairwise(in_order))
        if named and (in_order[0][0] < start or max(last for _, last in named) > end or overlaps):
            raise _unknown(batch)
        return named

    def _owner(self, batch: BatchRef, receipt: Receipt, caller: Caller) -> str:
        """Return who prepared a receipt's attempt, if it is of this batch and the caller's."""
        # What no attempt is called would be looked for, and remembered: a request has megabytes.
        is_name = _ATTEMPT.fullmatch(receipt.attempt) is not None
        found = self._journal.attempt(receipt.attempt) if is_name else None
        if found is None or found.batch != batch or not caller.may_settle(found.user):
            raise _unknown(batch)
        return found.user

    def _require_keys(self, batch: BatchRef, receipt: Receipt) -> None:
        """Raise unless every half message of a receipt has a key of the receipt's attempt."""
        offsets = offsets_in((int(part.start), int(part.end)) for part in receipt.prepared)
        for frames in self._settler.frames(offsets):
            found = property_columns(frames, [UNIQ_KEY, TRANSACTION_ID])
            is_own = pc.starts_with(found[UNIQ_KEY], receipt.attempt).fill_null(False)
            # A single one is of no batch, whatever its key begins with: those of one broker all
            # begin alike, and a client may take that beginning for an attempt's id.
            is_single = found[TRANSACTION_ID].is_valid()
            if not pc.all(pc.and_not(is_own, is_single), min_count=0).as_py():
                raise _unknown(batch)

    def topics(self, offsets: NDArray[np.int64]) -> set[str]:
        """Return the topics that half messages are for, of blocks those of all they hold."""
        found: set[str] = set()
        for portion in self._settler.split(offsets):
            for frames in self._settler.frames(portion):
                found |= topics_of_halves(frames)
        return found


def _unknown(batch: BatchRef) -> UnknownTransactionError:
    """Return the one error for half messages that are not there, or not the caller's."""
    message = (
        f"The receipts of {batch} name half messages that the half queue does not hold for it, "
        "under their attempts and for this user. Nothing was written; prepare the batch again."
    )
    return UnknownTransactionError(message)
