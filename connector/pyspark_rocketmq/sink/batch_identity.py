"""The identity of a write: which batch a task is writing, so that a repeat is recognised.

Spark tells tasks, through local properties, the query id and the batch id. Both are in the
checkpoint, so a restarted query that replays a batch has the ids of the first time. The broker
keeps the newest decision of each query and name, with the batch's fingerprint (fingerprint.py): a
task of a replay finds the batch decided and stores nothing (task.py), and the driver's commit is
answered "already done" (commit.py).

| write | batch is known by | replayed with the same batch id |
| --- | --- | --- |
| `writeStream.format("rocketmq")` | query id, batch id, `txnName` | adds nothing |
| `write` inside `foreachBatch` | query id, batch id, `txnName` or else `topic` | adds nothing |
| `write` with `txnId`, there too | `txnId`, `txnName`, `topic` | adds nothing |
| `write` without | a fresh UUID | is another batch: written again |

A query that starts with a new checkpoint has a new query id, and so writes its batches again.

A `txnId` counts wherever it is given: a replay may run in a thread or under Connect, where the ids
of the query are not known, though the first run was told them. Inside a `foreachBatch` its rows
count beside it (fingerprint.py), for there it names a batch that a checkpoint can bring back.

**Runs.** A second write of one batch in one run is no replay. A run of a batch is named by Spark's
application, the time at which it began (a second attempt of a YARN application has the id of the
first) and the number of the SQL execution that the micro-batch is: every write that its function
begins, in whatever session, has it as its root execution. Job group, description, pool and tags are
the user's to change.

**Writes without an identity.** Threads that the function of a `foreachBatch` starts itself, and all
of that function under Spark Connect, do not have the query's local properties. Spark runs a
micro-batch in a clone of the user's session in which it has switched off a setting that is internal
to Spark and that no other session sets; tasks have a session's settings among their local
properties, Connect or not. A save from such a session without ids is refused: a replay would write
it again. `spark.sql.cbo.enabled`, which Spark switches off there too, is the user's to change.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.types import BatchRef
from pyspark_rocketmq.errors import sink_errors

if TYPE_CHECKING:
    from pyspark_rocketmq.options.options import SinkOptions

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
APPLICATION_ID = "spark.app.id"
APPLICATION_START = "spark.app.startTime"
ROOT_EXECUTION_ID = "spark.sql.execution.root.id"
CONNECT_OPERATION = "spark.connect.operation_id"
STREAM_SESSION = "spark.sql.requireAllClusterKeysForDistribution"
"""A setting, internal to Spark, that is "false" in the session of a streaming query; no other
session has it."""
TO = " to:"
"""Comes before the destination in the name of a save, after its own name."""
ANY_TOPIC = "*"
"""Stands for the column `topic` as a destination; no topic can have this name."""

Properties = Callable[[str], str | None]


@dataclass(frozen=True)
class WriteIdentity:
    """The batch, the run that writes it, and whether it may ever come again.

    `may_repeat` False lets the broker forget the decision: no other write can have this identity.
    `is_query`: it is known by the ids of a streaming query, by sink or `foreachBatch`;
    `is_in_query`: one writes it, whatever it is known by. `former` is the batch as earlier versions
    named it, where they named it otherwise; `by_query` as they named it where the query's ids are
    known, since they then passed over `txnId`.
    """

    batch: BatchRef
    run: str
    may_repeat: bool
    is_query: bool = True
    is_in_query: bool = True
    is_connect: bool = False
    former: BatchRef | None = None
    by_query: BatchRef | None = None


def fresh_save_id() -> str:
    """Return a name for a plain save that no other save has."""
    return uuid.uuid4().hex


def destination(options: SinkOptions) -> str:
    """Return where the rows of a write go: one topic, or what the column `topic` says."""
    return f"{TO.strip()}{options.topic or ANY_TOPIC}"


def stream_identity(options: SinkOptions, properties: Properties) -> WriteIdentity:
    """Return the identity of a streaming sink's batch, from a task's local properties."""
    query, batch = properties(QUERY_ID), properties(BATCH_ID)
    assert query is not None, "Spark sets the query's id for every task of a stream"
    assert batch is not None, "Spark sets the batch's id for every task of a stream"
    reference = BatchRef(f"query:{query}", options.txn_name or "", int(batch))
    return WriteIdentity(reference, run_of(properties), may_repeat=True)


def batch_identity(options: SinkOptions, save_id: str, properties: Properties) -> WriteIdentity:
    """Return the identity of a batch write: one of a `foreachBatch`, or a save of its own.

    WriteError for a write of a `foreachBatch` that is not told its batch and has no `txnId`.
    """
    by_query, run = _by_query(options, properties), run_of(properties)
    is_connect = properties(CONNECT_OPERATION) is not None
    is_in_query = by_query is not None or is_stream_session(properties)
    if options.txn_id is not None:
        owner, former = f"save:{options.txn_id}", options.txn_name or ""
        # A name that looks like a destination is another save's name in this version.
        is_plain = TO not in f" {former}"
        return WriteIdentity(
            BatchRef(owner, (f"{former} " if former else "") + destination(options), 0),
            run or save_id,
            may_repeat=True,
            is_query=False,
            is_in_query=is_in_query,
            is_connect=is_connect,
            former=BatchRef(owner, former, 0) if is_plain else None,
            by_query=by_query,
        )
    if by_query is not None:
        return WriteIdentity(by_query, run, may_repeat=True)
    if is_in_query:
        raise sink_errors.batch_unknown(is_connect=is_connect)
    return WriteIdentity(
        BatchRef(f"save:{save_id}", options.txn_name or "", 0),
        run or save_id,
        may_repeat=False,
        is_query=False,
        is_in_query=False,
        is_connect=is_connect,
    )


def _by_query(options: SinkOptions, properties: Properties) -> BatchRef | None:
    """Return a batch of a `foreachBatch` by the query's ids; None where they are not known."""
    query, batch = properties(QUERY_ID), properties(BATCH_ID)
    if query is None or batch is None:
        return None
    # Without a name, writes to different topics are still different writes.
    name = options.txn_name or (destination(options) if options.topic else "")
    return BatchRef(f"query:{query}", name, int(batch))


def run_of(properties: Properties) -> str:
    """Return the name of this run of a micro-batch, or of this save; empty if it has none."""
    application, root = properties(APPLICATION_ID), properties(ROOT_EXECUTION_ID)
    if not application or not root:
        return ""
    return "/".join(filter(None, (application, properties(APPLICATION_START), root)))


def is_stream_session(properties: Properties) -> bool:
    """Tell whether a task's session is the one that Spark cloned for a streaming query."""
    return properties(STREAM_SESSION) == "false"
