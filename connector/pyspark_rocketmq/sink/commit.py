"""Commit and abort on the driver: one decision for a batch, or none.

`writer.py` calls this with the SinkMessages that the tasks returned (task.py). The decision itself
is made and kept by the broker: broker_core/broker/transactions tells that story.

**Problem.** Between the tasks' last row and Spark's own commit log the driver may die, and the
batch is then replayed; Spark may also abort a batch that it has committed. Each batch must become
visible once, whole.

**Invariants.** The broker makes the decision on (query id, batch id) durable before any message
becomes visible, and a batch that has a decision gets no second one. A batch that is committed stays
committed, whatever `abort` is told later.

**Outline.** What a crash leaves, by moment:

- The driver dies before `commit`: half messages without a decision. Spark replays the batch with
  new attempts after the restart; the old halves are rolled back by the broker's check-back.
- The driver dies inside `commit`: either no decision was written, as above, or one was, and the
  next process that finds it finishes making the batch visible.
- The driver dies after `commit`, before Spark logs the batch: after the restart Spark replays the
  batch with the same query id and batch id. Tasks find it decided and store nothing; `commit`
  gets `is_repeat` and changes nothing.
- `commit` raises: Spark calls `abort` with the same messages. If the batch was committed after all,
  abort leaves it so.
- `abort` itself fails, or gets None for tasks that never returned: check-back finds the halves.

With at-least-once delivery tasks return no receipt, and both calls do nothing.

**Rejected.** RocketMQ's own end of a transaction per message: it is not idempotent, so a replay
would show messages twice (docs/decisions/0004-batches-decided-in-the-log.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker_core.errors import BrokerError
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.errors import sink_errors
from pyspark_rocketmq.sink.task import SinkMessage, require_transactions

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage

    from broker_core.types import Receipt
    from pyspark_rocketmq.options.options import SinkOptions

log = logging.getLogger(__name__)

Messages = Sequence["WriterCommitMessage | None"]


def commit(options: SinkOptions, messages: Messages, *, is_foreach: bool = False) -> None:
    """Make what all tasks prepared visible, once, however often Spark asks.

    `is_foreach`: the write may be one of several in a `foreachBatch`. A second write of the same
    run with an equal identity is then an error (WriteError), not a repeat: its rows are others.
    """
    told = _told(messages)
    receipts = _receipts(told)
    if not receipts:
        return
    batch = receipts[0].batch
    client = options.client
    try:
        outcome = require_transactions(client_cache.cached_writer(client), options).commit_batch(
            batch, receipts, run=told[0].run, keep=told[0].may_repeat, flush=options.flush
        )
    except BrokerError as error:
        raise client_cache.failed(error, client, f"commit {batch}") from error
    # A repeat within one run is no replay: a replay comes from a new run of the query.
    if outcome.is_repeat and is_foreach and told[0].run and outcome.run == told[0].run:
        raise sink_errors.written_twice(batch)
    log.info(
        "event=%s batch=%r messages=%d",
        "batch_already_committed" if outcome.is_repeat else "batch_committed",
        str(batch),
        sum(message.rows for message in told),
    )


def abort(options: SinkOptions, messages: Messages) -> None:
    """Roll back what the tasks that ended had prepared; check-back finds the rest.

    Spark also aborts after a commit that raised, whatever the commit had done by then: a batch
    that is committed stays so.
    """
    receipts = _receipts(_told(messages))
    if not receipts:
        return
    client = options.client
    try:
        transactions = require_transactions(client_cache.cached_writer(client), options)
        transactions.abort_batch(receipts[0].batch, receipts, flush=options.flush)
    except BrokerError as error:
        action = f"roll back {receipts[0].batch}"
        raise client_cache.failed(error, client, action) from error


def _told(messages: Messages) -> list[SinkMessage]:
    return [message for message in messages if isinstance(message, SinkMessage)]


def _receipts(messages: Sequence[SinkMessage]) -> list[Receipt]:
    return [message.receipt for message in messages if message.receipt is not None]
