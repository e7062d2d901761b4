"""Committing on the driver: one decision for a batch, or none."""

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

    `is_foreach`: the write may be one of several in a `foreachBatch`; two that can't be told
    apart must not pass for a repeat.
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
    if outcome.is_repeat and is_foreach and told[0].run and outcome.run == told[0].run:
        raise sink_errors.written_twice(batch)
    log.info(
        "event=%s batch=%r messages=%d",
        "batch_already_committed" if outcome.is_repeat else "batch_committed",
        str(batch),
        sum(message.rows for message in told),
    )


def abort(options: SinkOptions, messages: Messages) -> None:
    """Roll back what the tasks that ended had prepared; the rest is found by check-back.

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
