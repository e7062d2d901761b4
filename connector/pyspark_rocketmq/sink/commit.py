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
  gets `is_repeat` and changes nothing. The log says so, with the run that had written it.
- `commit` raises: Spark calls `abort` with the same messages. If the batch was committed after all,
  abort leaves it so.
- `abort` itself fails, or gets None for tasks that never returned: check-back finds the halves.

A number is not enough to know a batch by. A checkpoint that was restored or copied gives a number
that is decided to other rows, or goes on where the store has not been:

- The fingerprint differs (fingerprint.py), a later number is decided, or the broker has forgotten
  all but the number: BATCH_CONFLICT, unless `onConflict` says what to do. Of saves with a `txnId`
  the id counts, and the topics if a column names them; inside a `foreachBatch` also the rows.
- Tasks found the batch decided and stored nothing, but it is no more when the driver asks, because
  another run wrote an earlier one all the same (`onConflict=write`): BATCH_CONFLICT.
- A streaming sink commits every batch, empty ones too, so the one before must be decided: else
  BATCH_GAP, unless `allowGap`. Inside `foreachBatch` batches may be left out.
- A second write of one run with an equal identity has other rows (written.py): WRITTEN_TWICE.

With at-least-once delivery tasks return no receipt, and both calls do nothing.

**Rejected.** RocketMQ's own end of a transaction per message: it is not idempotent, so a replay
would show messages twice (docs/decisions/0004-batches-decided-in-the-log.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from broker_core.errors import BatchConflictError, BatchGapError, BrokerError
from broker_core.types import BatchOutcome
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.errors import sink_errors
from pyspark_rocketmq.sink.fingerprint import fingerprints, row_fingerprints, save_fingerprint
from pyspark_rocketmq.sink.task import SinkMessage, decided_as, require_transactions
from pyspark_rocketmq.sink.written import WrittenBatches

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage

    from broker_core.api import BrokerTransactions
    from broker_core.types import Conflict, Receipt
    from pyspark_rocketmq.options.options import SinkOptions
    from pyspark_rocketmq.sink.batch_identity import WriteIdentity
    from pyspark_rocketmq.sink.fingerprint import RowSum

log = logging.getLogger(__name__)

_OVERLAP = (
    "When its tasks ran, a batch was committed under this number, so they stored nothing; since "
    "then another run wrote an earlier batch once more."
)

Messages = Sequence["WriterCommitMessage | None"]


def commit(options: SinkOptions, messages: Messages, *, is_foreach: bool = False) -> None:
    """Make what all tasks prepared visible, once, however often Spark asks.

    `is_foreach`: the write may be one of several in a `foreachBatch`. A second write of the same
    run with an equal identity is then an error (WriteError), not a repeat: its rows are others.
    """
    told = _told(messages)
    receipts = _receipts(told)
    identity = told[0].identity if told else None
    if not receipts or identity is None:
        return
    if is_foreach and identity.is_query and identity.run:
        written = WrittenBatches(options.client.address, identity.batch, identity.run)
        if written.has():
            raise sink_errors.written_twice(identity.batch)
        outcome = _commit(options, identity, told, receipts, None)
        # A repeat within one run is no replay: a replay comes from a new run of the query.
        is_own = outcome.is_repeat and outcome.run == identity.run
        if not written.add() or is_own:
            raise sink_errors.written_twice(identity.batch)
    else:
        number = identity.batch.number
        # Spark commits each batch of a streaming sink before it begins the next.
        previous = number - 1 if identity.is_query and not is_foreach and number else None
        outcome = _commit(options, identity, told, receipts, previous)
    _report(identity, outcome, sum(message.rows for message in told))


def _commit(
    options: SinkOptions,
    identity: WriteIdentity,
    told: Sequence[SinkMessage],
    receipts: Sequence[Receipt],
    previous: int | None,
) -> BatchOutcome:
    batch, client = identity.batch, options.client
    known = _fingerprints(options, identity, [each.sum for each in told])
    try:
        transactions = require_transactions(client_cache.cached_writer(client), options)
        if _has_former(transactions, options, identity, known):
            transactions.abort_batch(batch, receipts, flush=options.flush)
            return BatchOutcome(is_repeat=True, run="")
        # What found the batch decided and stored nothing must not be committed without its rows.
        is_left_out = any(each.rows and each.receipt and not each.receipt.count for each in told)
        if is_left_out:
            previous = batch.number
        request = partial(
            transactions.commit_batch,
            batch,
            receipts,
            run=identity.run,
            keep=identity.may_repeat,
            flush=options.flush,
            previous=None if options.allow_gap and not is_left_out else previous,
        )
        return _decide(request, known, options.on_conflict)
    except BatchConflictError as error:
        raise sink_errors.batch_conflict(batch, options.checkpoint, error) from error
    except BatchGapError as error:
        if is_left_out:
            raise sink_errors.batch_conflict(batch, options.checkpoint, _OVERLAP) from error
        raise sink_errors.batch_gap(batch, options.checkpoint, client.address, error) from error
    except BrokerError as error:
        raise client_cache.failed(error, client, f"commit {batch}") from error


def _fingerprints(
    options: SinkOptions, identity: WriteIdentity, sums: Sequence[RowSum]
) -> list[str]:
    """Return what tells this batch from others with its number, then what did in the past."""
    if identity.is_query:
        return fingerprints(options, identity.batch, sums)
    by_topics = save_fingerprint(sums) if identity.may_repeat else ""
    if not identity.is_in_query:
        return [by_topics]
    return [*row_fingerprints(options, sums), *filter(None, [by_topics])]


def _has_former(
    transactions: BrokerTransactions,
    options: SinkOptions,
    identity: WriteIdentity,
    known: Sequence[str],
) -> bool:
    """Tell whether an earlier version wrote a batch, under the name that it gave it; finish it."""
    former, by_query = identity.former, identity.by_query
    if former is not None and decided_as(transactions, identity) == former:
        # It did not note where to, or what.
        transactions.abort_batch(former, [], flush=options.flush)
        return True
    if by_query is None or not transactions.is_batch_decided(by_query):
        return False
    # This name may also be that of another write of this function, with other rows: so these count.
    # It is decided, so the question is answered by a repeat or a conflict, and writes nothing.
    for each in known:
        with suppress(BatchConflictError):
            outcome = transactions.commit_batch(
                by_query, [], run=identity.run, flush=options.flush, fingerprint=each
            )
            return outcome.run != identity.run
    return False


def _decide(
    request: Callable[..., BatchOutcome], known: Sequence[str], conflict: Conflict
) -> BatchOutcome:
    """Commit by the first fingerprint; a conflict may be a repeat of what another version wrote.

    Asking again by a former fingerprint writes nothing: there was a conflict, so a decision has the
    batch's number or a later one, and decisions stay.
    """
    own, *former = known
    try:
        return request(fingerprint=own, conflict="refuse")
    except BatchConflictError:
        for each in former:
            with suppress(BatchConflictError):
                return request(fingerprint=each, conflict="refuse")
        if conflict == "refuse":
            raise
    return request(fingerprint=own, conflict=conflict)


def _report(identity: WriteIdentity, outcome: BatchOutcome, rows: int) -> None:
    if outcome.is_repeat:
        # The rows of this run are left out: whoever expected them must be able to find out why.
        log.warning(
            "event=batch_already_committed batch=%r run=%r committed_by=%r messages_left_out=%d",
            str(identity.batch),
            identity.run,
            outcome.run or "an earlier version",
            rows,
        )
        return
    log.info("event=batch_committed batch=%r messages=%d", str(identity.batch), rows)
    if identity.is_connect and not identity.may_repeat:
        log.warning(
            "event=save_without_identity batch=%r advice=%r",
            str(identity.batch),
            "Spark Connect does not tell the sink whether this save is part of a foreachBatch. If "
            "it is repeated, its rows are written again. To have them written once, add "
            + sink_errors.TXN_ID_LINE,
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
