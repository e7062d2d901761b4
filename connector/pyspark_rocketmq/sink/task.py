"""Writing in a task: rows are composed and handed to the broker, a few megabytes at a time.

While some are being written, the next are read and composed (broker_core/concurrency.py).

Exactly once: they become half messages, invisible, under an attempt id that only this call of
`write` ever has; what the task returns says where they lie, and the driver decides. A task that
fails, loses a race or is forgotten leaves half messages that nobody will ever see.

At least once: they are sent at once, in one pass.
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
from pyspark_rocketmq.sink.rows import Composer

if TYPE_CHECKING:
    from broker_core.api import BrokerTransactions
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.types import Prepared
    from pyspark_rocketmq.options.options import SinkOptions
    from pyspark_rocketmq.sink.identity import WriteIdentity
    from pyspark_rocketmq.sink.schema import SinkColumns

APPEND_ROWS = 250_000
APPEND_BYTES = 48 << 20
"""With what a record adds to a row, this stays below what a remote core takes in one append."""
ACTION = "write messages"


@dataclass(frozen=True)
class SinkMessage(WriterCommitMessage):
    """What a task tells the driver. Without a receipt the messages are sent already."""

    rows: int
    receipt: Receipt | None = None
    run: str = ""
    may_repeat: bool = True


def write_rows(
    options: SinkOptions,
    columns: SinkColumns,
    batches: Iterable[pa.RecordBatch],
    identity: WriteIdentity | None,
    *,
    task: int,
) -> SinkMessage:
    """Write a task's rows; `identity` None sends them at once."""
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
    attempt = unique_ids.make(1)[0, :MAKER_CHARS].tobytes().decode("ascii")
    prepared: list[Prepared] = []
    count = 0

    def prepare(messages: MessageBatch) -> None:
        # A replay of a batch that is committed need not be stored again; it is still checked.
        if not prepared and transactions.is_batch_decided(identity.batch):
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
            count += rows.num_rows
            ahead.do(partial(prepare, composer.compose(rows)))
    receipt = Receipt(identity.batch, attempt, tuple(prepared))
    return SinkMessage(count, receipt, identity.run, identity.may_repeat)


def require_transactions(broker: Broker, options: SinkOptions) -> BrokerTransactions:
    """The broker's transactions; OptionError if it has none."""
    if not isinstance(broker, TransactionalBroker):
        reason = "it has no transactions that it decides itself."
        raise sink_errors.exactly_once_unsupported(options.client.address, reason)
    return broker.transactions


class TopicQueues:
    """How many queues of a topic can be written to; asked once per task and topic.

    `settle` is called before the broker is asked: it may be busy in another thread.
    """

    def __init__(self, broker: Broker, options: SinkOptions, settle: Callable[[], None]) -> None:
        self._broker = broker
        self._options = options
        self._settle = settle
        self._known: dict[str, int] = {}

    def __call__(self, topic: str) -> int:
        """The number of queues; a missing topic is made if the options say so."""
        if topic not in self._known:
            self._settle()
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
