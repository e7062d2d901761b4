"""Reading through the index in a task: the few messages with a key or an id, instead of a scan.

A batch read with `filterPushdown` comes here when a pushed predicate names a key or an id
(plan/pushdown.py). The index answers for a whole topic; messages outside the ranges that the query
reads are dropped. Spark evaluates its predicate on the rows again, so finding too much does no
harm, and finding too little must not happen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.codec.schema import PROPERTY_PREFIX, schema_of
from broker_core.errors import BrokerError, MessageNotFoundError, TopicNotFoundError
from broker_core.process_settings import tune_worker
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.plan.bounded import present
from pyspark_rocketmq.plan.offsets import Bounds
from pyspark_rocketmq.source.partition_reader import ACTION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.api import Broker
    from broker_core.filter.pipeline import MessageFilter
    from broker_core.types import OffsetRange
    from pyspark_rocketmq.options.options import SourceOptions
    from pyspark_rocketmq.source.partition import LookupPartition

NO_LIMIT = 2**31 - 1


def read_lookup(
    options: SourceOptions, wanted: LookupPartition, message_filter: MessageFilter | None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages that the index finds, as far as they lie in the wanted ranges."""
    client = options.client
    tune_worker()
    try:
        broker = client_cache.cached_reader(client)
        ranges = _ranges(broker, wanted)
        if not ranges:
            return
        found = _within(_find(broker, wanted), ranges)
        if message_filter is not None and message_filter.tags is not None:
            tags = found["tags"].combine_chunks()
            found = found.filter(pa.array(message_filter.tags.select_texts(tags)))
        yield from project(found, options.columns).to_batches()
    except BrokerError as error:
        client_cache.forget(client)
        raise client_cache.translate(error, client.address, ACTION, attempts=1) from error


def project(found: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the requested columns of a table that has all columns."""
    return pa.table([_column(found, each) for each in columns], schema=schema_of(columns))


def _ranges(broker: Broker, wanted: LookupPartition) -> list[OffsetRange]:
    """Return what the wanted ranges hold now; none if the topic is gone."""
    try:
        held = broker.offsets(wanted.topic)
    except TopicNotFoundError:
        return []
    return [
        present(each, Bounds(*held[each.queue])) for each in wanted.ranges if each.queue in held
    ]


def _find(broker: Broker, wanted: LookupPartition) -> pa.Table:
    """Return the messages with the key or the id, each once."""
    found = broker.query(wanted.topic, wanted.lookup.text, limit=NO_LIMIT)
    if wanted.lookup.column != "msgId":
        return found
    try:
        # An offset message id (host and physical offset) is in no index; it names its record.
        by_id = broker.message(wanted.lookup.text)
    except MessageNotFoundError:
        return found
    by_id = by_id.filter(pc.equal(by_id["topic"], wanted.topic))
    known = pc.is_in(by_id["physicalOffset"], found["physicalOffset"].combine_chunks())
    return pa.concat_tables([found, by_id.filter(pc.invert(known))])


def _within(found: pa.Table, ranges: Sequence[OffsetRange]) -> pa.Table:
    brokers = found["brokerName"].to_numpy()
    queues, offsets = found["queueId"].to_numpy(), found["queueOffset"].to_numpy()
    is_within = np.zeros(len(found), dtype=np.bool_)
    for each in ranges:
        is_queue = (queues == each.queue.queue_id) & (brokers == each.queue.broker_name)
        is_within |= is_queue & (offsets >= each.start) & (offsets < each.end)
    return found if is_within.all() else found.filter(pa.array(is_within))


def _column(found: pa.Table, column: str) -> pa.ChunkedArray:
    if not column.startswith(PROPERTY_PREFIX):
        return found[column]
    name = pa.scalar(column.removeprefix(PROPERTY_PREFIX))
    return pc.map_lookup(found["properties"], name, "last")
