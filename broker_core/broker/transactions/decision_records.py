"""Decisions: the records that make a batch of half messages committed, as one.

They lie in RMQ_SYS_TRANS_BATCH_TOPIC, queue 0, as ordinary messages, so that recovery, replication
and Apache's broker keep them like any other. Bodies are JSON; TAGS says what they are about:

    attempt   {"kind": "attempt", "owner": o, "name": n, "batch": 7, "attempt": a}      TAGS = a
    decision  {"kind": "decision", "owner": o, "name": n, "batch": 7, "run": r,
               "ranges": [[start, end], ...], "since": s, "keep": true}                 TAGS = o#n
    done      {"kind": "done", "owner": o, "name": n, "batch": 7, "run": r,
               "keep": true}                                                            TAGS = o#n

    delivered {"kind": "delivered", "level": 3, "offset": 120}                      TAGS = delay#3

An attempt is written together with its first half messages, whose unique keys all begin with its
id. A decision names half messages by their offsets. From the moment it is in the log the batch is
*decided*, that is, committed: everything the decision names will become visible, even if another
process has to finish it, and nothing else of this batch or an earlier one ever will. `done` follows
when all of it is visible. `since` is where the op queue stood before any of the half messages was
there. (A half message is *settled*, not decided: op.py.) `delivered` says how far delayed messages
of a level are delivered (delay/delivery.py).

One owner's batches are decided in the order of their numbers, so the newest decision of an owner
and name is all that must be known of its past. Retention carries it along while `keep` holds: a
batch of an owner that can't come back need not be remembered once it is done.

decision_lookup.py finds these records and makes the messages to append.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from broker_core.codec.properties.text import format_properties
from broker_core.codec.property_names import KEYS, TAGS, UNIQ_KEY
from broker_core.errors import CorruptRecordError
from broker_core.types import BatchRef

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.types import Receipt

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BatchAttempt:
    """One try at a part of a batch; `id` begins the unique keys of its half messages."""

    batch: BatchRef
    id: str

    @property
    def tag(self) -> str:
        """The tag it is found by."""
        return self.id

    def body(self) -> bytes:
        """Return the record's body."""
        return _json({"kind": "attempt", **_batch_fields(self.batch), "attempt": self.id})


@dataclass(frozen=True, slots=True)
class Decision:
    """A committed batch; `is_done` once all of it is visible, and then `ranges` are not needed."""

    batch: BatchRef
    run: str
    ranges: Ranges = ()
    since: int = 0
    keep: bool = True
    is_done: bool = False

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
        """Return True if a batch comes too late: this decision is about it or a later one.

        Its commit is then a repeat and changes nothing (`BatchOutcome.is_repeat`).
        """
        return self.batch.number >= batch.number

    def body(self) -> bytes:
        """Return the record's body."""
        fields = {**_batch_fields(self.batch), "run": self.run, "keep": self.keep}
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


JournalRecord = BatchAttempt | Decision | Delivered


def delay_tag(level: int) -> str:
    """Return the tag of records about a delay level."""
    return f"delay#{level}"


def stream_tag(batch: BatchRef) -> str:
    """Return the tag of all decisions of one owner and name; free of spaces and separators.

    >>> stream_tag(BatchRef("query:1", "to audit", 7))
    'query:1#to%20audit'
    """
    return f"{quote(batch.owner, safe=':-')}#{quote(batch.name, safe=':-')}"


def record_properties(record: JournalRecord, unique_key: str) -> bytes:
    """Return the properties text of a record, found by tag in its queue and by key in the index."""
    # The journal searches tags alone; by the keys a query finds the records in the index.
    keys = [record.tag]
    if isinstance(record, Decision):
        keys.append(f"{record.tag}#{record.batch.number}")
    return format_properties({UNIQ_KEY: unique_key, KEYS: " ".join(keys), TAGS: record.tag})


def parse_body(body: bytes, physical_offset: int) -> JournalRecord:
    """Read a record's body back; CorruptRecordError if it is none."""
    try:
        found: dict[str, Any] = json.loads(body)
        if found["kind"] == "delivered":
            return Delivered(int(found["level"]), int(found["offset"]))
        batch = BatchRef(str(found["owner"]), str(found["name"]), int(found["batch"]))
        if found["kind"] == "attempt":
            return BatchAttempt(batch, str(found["attempt"]))
        is_done = found["kind"] == "done"
        return Decision(
            batch,
            run=str(found["run"]),
            ranges=tuple((int(start), int(end)) for start, end in found.get("ranges", ())),
            since=int(found.get("since", 0)),
            keep=bool(found["keep"]),
            is_done=is_done,
        )
    except (ValueError, KeyError, TypeError) as error:
        message = (
            f"The record of a batch at physical offset {physical_offset} makes no sense ({error}). "
            "Run `rocketmq-broker check` on the store."
        )
        raise CorruptRecordError(message, "", physical_offset) from error


def decide(batch: BatchRef, receipts: Iterable[Receipt], run: str, *, keep: bool) -> Decision:
    """Return the decision that names all that the receipts stand for, in their order."""
    # In the order of the receipts: it becomes the order of the copies in their queues.
    prepared = [part for receipt in receipts for part in receipt.prepared if part.end > part.start]
    since = min((part.since for part in prepared), default=0)
    ranges = tuple((int(part.start), int(part.end)) for part in prepared)
    return Decision(batch, run, _joined(ranges), int(since), keep)


def _joined(ranges: Ranges) -> Ranges:
    """Join ranges that continue the one before them; their order stays."""
    found: list[tuple[int, int]] = []
    for start, end in ranges:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return tuple(found)


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


def _batch_fields(batch: BatchRef) -> dict[str, Any]:
    return {"owner": batch.owner, "name": batch.name, "batch": batch.number}


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
