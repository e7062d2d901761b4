"""What readers see of batches that are committed and rolled back around them, and what is wrong.

Each body says where its message belongs: batch, task, number within the task, and whether it is one
that gets committed. So a look at a topic can be judged by itself, whatever was going on when it was
taken; only what was decided has to be known, and where in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from broker_core.broker.transactions.decision_records import Decision, parse_body
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.property_names import BATCH_TOPIC, REAL_TOPIC

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.api import Broker

TOPIC = "t"
QUEUES = 2
OWNER = "query:q"
COLUMNS = ["queueId", "queueOffset", "physicalOffset", "sysFlag", f"property:{REAL_TOPIC}", "body"]
BODY = np.dtype([("batch", ">u4"), ("number", ">u4"), ("task", ">u2"), ("fate", ">u2")])
_NEVER = np.iinfo(np.int64).max


class Fate(IntEnum):
    """What will become of a message."""

    KEPT = 1
    ROLLED_BACK = 2
    LEFT_OVER = 3


def bodies(batch: int, task: int, count: int, fate: Fate = Fate.KEPT) -> list[bytes]:
    """The messages of one task, to round the queues."""
    made = np.zeros(count, dtype=BODY)
    made["batch"], made["task"], made["fate"] = batch, task, fate
    made["number"] = np.arange(count)
    return [row.tobytes() for row in made]


@dataclass(frozen=True)
class Seen:
    """A look at a topic: every message of every queue, and where in the log batches are decided."""

    queue_ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    places: NDArray[np.int64]
    is_half: NDArray[np.bool_]
    messages: NDArray[np.void]
    decided: Mapping[int, int]

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def of(cls, table: pa.Table, decided: Mapping[int, int]) -> Seen:
        """The look that a table with `COLUMNS` is, sorted by queue and offset."""
        rows = table.sort_by([("queueId", "ascending"), ("queueOffset", "ascending")])
        flags = rows["sysFlag"].to_numpy() & TRANSACTION_MASK
        return cls(
            rows["queueId"].to_numpy().astype(np.int64),
            rows["queueOffset"].to_numpy(),
            rows["physicalOffset"].to_numpy(),
            (flags != SysFlag.COMMIT) | rows[REAL_TOPIC].is_valid().to_numpy(),
            np.frombuffer(b"".join(rows["body"].to_pylist()), dtype=BODY),
            decided,
        )

    def queue(self, queue_id: int) -> bytes:
        """The messages of one queue, one after another."""
        return bytes(self.messages[self.queue_ids == queue_id].tobytes())

    def bodies(self) -> list[bytes]:
        """All messages, sorted."""
        return sorted(row.tobytes() for row in self.messages)


def look(broker: Broker) -> Seen:
    """Read a topic, as far as it goes; then what was decided, for that came before."""
    tables = [broker.read(TOPIC, queue_id, columns=COLUMNS) for queue_id in range(QUEUES)]
    return Seen.of(pa.concat_tables(tables), decisions(broker))


def decisions(broker: Broker) -> dict[int, int]:
    """The batches that are decided, and where in the log their decisions lie."""
    if BATCH_TOPIC not in broker.topics():
        return {}
    found: dict[int, int] = {}
    for row in broker.read(BATCH_TOPIC, 0, columns=["body", "physicalOffset"]).to_pylist():
        record = parse_body(row["body"], row["physicalOffset"])
        if isinstance(record, Decision) and record.batch.owner == OWNER:
            found.setdefault(record.batch.number, row["physicalOffset"])
    return found


def faults(seen: Seen) -> list[str]:
    """What a reader must never see, and sees; one line for each kind of wrong."""
    batches, rows = np.unique(seen.messages["batch"], return_inverse=True)
    limits = np.array([seen.decided.get(batch, _NEVER) for batch in batches.tolist()])[rows]
    wrongs = {
        "a message that nobody commits": seen.messages["fate"] != Fate.KEPT,
        "a half message": seen.is_half,
        "a message whose batch is not decided": limits == _NEVER,
        "a message that lies before its decision": (limits != _NEVER) & (seen.places < limits),
        "an offset out of turn": _is_out_of_turn(seen.queue_ids, seen.offsets),
        "a message out of turn": _is_message_out_of_turn(seen),
    }
    return [_line(what, seen, wrong) for what, wrong in wrongs.items() if wrong.any()]


def changes(before: Seen, now: Seen) -> list[str]:
    """What a later look has lost or changed of an earlier one; it may only have more."""
    return [
        f"queue {queue_id} does not begin with what it was"
        for queue_id in range(QUEUES)
        if not now.queue(queue_id).startswith(before.queue(queue_id))
    ]


def _is_out_of_turn(groups: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where the numbers of a group are not 0, 1, 2 and so on."""
    order = np.argsort(groups, kind="stable")
    _, firsts, rows = np.unique(groups[order], return_index=True, return_inverse=True)
    wrong = np.zeros(len(numbers), dtype=np.bool_)
    wrong[order] = numbers[order] != np.arange(len(numbers)) - firsts[rows]
    return wrong


def _is_message_out_of_turn(seen: Seen) -> NDArray[np.bool_]:
    """Where a queue does not hold the first messages that a task has for it, in their order."""
    batches, tasks, numbers = (
        seen.messages[name].astype(np.int64) for name in ("batch", "task", "number")
    )
    groups = (batches << 16 | tasks) * QUEUES + seen.queue_ids
    is_elsewhere: NDArray[np.bool_] = numbers % QUEUES != seen.queue_ids
    return _is_out_of_turn(groups, numbers // QUEUES) | is_elsewhere


def _line(what: str, seen: Seen, rows: NDArray[np.bool_]) -> str:
    first = int(rows.argmax())
    batch, number, task, _ = seen.messages[first].tolist()
    return (
        f"{what}: batch {batch}, task {task}, number {number}, at queue {seen.queue_ids[first]}, "
        f"offset {seen.offsets[first]}, place {seen.places[first]}; {int(rows.sum())} in all"
    )


def wanted(batches: Sequence[int], tasks: int, count: int) -> list[bytes]:
    """All messages of some batches, sorted: what the last look shows."""
    return sorted(
        body for batch in batches for task in range(tasks) for body in bodies(batch, task, count)
    )
