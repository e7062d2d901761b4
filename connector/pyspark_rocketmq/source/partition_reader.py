"""Reading a partition in a task: frames from the broker, Arrow batches to Spark.

The last step of a read: `read_partition` gets the range that `partition.py` carried here and pulls
it from the broker (`Broker.pull`, broker_core/api.py).

Memory is bounded by one batch, whatever the range: a batch ends at `batchRows` rows or 64 MiB of
records, and nothing is kept once Spark has taken it. Only requested columns are built. Messages
that expired since the plan was made are noticed here, when the broker refuses the range, and are
treated as failOnDataLoss says. A task ends with one line in the executor's log: the range, the
rows, and how many messages each stage of a filter dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from broker_core.api import CountingBroker, ProjectingBroker
from broker_core.codec.decode import decode
from broker_core.errors import (
    BrokerError,
    CorruptRecordError,
    OffsetRangeError,
    TopicNotFoundError,
)
from broker_core.filter.pipeline import FilterCount, MessageFilter
from broker_core.process_settings import tune_worker
from broker_core.types import LogicalOffset, OffsetRange
from pyspark_rocketmq import client_cache
from pyspark_rocketmq.coalesce import coalesce
from pyspark_rocketmq.plan.bounded import QueueRange, resolve
from pyspark_rocketmq.plan.dataloss import policy, readable
from pyspark_rocketmq.plan.offsets import Bounds

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.api import Broker
    from broker_core.codec.frames import FrameBatch
    from broker_core.types import QueueRef
    from pyspark_rocketmq.options.options import SourceOptions

log = logging.getLogger(__name__)

BATCH_BYTES = 64 << 20
ACTION = "deliver messages"
_NOTHING = Bounds(LogicalOffset(0), LogicalOffset(0))


def read_partition(
    options: SourceOptions,
    wanted: OffsetRange | QueueRange,
    message_filter: MessageFilter | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range as Arrow batches, in queue order."""
    client = options.client
    tune_worker()
    try:
        broker = client_cache.cached_reader(client)
        batches = PartitionReader(broker, options, message_filter).read(wanted)
        yield from coalesce(batches, options.batch_rows, BATCH_BYTES)
    except BrokerError as error:
        client_cache.forget(client)
        raise client_cache.translate(error, client.address, ACTION, attempts=1) from error


class PartitionReader:
    """Reads one range, and continues behind a part of it that has expired or is damaged."""

    def __init__(
        self, broker: Broker, options: SourceOptions, message_filter: MessageFilter | None
    ) -> None:
        self._broker = broker
        self._options = options
        self._filter = message_filter
        self._report = policy(fail=options.fail_on_data_loss, warn=log.warning)

    def read(self, wanted: OffsetRange | QueueRange) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a range, in order; OffsetRangeError if the broker stops early."""
        counting = self._broker if isinstance(self._broker, CountingBroker) else None
        before = counting.filter_count if counting else FilterCount()
        planned = self._resolved(wanted)
        rows = 0
        for batch in self._read(planned):
            rows += batch.num_rows
            yield batch
        work = counting.filter_count - before if counting else FilterCount()
        log.info(
            "event=range_read queue=%s start=%d end=%d rows=%d %s",
            planned.queue,
            planned.start,
            planned.end,
            rows,
            work,
        )

    def _read(self, rest: OffsetRange) -> Iterator[pa.RecordBatch]:
        # `rest.start` moves with every batch, so a retry never yields a message twice.
        while rest.size:
            try:
                for next_offset, batches in self._batches(rest):
                    rest = replace(rest, start=LogicalOffset(next_offset))
                    yield from batches
            except (OffsetRangeError, TopicNotFoundError):
                # Part of the range is gone, perhaps deleted by retention while it was being read.
                left = readable(rest, held_now(self._broker, rest.queue), self._report)
                if left == rest:
                    raise  # all of it is there after all: asking again would loop
                rest = left
            except CorruptRecordError as error:
                if not self._options.skip_corrupt:
                    raise
                yield from self._read_around(rest, error)
                return
            else:
                self._require_end(rest)
                return

    def _read_around(
        self, rest: OffsetRange, error: CorruptRecordError
    ) -> Iterator[pa.RecordBatch]:
        """Read a range in halves, down to the one message that is damaged, and skip that."""
        if rest.size == 1:
            _log_skipped(rest.queue, rest.start, error)
            return
        middle = LogicalOffset((rest.start + rest.end) // 2)
        yield from self._read(replace(rest, end=middle))
        yield from self._read(replace(rest, start=middle))

    def _resolved(self, wanted: OffsetRange | QueueRange) -> OffsetRange:
        """Return the range to try; ask the broker for the queue's bounds only if an end is open.

        With both ends known the range is tried unchecked: it is nearly always there, and a broker
        that lacks part of it says so.
        """
        if isinstance(wanted, OffsetRange):
            return wanted
        if wanted.start is not None and wanted.end is not None:
            return resolve(wanted, Bounds(LogicalOffset(0), wanted.end), self._report)
        return resolve(wanted, held_now(self._broker, wanted.queue), self._report)

    def _require_end(self, rest: OffsetRange) -> None:
        """Raise OffsetRangeError if the broker ended a pull before the end of the range."""
        if rest.size:
            raise OffsetRangeError(
                f"Queue {rest.queue} delivered messages up to {rest.start} only, not to {rest.end}."
            )

    def _batches(self, wanted: OffsetRange) -> Iterator[tuple[int, Iterable[pa.RecordBatch]]]:
        """Yield batches, each with the offset up to which messages were examined.

        A remote core projects columns itself (ProjectingBroker), so only those travel. Every other
        broker delivers frames, which are decoded here.
        """
        rows = self._options.batch_rows
        # skipCorrupt decodes here: it must find the damaged record among the frames.
        if isinstance(self._broker, ProjectingBroker) and not self._options.skip_corrupt:
            for found in self._broker.pull_columns(
                wanted,
                self._options.columns,
                message_filter=self._filter,
                batch_rows=rows,
                batch_bytes=BATCH_BYTES,
            ):
                yield found.next_offset, [found.rows]
            return
        for frames in self._broker.pull(
            wanted, message_filter=self._filter, batch_rows=rows, batch_bytes=BATCH_BYTES
        ):
            yield frames.next_offset, self._decoded(frames)

    def _decoded(self, frames: FrameBatch) -> Iterator[pa.RecordBatch]:
        if not len(frames):
            return
        name = frames.queue.broker_name if frames.queue else ""
        try:
            yield decode(frames, self._options.columns, name)
        except CorruptRecordError as error:
            if not self._options.skip_corrupt:
                raise
            if len(frames) > 1:
                half = len(frames) // 2
                yield from self._decoded(frames.slice(0, half))
                yield from self._decoded(frames.slice(half, len(frames)))
                return
            _log_skipped(frames.queue, int(frames.offsets[0]), error)


def _log_skipped(queue: QueueRef | None, offset: int, error: CorruptRecordError) -> None:
    log.warning("event=corrupt_record_skipped queue=%s offset=%d: %s", queue, offset, error)


def held_now(broker: Broker, queue: QueueRef) -> Bounds:
    """Return the bounds of a queue now; (0, 0) if the queue or its topic is gone."""
    try:
        held = broker.offsets(queue.topic).get(queue)
    except TopicNotFoundError:
        return _NOTHING
    return _NOTHING if held is None else Bounds(*held)
