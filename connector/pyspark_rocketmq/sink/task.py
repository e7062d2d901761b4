"""Writing in a task: rows become messages and go to the broker, at most 48 MiB at a time.

`writer.py` calls `write_rows`. `rows.py` composes messages; the broker prepares or appends them.
The SinkMessage that the task returns travels to the driver, to `commit.py`. While one append is
under way, the next rows are read and composed (broker_core/concurrency.py).

**Exactly once.** Messages become half messages: durable, invisible, under an attempt id that only
this call of `write` ever has. The receipt that the task returns names them, and the driver's
decision on the batch names receipts. A half message that no decision names never becomes visible:

- A task dies in `write`: its half messages stay behind. Spark starts another attempt, which
  prepares all rows anew under an id of its own and returns its own receipt.
- Two attempts run at once (speculation): both prepare everything. Spark passes on one receipt.
- The batch is replayed after a restart, with the same batch id: if it is committed, the task checks
  its rows and stores nothing; if not, it prepares them anew.

In every case the broker's check-back rolls the abandoned half messages back later. An attempt id
has host, process and a random number in it: partition and attempt numbers repeat after a restart.

**At least once.** Messages are sent at once and are visible before the task ends. A task that dies
leaves the rows it has sent, and the next attempt sends all of them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from broker_core.api import Broker, TransactionalBroker
from broker_core.codec.ids import MAKER_CHARS, UniqueIds
from broker_core.concurrency import run_ahead
from broker_core.errors import BrokerError, TopicNotFoundError
from broker_core.process_settings import tune_worker
from broker_core.types import Receipt
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.coalesce import coalesce
from pyspark_rocketmq.errors import sink_errors
from pyspark_rocketmq.sink.fingerprint import NO_ROWS, RowSum
from pyspark_rocketmq.sink.rows import Composer

if TYPE_CHECKING:
    from broker_core.api import BrokerTransactions
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.types import BatchRef, Prepared
    from pyspark_rocketmq.options.options import SinkOptions
    from pyspark_rocketmq.sink.batch_identity import WriteIdentity
    from pyspark_rocketmq.sink.schema import SinkColumns

APPEND_ROWS = 250_000
APPEND_BYTES = 48 << 20
"""With the header and properties of each record, this stays below a remote core's append limit."""
ACTION = "write messages"


@dataclass(frozen=True)
class SinkMessage(WriterCommitMessage):
    """A task's answer to the driver. Without a receipt the messages are sent already."""

    rows: int
    receipt: Receipt | None = None
    identity: WriteIdentity | None = None
    sum: RowSum = NO_ROWS


def write_rows(
    options: SinkOptions,
    columns: SinkColumns,
    batches: Iterable[pa.RecordBatch],
    identity: WriteIdentity | None,
    *,
    task: int,
) -> SinkMessage:
    """Write a task's rows: prepare them under `identity`, or send them if it is None.

    `task` is the partition's number; tasks begin with different queues by it.
    """
    client = options.client
    tune_worker()
    try:
        broker = client_cache.cached_writer(client)
        if identity is None:
            return _send(broker, options, columns, batches, task)
        return _prepare(broker, options, columns, batches, identity, task)
    except BrokerError as error:
        raise client_cache.failed(error, client, ACTION) from error


def _send(
    broker: Broker,
    options: SinkOptions,
    columns: SinkColumns,
    batches: Iterable[pa.RecordBatch],
    task: int,
) -> SinkMessage:
    count = 0

    def append(messages: MessageBatch) -> None:
        broker.append(messages, flush=options.flush, wants_places=False)

    with run_ahead() as ahead:
        queues = TopicQueues(broker, options, ahead.wait)
        composer = Composer(options, columns, queues, first=task, is_transactional=False)
        for rows in coalesce(batches, APPEND_ROWS, APPEND_BYTES):
            count += rows.num_rows
            ahead.do(partial(append, composer.compose(rows)))
    return SinkMessage(count)


def _prepare(
    broker: Broker,
    options: SinkOptions,
    columns: SinkColumns,
    batches: Iterable[pa.RecordBatch],
    identity: WriteIdentity,
    task: int,
) -> SinkMessage:
    transactions = require_transactions(broker, options)
    unique_ids = UniqueIds()
    # The attempt id begins the unique key of each of its messages: it costs no byte per message.
    attempt = unique_ids.make(1)[0, :MAKER_CHARS].tobytes().decode("ascii")
    prepared: list[Prepared] = []

    def prepare(messages: MessageBatch) -> None:
        # A replay of a committed batch is not stored again. Its rows are composed all the same, so
        # that a row that can't be stored fails as it did the first time. Whether it is a replay,
        # the driver's commit finds out; where it is to write what is none, it needs the rows.
        if (
            not prepared
            and options.on_conflict != "write"
            and decided_as(transactions, identity) is not None
        ):
            return
        prepared.append(
            transactions.prepare_batch(
                identity.batch, attempt, messages, is_first=not prepared, flush=options.flush
            )
        )

    with run_ahead() as ahead:
        composer = Composer(
            options,
            columns,
            TopicQueues(broker, options, ahead.wait),
            first=task,
            is_transactional=True,
            unique_ids=unique_ids,
        )
        for rows in coalesce(batches, APPEND_ROWS, APPEND_BYTES):
            ahead.do(partial(prepare, composer.compose(rows)))
    receipt = Receipt(identity.batch, attempt, tuple(prepared))
    return SinkMessage(composer.total.rows, receipt, identity, composer.total)


def decided_as(transactions: BrokerTransactions, identity: WriteIdentity) -> BatchRef | None:
    """Return the name under which a batch is committed already, its own or a former one."""
    for batch in (identity.batch, identity.former):
        if batch is not None and transactions.is_batch_decided(batch):
            return batch
    return None


def require_transactions(broker: Broker, options: SinkOptions) -> BrokerTransactions:
    """Return the broker's transactions; OptionError if it has none."""
    if not isinstance(broker, TransactionalBroker):
        reason = "it has no transactions that it decides itself."
        raise sink_errors.exactly_once_unsupported(options.client.address, reason)
    return broker.transactions


class TopicQueues:
    """The number of a topic's queues that can be written to; asked once per task and topic.

    `wait` ends when no append is under way: a broker is not thread-safe.
    """

    def __init__(self, broker: Broker, options: SinkOptions, wait: Callable[[], None]) -> None:
        self._broker = broker
        self._options = options
        self._wait = wait
        self._known: dict[str, int] = {}

    def __call__(self, topic: str) -> int:
        """Return the number of queues; a missing topic is made if `createTopic` says so."""
        if topic not in self._known:
            self._wait()
            self._known[topic] = self._ask(topic)
        return self._known[topic]

    def _ask(self, topic: str) -> int:
        try:
            return self._broker.describe(topic).write_queues
        except TopicNotFoundError:
            queues = self._options.create_queues
            if queues is None:
                raise sink_errors.topic_missing(topic, self._options.client.address) from None
            return self._broker.create_topic(topic, queues, exist_ok=True).write_queues
