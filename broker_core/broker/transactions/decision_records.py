"""Decisions: the records that make a batch of half messages committed, as one.

They lie in RMQ_SYS_TRANS_BATCH_TOPIC, queue 0, as ordinary messages, so that recovery, replication
and Apache's broker keep them like any other. Bodies are JSON; TAGS says what they are about:

    attempt   {"kind": "attempt", "owner": o, "name": n, "batch": 7, "user": u,
               "attempt": a}                                                            TAGS = a
    decision  {"kind": "decision", "owner": o, "name": n, "batch": 7, "user": u, "run": r,
               "fingerprint": f, "ranges": [[start, end], ...], "since": s,
               "keep": true}                                                            TAGS = o#n
    done      {"kind": "done", "owner": o, "name": n, "batch": 7, "user": u, "run": r,
               "fingerprint": f, "keep": true}                                          TAGS = o#n

    delivered {"kind": "delivered", "level": 3, "offset": 120}                      TAGS = delay#3
    forgotten {"kind": "forgotten", "keys": k, "numbers": n}                    TAGS = ##forgotten

`user` is who prepared the half messages (ownership.py), and then a property PREPARED_BY says it
too; `fingerprint` tells a batch from another one with its number. Both are left out if they are
empty, as in records of versions that did not know them. An attempt's id is made of 20 hexadecimal
digits, a stream's tag has one `#`, that of forgotten streams has two, and no owner's tag begins
with `delay#`: the kinds can't be mistaken for each other.

An attempt is written together with its first half messages, whose unique keys all begin with its
id. A decision names half messages by their offsets. From the moment it is in the log the batch is
*decided*, that is, committed: everything the decision names will become visible, even if another
process has to finish it, and nothing else of this batch or an earlier one ever will. `done` follows
when all of it is visible. `since` is where the op queue stood before any of the half messages was
there. (A half message is *settled*, not decided: op.py.) `delivered` says how far delayed messages
of a level are delivered (delay/delivery.py). `forgotten` keeps a few bytes each of streams that
retention no longer carries along (forgotten.py).

One owner's batches are decided in the order of their numbers, so the newest decision of an owner
and name is all that must be known of its past. Retention carries it along while `keep` holds, for
a time that is set (decision_retention.py): a batch of an owner that can't come back need not be
remembered once it is done.

decision_lookup.py finds these records and makes the messages to append.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from broker_core.broker.transactions.forgotten import ForgottenStreams
from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import KEYS, PREPARED_BY, TAGS, UNIQ_KEY
from broker_core.errors import CorruptRecordError
from broker_core.types import BatchRef

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BatchAttempt:
    """One try at a part of a batch; `id` begins the unique keys of its half messages."""

    batch: BatchRef
    id: str
    user: str = ""

    @property
    def tag(self) -> str:
        """The tag it is found by."""
        return self.id

    def body(self) -> bytes:
        """Return the record's body."""
        fields = _batch_fields(self.batch, self.user)
        return _json({"kind": "attempt", **fields, "attempt": self.id})


@dataclass(frozen=True, slots=True)
class Decision:
    """A committed batch; `is_done` once all of it is visible, and then `ranges` are not needed.

    `is_forgotten`: only the number is still known, of this batch or a later one (forgotten.py).
    Such a decision is not in the log.
    """

    batch: BatchRef
    run: str
    ranges: Ranges = ()
    since: int = 0
    keep: bool = True
    is_done: bool = False
    user: str = ""
    fingerprint: str = ""
    is_forgotten: bool = False

    @property
    def tag(self) -> str:
        """The tag it is found by; one for all batches of an owner and name."""
        return stream_tag(self.batch)

    @property
    def count(self) -> int:
        """The number of half messages that it names."""
        return sum(end - start for start, end in self.ranges)

    def names(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which of these half messages it names."""
        named = np.zeros(len(offsets), dtype=np.bool_)
        for start, end in self.ranges:
            named |= (offsets >= start) & (offsets < end)
        return named

    def supersedes(self, batch: BatchRef) -> bool:
        """Return True if a batch comes too late: this decision is about it or a later one."""
        return self.batch.number >= batch.number

    def is_of(self, batch: BatchRef, fingerprint: str) -> bool:
        """Return True if this decision is about the very batch that has such a fingerprint.

        A number below the newest is never a repeat: what writes batches repeats its last one only.
        Without a fingerprint, here or there, the number alone tells.
        """
        is_same = not (self.fingerprint and fingerprint) or self.fingerprint == fingerprint
        return self.batch.number == batch.number and is_same

    def body(self) -> bytes:
        """Return the record's body."""
        fields = {**_batch_fields(self.batch, self.user), "run": self.run, "keep": self.keep}
        if self.fingerprint:
            fields["fingerprint"] = self.fingerprint
        if self.is_done:
            # Without ranges: retention carries this record along for as long as its owner lives.
            return _json({"kind": "done", **fields})
        return _json({"kind": "decision", **fields, "ranges": self.ranges, "since": self.since})


@dataclass(frozen=True, slots=True)
class Delivered:
    """The word that all delayed messages of a level before `offset` are delivered."""

    level: int
    offset: int

    @property
    def tag(self) -> str:
        """The tag it is found by."""
        return delay_tag(self.level)

    def body(self) -> bytes:
        """Return the record's body."""
        return _json({"kind": "delivered", "level": self.level, "offset": self.offset})


JournalRecord = BatchAttempt | Decision | Delivered | ForgottenStreams
_DELAY, _ESCAPED_DELAY = "delay", "%64elay"


def delay_tag(level: int) -> str:
    """Return the tag of records about a delay level."""
    return f"{_DELAY}#{level}"


def stream_tag(batch: BatchRef) -> str:
    """Return the tag of all decisions of one owner and name; free of spaces and separators.

    >>> stream_tag(BatchRef("query:1", "to audit", 7))
    'query:1#to%20audit'
    """
    owner = quote(batch.owner, safe=":-")
    if owner == _DELAY:
        owner = _ESCAPED_DELAY
    return f"{owner}#{quote(batch.name, safe=':-')}"


def record_properties(record: JournalRecord, unique_key: str) -> bytes:
    """Return the properties text of a record, found by tag in its queue and by key in the index."""
    # The journal searches tags alone; by the keys a query finds the records in the index.
    keys = [record.tag]
    if isinstance(record, Decision):
        keys.append(f"{record.tag}#{record.batch.number}")
    said = {UNIQ_KEY: unique_key, KEYS: " ".join(keys), TAGS: record.tag}
    if isinstance(record, BatchAttempt | Decision) and record.user:
        said[PREPARED_BY] = record.user
    return format_properties(said)


def parse_body(body: bytes, physical_offset: int) -> JournalRecord:
    """Read a record's body back; CorruptRecordError if it is none."""
    try:
        found: dict[str, Any] = json.loads(body)
        if found["kind"] == "delivered":
            return Delivered(int(found["level"]), int(found["offset"]))
        if found["kind"] == "forgotten":
            return ForgottenStreams.parse(found)
        batch = BatchRef(str(found["owner"]), str(found["name"]), int(found["batch"]))
        user = str(found.get("user", ""))
        if found["kind"] == "attempt":
            return BatchAttempt(batch, str(found["attempt"]), user)
        is_done = {"decision": False, "done": True}[found["kind"]]
        return Decision(
            batch,
            run=str(found["run"]),
            ranges=tuple((int(start), int(end)) for start, end in found.get("ranges", ())),
            since=int(found.get("since", 0)),
            keep=bool(found["keep"]),
            is_done=is_done,
            user=user,
            fingerprint=str(found.get("fingerprint", "")),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        message = (
            f"The record of a batch at physical offset {physical_offset} makes no sense ({error}). "
            "Run `rocketmq-broker check` on the store."
        )
        raise CorruptRecordError(message, "", physical_offset) from error


def offsets_in(ranges: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """Return all half messages in some ranges, in the order of the ranges."""
    parts = [np.arange(start, end, dtype=np.int64) for start, end in ranges]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def runs_of(offsets: NDArray[np.int64]) -> Ranges:
    """Return offsets as ranges, in their order.

    >>> runs_of(np.array([3, 4, 5, 9, 8]))
    ((3, 6), (9, 10), (8, 9))
    """
    if not len(offsets):
        return ()
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    firsts = np.concatenate([[0], breaks + 1])
    lasts = np.concatenate([breaks, [len(offsets) - 1]])
    starts, ends = offsets[firsts].tolist(), (offsets[lasts] + 1).tolist()
    return tuple(zip(starts, ends, strict=True))


def _batch_fields(batch: BatchRef, user: str) -> dict[str, Any]:
    fields = {"owner": batch.owner, "name": batch.name, "batch": batch.number}
    return {**fields, "user": user} if user else fields


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
