"""Rows to messages: Arrow batches to the columns that a broker appends, without a loop over rows.

`task.py` calls `Composer.compose` and hands the MessageBatch to the broker. `properties.py` checks
and joins keys, tags and properties; `schema.py` has found the columns, on the driver.

A row that can't be stored is refused here, in the task: the error names the first such value, and
with exactly-once delivery nothing of the batch becomes visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core.clock import now_ms
from broker_core.codec.compression import compress, compression_flags
from broker_core.codec.hashing.java import index_hashes, java_hashes
from broker_core.codec.ids import UNIQUE_ID_CHARS, UniqueIds
from broker_core.codec.legal_names import is_own_topic
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.join import join_properties, property_parts
from broker_core.codec.property_names import (
    DELAY,
    DELAY_LEVELS_SECONDS,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from broker_core.codec.property_names import KEYS as KEYS_PROPERTY
from broker_core.codec.property_names import SHARDING_KEY as SHARDING_PROPERTY
from broker_core.codec.property_names import TAGS as TAGS_PROPERTY
from broker_core.codec.spans import regular_offsets, spans_of
from pyspark_rocketmq.errors import sink_errors
from pyspark_rocketmq.sink.fingerprint import NO_ROWS, RowSum, element_lengths, sum_rows
from pyspark_rocketmq.sink.properties import (
    TopicColumn,
    joined_keys,
    refuse_separators,
    user_properties,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.properties.join import PropertyParts
    from pyspark_rocketmq.options.options import SinkOptions
    from pyspark_rocketmq.sink.schema import SinkColumns

DEFAULT_GROUP = "pyspark-rocketmq-sink"

QueueCounts = Callable[[str], int]
"""Returns how many queues of a topic can be written to; raises if the topic does not exist."""

_LEVELS = len(DELAY_LEVELS_SECONDS)


class Composer:
    """Composes the messages of one task's rows.

    Rows without shardingKey and queueId go to the topic's queues in turn. `first` is the queue to
    begin with, so that tasks do not all begin with queue 0; the turn goes on from call to call.
    `is_transactional`: the messages will be prepared, not sent, and get the properties for it;
    `total` is then the sum of all rows so far (fingerprint.py).
    """

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        queue_counts: QueueCounts,
        *,
        first: int = 0,
        is_transactional: bool,
        unique_ids: UniqueIds | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._options = options
        self._columns = columns
        self._queue_counts = queue_counts
        self._first = first
        self.total = NO_ROWS
        self._task = first
        self._composed = 0
        self._turns: dict[str, int] = {}  # rows sent in turn so far, by topic, plus `first`
        self._is_transactional = is_transactional
        self._unique_ids = unique_ids or UniqueIds()
        self._clock_ms = clock_ms

    def compose(self, rows: pa.RecordBatch) -> MessageBatch:
        """Return the messages of some rows, in their order."""
        count = rows.num_rows
        topics = self._topics(rows)
        self._refuse_own(topics)
        self._composed += count
        now = self._clock_ms()
        # Check bodies before asking for queues, which may create a topic.
        bodies, sys_flags = self._bodies(rows, topics)
        queue_ids = self._queue_ids(rows, topics)
        pairs = self._pairs(rows, topics, now)
        levels = self._delay_levels(rows, topics)
        user = self._user_properties(rows, topics)
        if self._is_transactional:
            self.total += self._sum(rows, topics, dict(pairs), user)
        if levels is None:
            # Nearly every batch: the encoder joins the parts while it writes records, so that no
            # column of joined properties is made.
            texts: pa.Array | PropertyParts = property_parts(pairs, count, user)
            names, codes = topics.names, topics.codes
        else:
            own = join_properties(pairs, count, user)
            texts = _join(own, _delay_properties(levels, topics, queue_ids))
            names, codes, queue_ids = _delayed(levels, topics, queue_ids)
        return MessageBatch(
            topics=names,
            topic_codes=codes,
            queue_ids=queue_ids,
            bodies=bodies,
            properties=texts,
            born_timestamps=now,
            sys_flags=sys_flags,
        )

    def _sum(
        self,
        rows: pa.RecordBatch,
        topics: TopicColumn,
        pairs: dict[str, pa.Array | str | None],
        user: pa.Array | None,
    ) -> RowSum:
        """Return the sum of what a replay makes again: not of unique keys, times, chosen queues."""
        columns = self._columns
        own = None if columns.topic is None else rows.column(columns.topic)
        bodies = rows.column(columns.body)
        tags, keys = pairs.get(TAGS_PROPERTY), pairs.get(KEYS_PROPERTY)
        lengths = (None, None) if user is None else element_lengths(user)
        numbers = [
            None if name is None else rows.column(name).cast(pa.string())
            for name in (columns.queue_id, columns.delay_level)
        ]
        return sum_rows(
            rows.num_rows,
            [own, tags, keys, user, bodies],
            [*lengths, pairs.get(SHARDING_PROPERTY), *numbers],
            frozenset(() if own is None else topics.names),
        )

    # Topic and queue

    def _topics(self, rows: pa.RecordBatch) -> TopicColumn:
        if self._columns.topic is None:
            assert self._options.topic is not None, "the schema was not checked"
            return TopicColumn([self._options.topic], np.zeros(rows.num_rows, dtype=np.int32))
        coded = pc.dictionary_encode(rows.column(self._columns.topic))
        if coded.null_count:
            raise sink_errors.null_topic()
        return TopicColumn(coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int32))

    def _refuse_own(self, topics: TopicColumn) -> None:
        """Raise WriteError for the first row whose topic is one of the broker's own."""
        own = [code for code, name in enumerate(topics.names) if is_own_topic(name)]
        if own:
            row = int(np.isin(topics.codes, own).argmax())
            where = f"Row {self._composed + row} of task {self._task} (both from 0)"
            raise sink_errors.own_topic(topics.of(row), where)

    def _queue_ids(self, rows: pa.RecordBatch, topics: TopicColumn) -> NDArray[np.int32]:
        """Choose each row's queue: by queueId, else by the hash of shardingKey, else in turn."""
        counts = np.array([self._queue_counts(name) for name in topics.names], dtype=np.int64)
        queue_ids = self._in_turn(topics, counts)
        if self._columns.sharding_key is not None:
            keys = rows.column(self._columns.sharding_key)
            has_key = spans_of(keys).lengths > 0  # neither null nor empty
            # Java's hashCode made positive, so that equal keys go to one queue.
            hashes = index_hashes(java_hashes(keys.fill_null(""))).astype(np.int64)
            queue_ids = np.where(has_key, hashes % counts[topics.codes], queue_ids)
        if self._columns.queue_id is not None:
            chosen = rows.column(self._columns.queue_id)
            is_chosen = chosen.is_valid().to_numpy(zero_copy_only=False)
            numbers = chosen.fill_null(0).to_numpy().astype(np.int64)
            wrong = is_chosen & ((numbers < 0) | (numbers >= counts[topics.codes]))
            if wrong.any():
                row = int(wrong.argmax())
                limit = int(counts[topics.codes[row]])
                raise sink_errors.queue_out_of_range(topics.of(row), int(numbers[row]), limit)
            queue_ids = np.where(is_chosen, numbers, queue_ids)
        return queue_ids.astype(np.int32)

    def _in_turn(self, topics: TopicColumn, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return each topic's queues in turn, going on where the rows before ended."""
        queue_ids = np.empty(len(topics.codes), dtype=np.int64)
        for code, name in enumerate(topics.names):
            rows = slice(None) if len(topics.names) == 1 else np.flatnonzero(topics.codes == code)
            number = len(queue_ids[rows])
            start = self._turns.get(name, self._first)
            # A tiled round of the queues instead of a modulo per row.
            one_round = (start + np.arange(counts[code])) % counts[code]
            queue_ids[rows] = np.tile(one_round, number // len(one_round) + 1)[:number]
            self._turns[name] = start + number
        return queue_ids

    # Body and properties

    def _bodies(
        self, rows: pa.RecordBatch, topics: TopicColumn
    ) -> tuple[pa.Array, NDArray[np.int32] | int]:
        bodies = rows.column(self._columns.body).cast(pa.binary())
        _, _, lengths = spans_of(bodies)
        empty = lengths == 0
        if empty.any():
            raise sink_errors.empty_body(topics.of(int(empty.argmax())))
        limit = self._options.max_message_bytes
        if int(lengths.max(initial=0)) > limit:  # the mask is made only to name the row
            row = int((lengths > limit).argmax())
            raise sink_errors.body_too_large(topics.of(row), int(lengths[row]), limit)
        return self._compressed(bodies, lengths)

    def _compressed(
        self, bodies: pa.Array, lengths: NDArray[np.int64]
    ) -> tuple[pa.Array, NDArray[np.int32] | int]:
        """Compress the bodies from the threshold on, one by one: no kernel compresses many."""
        kind = self._options.compression
        large = np.flatnonzero(lengths >= max(1, self._options.compression_threshold_bytes))
        if kind == "none" or not len(large):
            return bodies, 0
        chosen = np.zeros(len(bodies), dtype=np.bool_)
        chosen[large] = True
        packed = [compress(body, kind) for body in bodies.filter(pa.array(chosen)).to_pylist()]
        flags = np.where(chosen, np.int32(compression_flags(kind)), np.int32(0)).astype(np.int32)
        stored = pa.array(packed, type=pa.binary())
        return pc.replace_with_mask(bodies, pa.array(chosen), stored), flags

    def _pairs(
        self, rows: pa.RecordBatch, topics: TopicColumn, now: int
    ) -> list[tuple[str, pa.Array | str | None]]:
        """Return the properties that RocketMQ itself reads, in stored order."""
        columns = self._columns
        pairs: list[tuple[str, pa.Array | str | None]] = []
        if self._is_transactional:
            group = self._options.producer_group or DEFAULT_GROUP
            pairs += [(TRANSACTION_PREPARED, "true"), (PRODUCER_GROUP, group)]
        pairs.append((UNIQ_KEY, self._keys(rows.num_rows, now)))
        if columns.tags is not None:
            tags = refuse_separators(rows.column(columns.tags), "the tag", topics)
            pairs.append((TAGS_PROPERTY, tags))
        if columns.keys is not None:
            pairs.append((KEYS_PROPERTY, joined_keys(rows.column(columns.keys), topics)))
        if columns.sharding_key is not None:
            keys = refuse_separators(rows.column(columns.sharding_key), "the shardingKey", topics)
            pairs.append((SHARDING_PROPERTY, keys))
        return pairs

    def _keys(self, count: int, now: int) -> pa.Array:
        """Return a fresh unique key for every message."""
        made = self._unique_ids.make(count, now)
        offsets = regular_offsets(count, UNIQUE_ID_CHARS)
        return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(made)])

    def _user_properties(self, rows: pa.RecordBatch, topics: TopicColumn) -> pa.Array | None:
        if self._columns.properties is None:
            return None
        return user_properties(rows.column(self._columns.properties), topics)

    # Delay

    def _delay_levels(self, rows: pa.RecordBatch, topics: TopicColumn) -> NDArray[np.int64] | None:
        """Return each message's delay level, 0 for none; None if no message has one."""
        if self._columns.delay_level is None:
            return None
        levels = rows.column(self._columns.delay_level).fill_null(0).to_numpy().astype(np.int64)
        wrong = (levels < 0) | (levels > _LEVELS)
        if wrong.any():
            row = int(wrong.argmax())
            raise sink_errors.delay_level(topics.of(row), int(levels[row]), _LEVELS)
        return levels if levels.any() else None


def _delay_properties(
    levels: NDArray[np.int64], topics: TopicColumn, queue_ids: NDArray[np.int32]
) -> pa.Array:
    """Return the delay level and real destination of delayed messages; empty for the others."""
    none = pa.array(levels == 0)

    def where_delayed(texts: pa.Array) -> pa.Array:
        return pc.if_else(none, pa.scalar(None, type=pa.string()), texts)

    names = pa.array(topics.names, type=pa.string()).take(pa.array(topics.codes))
    pairs: Sequence[tuple[str, pa.Array | str | None]] = [
        (DELAY, where_delayed(pa.array(levels).cast(pa.string()))),
        (REAL_TOPIC, where_delayed(names)),
        (REAL_QUEUE_ID, where_delayed(pa.array(queue_ids).cast(pa.string()))),
    ]
    return join_properties(pairs, len(levels))


def _delayed(
    levels: NDArray[np.int64], topics: TopicColumn, queue_ids: NDArray[np.int32]
) -> tuple[list[str], NDArray[np.int32], NDArray[np.int32]]:
    """Return topics, topic codes and queues with delayed messages sent to the schedule topic.

    The broker delivers them to their real destination when the delay is over: delay level N waits
    in queue N - 1.
    """
    is_delayed = levels > 0
    schedule = np.int32(len(topics.names))
    codes = np.where(is_delayed, schedule, topics.codes).astype(np.int32)
    queues = np.where(is_delayed, levels - 1, queue_ids).astype(np.int32)
    return [*topics.names, SCHEDULE_TOPIC], codes, queues


def _join(first: pa.Array, second: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(first, second, pa.scalar(b"", type=pa.binary()))
