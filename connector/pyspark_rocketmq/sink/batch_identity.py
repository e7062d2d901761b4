"""The identity of a write: which batch a task is writing, so that a repeat is recognised.

Spark tells tasks, through local properties, the query id and the batch id. Both are in the
checkpoint, so a restarted query that replays a batch has the ids of the first time; only the run
id is new. Batch ids of a query only grow, so the broker keeps the newest decision of each query and
`txnName`: a task of a replay finds the batch decided and stores nothing (task.py), and the driver's
commit is answered "already done" (commit.py).

| write | batch is known by | replayed with the same batch id |
| --- | --- | --- |
| `writeStream.format("rocketmq")` | query id, batch id, `txnName` | adds nothing |
| `write` inside `foreachBatch` | query id, batch id, `txnName` or else `topic` | adds nothing |
| `write` with `txnId` | `txnId`, `txnName` | adds nothing |
| `write` without | a fresh UUID | is another batch: written again |

A query that starts with a new checkpoint has a new query id, and so writes its batches again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.types import BatchRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_rocketmq.options.options import SinkOptions

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"


@dataclass(frozen=True)
class WriteIdentity:
    """The batch, the run of the query that writes it, and whether it may ever come again.

    `may_repeat` False lets the broker forget the decision: no other write can have this identity.
    """

    batch: BatchRef
    run: str
    may_repeat: bool


def fresh_save_id() -> str:
    """Return a name for a plain save that no other save has."""
    return uuid.uuid4().hex


def stream_identity(options: SinkOptions, properties: Callable[[str], str | None]) -> WriteIdentity:
    """Return the identity of a streaming sink's batch, from a task's local properties."""
    query, batch = properties(QUERY_ID), properties(BATCH_ID)
    assert query is not None, "Spark sets the query's id for every task of a stream"
    assert batch is not None, "Spark sets the batch's id for every task of a stream"
    reference = BatchRef(f"query:{query}", options.txn_name or "", int(batch))
    return WriteIdentity(reference, properties(RUN_ID) or "", may_repeat=True)


def batch_identity(
    options: SinkOptions, save_id: str, properties: Callable[[str], str | None]
) -> WriteIdentity:
    """Return the identity of a batch write: one of a `foreachBatch`, or a save of its own."""
    query, batch = properties(QUERY_ID), properties(BATCH_ID)
    if query is not None and batch is not None:
        # Without a name, writes to different topics are still different writes.
        name = options.txn_name or (f"to:{options.topic}" if options.topic else "")
        reference = BatchRef(f"query:{query}", name, int(batch))
        return WriteIdentity(reference, properties(RUN_ID) or "", may_repeat=True)
    owner = f"save:{options.txn_id}" if options.txn_id else f"save:{save_id}"
    reference = BatchRef(owner, options.txn_name or "", 0)
    return WriteIdentity(reference, save_id, may_repeat=options.txn_id is not None)
