"""Dispatch requests: what consume queues and index files need to know of records.

A function of the log's bytes alone. Append, dispatch of the pending tail, recovery and replication
all use it, so that they can't disagree. RocketMQ's DispatchRequest, for a batch.

`dispatch_requests` reads records. `requests_of_located` is for a caller that has just encoded them
and knows most fields. Tags codes and index keys are hashed by `_hashes` (NumPy), or by its twin
`_hashes_compiled` in batches that are worth it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow.compute as pc

from broker_core.codec.fields import RecordFields, first_bad_topic, locate
from broker_core.codec.hashing.index_keys import KEY_MARK, TAG_MARK, IndexKeys, topic_seeds
from broker_core.codec.hashing.java import hash_spans
from broker_core.codec.layout import TRANSACTION_MASK, SysFlag
from broker_core.codec.properties.join import DISPATCH_PROPERTIES
from broker_core.codec.properties.search import find_values
from broker_core.codec.property_names import (
    DELAY,
    DELAY_LEVELS_SECONDS,
    KEY_SEPARATOR,
    KEYS,
    PROPERTY_SEPARATOR,
    SCHEDULE_TOPIC,
    TAGS,
    UNIQ_KEY,
)
from broker_core.codec.record import corrupt
from broker_core.codec.spans import Spans, gather_spans
from broker_core.jit import arguments, availability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from broker_core.codec.frames import FrameBatch
    from broker_core.codec.properties.join import DispatchValues
    from broker_core.jit.arguments import KernelSpans

_INTEGER = re.compile(rb"[+-]?[0-9]{1,20}")
_INT32_MAX = 2**31 - 1
_KEYS_PER_RECORD = 4
"""Room for this many index keys per record on average; `_hashes` takes batches with more."""


@dataclass(frozen=True)
class DispatchRequests:
    """Dispatch requests of a batch, as columns: element i is record i, in log order.

    `topics[topic_codes[i]]` is record i's topic. `tags_codes` are what consume queues store: the
    hash of the tag, or the time of delivery in the schedule topic. `index_rows` and `index_hashes`
    have one element for each index key, in put order: its record, and its hash as index files store
    it.
    """

    topics: list[str]
    topic_codes: NDArray[np.int32]
    queue_ids: NDArray[np.int32]
    queue_offsets: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    sizes: NDArray[np.int32]
    tags_codes: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]
    sys_flags: NDArray[np.int32]
    index_rows: NDArray[np.int64]
    index_hashes: NDArray[np.int32]

    @property
    def in_queue(self) -> NDArray[np.bool_]:
        """A mask of the records that get a consume-queue entry: not prepared, not rolled back."""
        transaction = self.sys_flags & TRANSACTION_MASK
        taken: NDArray[np.bool_] = (transaction == 0) | (transaction == SysFlag.COMMIT)
        return taken


@dataclass(frozen=True)
class LocatedRecords:
    """Records whose fields are known, but for what their properties say.

    Properties are the last field of a record: texts end where records do. `dispatch_values` are the
    values of tags, keys and unique keys, if the caller has them; they save searching the texts.
    """

    buffer: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    topics: Sequence[str]
    topic_codes: NDArray[np.int32]
    queue_ids: NDArray[np.int32]
    sys_flags: NDArray[np.int32]
    properties_lengths: NDArray[np.int64]
    dispatch_values: DispatchValues | None = None


def dispatch_requests(
    frames: FrameBatch,
    *,
    index_tags: bool = True,
    delay_levels: Sequence[int] = DELAY_LEVELS_SECONDS,
) -> DispatchRequests:
    """Read the dispatch requests of records that lie one after another in the log."""
    fields = locate(frames)
    topics, codes = topics_of(fields)
    located = LocatedRecords(
        frames.buffer,
        frames.starts,
        frames.sizes,
        topics,
        codes,
        fields.integer("queueId").astype(np.int32),
        fields.sys_flags,
        fields.properties.lengths,
    )
    placed = requests_of_located(
        located,
        fields.integer("storeTimestamp").astype(np.int64),
        index_tags=index_tags,
        delay_levels=delay_levels,
    )
    return replace(
        placed,
        queue_offsets=fields.integer("queueOffset").astype(np.int64),
        physical_offsets=fields.integer("physicalOffset").astype(np.int64),
    )


def requests_of_located(
    located: LocatedRecords,
    store_timestamps: NDArray[np.int64],
    *,
    index_tags: bool = True,
    delay_levels: Sequence[int] = DELAY_LEVELS_SECONDS,
) -> DispatchRequests:
    """Build dispatch requests from fields already located; offsets stay 0 until they are known."""
    topics = list(located.topics)
    hashes = None
    # Delayed messages are few, and their codes are times, not hashes: no kernel for them.
    if SCHEDULE_TOPIC not in topics and availability.is_worth(len(located.starts)):
        hashes = _hashes_compiled(located, topics, index_tags=index_tags)
    if hashes is None:
        hashes = _hashes(
            located, topics, store_timestamps, index_tags=index_tags, delay_levels=delay_levels
        )
    not_placed = np.zeros(len(located.starts), dtype=np.int64)
    return DispatchRequests(
        topics=topics,
        topic_codes=located.topic_codes,
        queue_ids=located.queue_ids,
        queue_offsets=not_placed,
        physical_offsets=not_placed,
        sizes=located.sizes,
        tags_codes=hashes.tags_codes,
        store_timestamps=store_timestamps,
        sys_flags=located.sys_flags,
        index_rows=hashes.index_rows,
        index_hashes=hashes.index_hashes,
    )


def join_requests(parts: Sequence[DispatchRequests]) -> DispatchRequests:
    """Return the requests of all parts, in order; there must be at least one part."""
    if len(parts) == 1:
        return parts[0]
    # A topic of several parts is listed several times: codes need to be right, not smallest.
    firsts = np.cumsum([0, *(len(part.sizes) for part in parts[:-1])]).tolist()
    codes = np.cumsum([0, *(len(part.topics) for part in parts[:-1])]).astype(np.int32)
    return DispatchRequests(
        topics=[topic for part in parts for topic in part.topics],
        topic_codes=np.concatenate(
            [part.topic_codes + code for part, code in zip(parts, codes, strict=True)]
        ),
        queue_ids=np.concatenate([part.queue_ids for part in parts]),
        queue_offsets=np.concatenate([part.queue_offsets for part in parts]),
        physical_offsets=np.concatenate([part.physical_offsets for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        tags_codes=np.concatenate([part.tags_codes for part in parts]),
        store_timestamps=np.concatenate([part.store_timestamps for part in parts]),
        sys_flags=np.concatenate([part.sys_flags for part in parts]),
        index_rows=np.concatenate(
            [part.index_rows + first for part, first in zip(parts, firsts, strict=True)]
        ),
        index_hashes=np.concatenate([part.index_hashes for part in parts]),
    )


class _Hashes(NamedTuple):
    tags_codes: NDArray[np.int64]
    index_rows: NDArray[np.int64]
    index_hashes: NDArray[np.int32]


def _hashes(
    located: LocatedRecords,
    topics: list[str],
    store_timestamps: NDArray[np.int64],
    *,
    index_tags: bool,
    delay_levels: Sequence[int],
) -> _Hashes:
    """Hash tags and index keys by NumPy; the twin of `_hashes_compiled`, for any text."""
    codes = located.topic_codes
    tags, keys, unique, delays = find_values(_texts(located), [TAGS, KEYS, UNIQ_KEY, DELAY])
    tag_hashes = hash_spans(tags)
    tags_codes = tag_hashes.values.astype(np.int64)
    if SCHEDULE_TOPIC in topics:
        scheduled = np.flatnonzero(codes == topics.index(SCHEDULE_TOPIC))
        _put_deliver_times(tags_codes, delays, store_timestamps, scheduled, delay_levels)
    index_keys = IndexKeys(topics, codes, _are_indexed(located))
    index_keys.add_unique(unique)
    index_keys.add_keys(keys)
    if index_tags:  # hashed once: as an index key the tag only moves behind `topic#T#`
        index_keys.add_tags(tags, tag_hashes)
    return _Hashes(tags_codes, *index_keys.in_put_order())


def _hashes_compiled(
    located: LocatedRecords, topics: list[str], *, index_tags: bool
) -> _Hashes | None:
    """Hash tags and index keys by a kernel; the twin of `_hashes`.

    None if a value is not ASCII or there are more keys than room: then `_hashes` has to do it.
    """
    from broker_core.codec.hashing.index_keys_kernels import hash_properties, hash_values
    from broker_core.codec.properties.search_kernels import BLOCK_BYTES, keys_of

    count = len(located.starts)
    tags_codes = np.empty(count, dtype=np.int64)
    rows = np.empty(_KEYS_PER_RECORD * count, dtype=np.int64)
    hashes = np.empty(len(rows), dtype=np.int32)
    rest = (
        arguments.ints(located.topic_codes),
        _are_indexed(located),
        (topic_seeds(topics, KEY_MARK), topic_seeds(topics, TAG_MARK)),
        index_tags,
        tags_codes,
        rows,
        hashes,
    )
    values = located.dispatch_values
    # A value with 0x02 in it reads shorter in its record, and the record's bytes decide.
    if values is not None and all(_lack(column, PROPERTY_SEPARATOR) for column in values):
        are_single = _lack(values[DISPATCH_PROPERTIES.index(KEYS)], KEY_SEPARATOR)
        found = hash_values(values, are_single, *rest)
    elif len(located.buffer) >= BLOCK_BYTES:  # the search reads whole blocks
        data, starts, lengths = arguments.spans(*_texts(located))
        found = hash_properties(
            data,
            (starts, lengths),
            keys_of(DISPATCH_PROPERTIES),
            *rest,
        )
    else:
        found = -1
    return _Hashes(tags_codes, rows[:found], hashes[:found]) if found >= 0 else None


def _lack(texts: KernelSpans, character: str) -> bool:
    """Tell whether texts that lie one behind the other are ASCII and all lack a character."""
    from broker_core.codec.hashing.index_keys_kernels import lacks

    data, starts, lengths = texts
    return lacks(data[int(starts[0]) : int(starts[-1] + lengths[-1])], ord(character))


def _texts(located: LocatedRecords) -> Spans:
    """Return the properties texts: the last field of each record."""
    lengths = located.properties_lengths
    return Spans(located.buffer, located.starts + located.sizes - lengths, lengths)


def _are_indexed(located: LocatedRecords) -> NDArray[np.bool_]:
    """Return a mask of the records that are indexed: all but those rolled back."""
    indexed: NDArray[np.bool_] = (located.sys_flags & TRANSACTION_MASK) != SysFlag.ROLLBACK
    return indexed


def topics_of(fields: RecordFields) -> tuple[list[str], NDArray[np.int32]]:
    """Return the distinct topics, and for each record the number of its topic among them."""
    if fields.topic is not None:
        return [fields.topic], np.zeros(len(fields.frames), dtype=np.int32)
    column = gather_spans(fields.topics)
    encoded = pc.dictionary_encode(column)
    codes = encoded.indices.to_numpy().astype(np.int32)
    try:
        topics = [raw.decode() for raw in encoded.dictionary.to_pylist()]
    except UnicodeDecodeError as error:
        bad = first_bad_topic(fields)
        assert bad is not None
        raise corrupt(fields.frames, bad) from error
    return topics, codes


def _put_deliver_times(
    tags_codes: NDArray[np.int64],
    delays: Spans,
    stored: NDArray[np.int64],
    rows: NDArray[np.intp],
    delay_levels: Sequence[int],
) -> None:
    """Overwrite the tags codes of delayed messages with their times of delivery."""
    values = gather_spans(delays.take(rows)).to_pylist()
    levels = [_level(text) for text in values]
    delayed = np.flatnonzero(np.array(levels, dtype=np.int64) > 0)
    last = len(delay_levels)
    # As RocketMQ: a level above the last one is the last one, and without levels it is 1 s.
    waits = [1000 * delay_levels[min(levels[at], last) - 1] if last else 1000 for at in delayed]
    tags_codes[rows[delayed]] = stored[rows[delayed]] + np.array(waits, dtype=np.int64)


def _level(text: bytes) -> int:
    """Return a delay level as Java parses an int; 0 if the text is no int."""
    level = int(text) if _INTEGER.fullmatch(text) else 0
    return level if level <= _INT32_MAX else 0
