"""Dispatch: makes records of the log findable, by queue offset and by key.

Problem. Consume queues and index are derived from the log. An append, the repair of a dead writer's
batch and recovery must write identical entries for a record, or a store would depend on its past.

Invariants.

- Entries and keys are a function of the log's bytes alone (codec/dispatch_request.py). All three
  callers go through this module.
- A record's consume-queue entry is written before its index keys, and within a queue entries are
  written in log order. So a reader that finds a key finds the queue's message too.
- Dispatching twice changes nothing in consume queues: entry n lies at byte 20 * n. Index keys chain
  to earlier ones, so the index must be rewound first (index/writer.py).

Outline. `group_by_queue` orders a batch's rows by destination. `Dispatcher.planner` returns a pure
function that computes a `DispatchPlan` (packed entries per queue, index entries and slots), so that
an append can run it in another thread while the log is written. `Dispatcher.write` writes the plan.

Next in an append: queue/writer.py, then index/writer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from broker_core.codec.spans import is_one_number
from broker_core.jit import arguments, availability
from broker_core.store.queue.consume_queue import packed_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from broker_core.codec.dispatch_request import DispatchRequests
    from broker_core.store.index.writer import IndexWriter, KeyColumns, Put
    from broker_core.store.queue.writer import QueueKey, QueueWriter

# Up to as many groups are counted or sorted as 16-bit numbers.
_SMALL = 1 << 16


@dataclass(frozen=True, slots=True)
class QueueGroups:
    """Rows of a batch by queue: rows[bounds[i]:bounds[i + 1]] belong to queues[i], in order."""

    queues: tuple[QueueKey, ...]
    rows: NDArray[np.int64]
    bounds: NDArray[np.int64]

    def offsets_from(self, ends: Sequence[int], count: int) -> NDArray[np.int64]:
        """Return each row's queue offset if queue i goes on at ends[i]; 0 for rows of no queue.

        The twin of dispatch_kernels.number_rows, which runs for large batches.
        """
        offsets = np.zeros(count, dtype=np.int64)
        if availability.is_worth(count):
            from broker_core.store.dispatch_kernels import number_rows

            number_rows(self.rows, self.bounds, np.array(ends, dtype=np.int64), offsets)
            return offsets
        lengths = np.diff(self.bounds)
        shift = np.asarray(ends, dtype=np.int64) - self.bounds[:-1]
        offsets[self.rows] = np.arange(len(self.rows), dtype=np.int64) + np.repeat(shift, lengths)
        return offsets


def group_by_queue(
    topics: Sequence[str],
    topic_codes: NDArray[np.int32],
    queue_ids: NDArray[np.int32],
    in_queue: NDArray[np.bool_] | None = None,
) -> QueueGroups:
    """Group rows by topic and queue; only those of the mask, if there is one.

    A topic may be listed twice; its rows are one group.

    >>> group_by_queue(["a", "b"], np.array([1, 0, 1]), np.array([0, 2, 0])).queues
    (('a', 2), ('b', 0))
    """
    # None means all rows: the usual case, which saves a copy of every column.
    chosen = None if in_queue is None or in_queue.all() else np.flatnonzero(in_queue)
    codes = topic_codes if chosen is None else topic_codes[chosen]
    distinct = list(dict.fromkeys(topics))
    if len(distinct) < len(topics):
        codes = np.array([distinct.index(topic) for topic in topics])[codes]
    ids = queue_ids if chosen is None else queue_ids[chosen]
    if not len(ids):
        nothing = np.zeros(0, dtype=np.int64)
        return QueueGroups((), nothing, np.zeros(1, dtype=np.int64))
    # One destination is common (half messages, small appends) and needs no sorting.
    if bool((ids == ids[0]).all()) and bool((codes == codes[0]).all()):
        everything = np.arange(len(ids)) if chosen is None else chosen
        return QueueGroups(
            ((distinct[int(codes[0])], int(ids[0])),), everything, np.array([0, len(ids)])
        )
    # Counted from the lowest id: whatever numbers records have, no two queues share a group.
    lowest = int(ids.min())
    width = int(ids.max()) - lowest + 1
    ids = ids - np.int64(lowest) if lowest else ids
    if len(distinct) * width <= _SMALL and availability.is_worth(len(ids)):
        keys, bounds, order = _counted(codes, ids, len(distinct), width)
    else:
        keys, bounds, order = _sorted(codes, ids, width)
    queues = tuple((distinct[key // width], key % width + lowest) for key in keys.tolist())
    return QueueGroups(queues, order if chosen is None else chosen[order], bounds)


def _sorted(
    codes: NDArray[np.int32], ids: NDArray[np.int32] | NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the groups that have rows, their bounds, and the rows; group g is code * width + id.

    The twin of `_counted`, for small batches and for queue ids that are far apart.
    """
    keys = codes.astype(np.int64) * width + ids
    # NumPy sorts 16-bit keys by counting, everything else by comparing.
    narrow = keys.astype(np.uint16) if int(keys.max()) < _SMALL else keys
    order = np.argsort(narrow, kind="stable").astype(np.int64)
    ordered = keys[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    return ordered[starts], np.append(starts, len(order)), order


def _counted(
    codes: NDArray[np.int32],
    ids: NDArray[np.int32] | NDArray[np.int64],
    topics: int,
    width: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return what `_sorted` does, by dispatch_kernels.group_rows; for large, dense batches."""
    from broker_core.store.dispatch_kernels import group_rows

    ends = np.zeros(topics * width + 1, dtype=np.int64)
    order = np.empty(len(ids), dtype=np.int64)
    group_rows(arguments.ints(codes), arguments.ints(ids), width, ends, order)
    bounds = np.concatenate([[0], ends[:-1]])
    keys = np.flatnonzero(np.diff(bounds))
    return keys, np.append(bounds[keys], len(order)), order


def queue_entries(requests: DispatchRequests, rows: NDArray[np.int64]) -> NDArray[np.void]:
    """Return the consume-queue entries of some records."""
    return packed_entries(requests.physical_offsets, requests.sizes, requests.tags_codes, rows)


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """All that a dispatch writes: entries by queue, each from an offset on, and index keys."""

    entries: list[tuple[QueueKey, int, NDArray[np.void]]]
    keys: KeyColumns
    put: Put | None
    """The keys as entries and slots of the newest index file; None if they are few or do not all
    fit there, which the index writer handles itself."""


class Dispatcher:
    """Writes consume-queue entries and index keys of records that are in the log."""

    def __init__(self, queues: QueueWriter, index: IndexWriter | None) -> None:
        self._queues = queues
        self._index = index

    def planner(
        self, requests: DispatchRequests, groups: QueueGroups
    ) -> Callable[[], DispatchPlan]:
        """Return a function that plans the dispatch of a batch whose records continue their queues.

        The function changes nothing and may run in any thread. Its plan holds until something
        else is dispatched.
        """
        plan_put = None
        if self._index is not None:
            plan_put = self._index.put_planner(len(requests.index_rows))

        def plan() -> DispatchPlan:
            keys = _key_columns(requests)
            entries = queue_entries(requests, groups.rows)
            bounds = groups.bounds.tolist()
            starts = requests.queue_offsets[groups.rows[groups.bounds[:-1]]].tolist()
            parts = [
                (queue, start, entries[first:last])
                for queue, start, (first, last) in zip(
                    groups.queues, starts, pairwise(bounds), strict=True
                )
            ]
            return DispatchPlan(parts, keys, plan_put(keys) if plan_put is not None else None)

        return plan

    def write(self, plan: DispatchPlan) -> None:
        """Write a plan: consume-queue entries first, then index keys."""
        for queue, start, entries in plan.entries:
            self._queues.write(queue, start, entries)
        if self._index is None:
            return
        if plan.put is not None:
            self._index.write(plan.put)
        else:
            self._index.put(*plan.keys)

    def dispatch(self, requests: DispatchRequests) -> None:
        """Write entries and keys of records of the log that continue their queues."""
        groups = group_by_queue(
            requests.topics, requests.topic_codes, requests.queue_ids, requests.in_queue
        )
        self.write(self.planner(requests, groups)())

    def put_keys(self, requests: DispatchRequests, *, skip: int = 0) -> None:
        """Write the index keys of a batch, all but the first `skip` of them."""
        if self._index is not None:
            self._index.put(*_key_columns(requests, skip))


def _key_columns(requests: DispatchRequests, skip: int = 0) -> KeyColumns:
    """Return each index key's hash, and its record's physical offset and store time."""
    rows = requests.index_rows[skip:]
    times = requests.store_timestamps
    times = np.broadcast_to(times[0], len(rows)) if is_one_number(times) else times[rows]
    return requests.index_hashes[skip:], requests.physical_offsets[rows], times
