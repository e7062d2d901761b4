"""Which batch a task is writing: what makes a repeat recognisable.

Spark tells tasks, through local properties, which query and batch they belong to; a replay after a
crash has the same two. That holds for a streaming sink and for a batch write inside `foreachBatch`,
where the option `txnName`, or else `topic`, keeps several writes of one batch apart. A plain save
has no identity but the one that the user gives it with `txnId`.
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
    """The batch, the run of the query that writes it, and whether it may ever come again."""

    batch: BatchRef
    run: str
    may_repeat: bool


def fresh_save_id() -> str:
    """A name for a plain save that no other has."""
    return uuid.uuid4().hex


def stream_identity(options: SinkOptions, properties: Callable[[str], str | None]) -> WriteIdentity:
    """The batch of a streaming sink's task, by its local properties."""
    query, batch = properties(QUERY_ID), properties(BATCH_ID)
    assert query is not None, "Spark sets the query's id for every task of a stream"
    assert batch is not None, "Spark sets the batch's id for every task of a stream"
    reference = BatchRef(f"query:{query}", options.txn_name or "", int(batch))
    return WriteIdentity(reference, properties(RUN_ID) or "", may_repeat=True)


def batch_identity(
    options: SinkOptions, save_id: str, properties: Callable[[str], str | None]
) -> WriteIdentity:
    """The batch of a batch write's task: of `foreachBatch`, or a save of its own."""
    query, batch = properties(QUERY_ID), properties(BATCH_ID)
    if query is not None and batch is not None:
        # Without a name, writes to different topics are still different writes.
        name = options.txn_name or (f"to:{options.topic}" if options.topic else "")
        reference = BatchRef(f"query:{query}", name, int(batch))
        return WriteIdentity(reference, properties(RUN_ID) or "", may_repeat=True)
    owner = f"save:{options.txn_id}" if options.txn_id else f"save:{save_id}"
    reference = BatchRef(owner, options.txn_name or "", 0)
    return WriteIdentity(reference, save_id, may_repeat=options.txn_id is not None)
