"""Reading in a task: frames from the broker, Arrow batches to Spark.

Memory is bounded by one batch, whatever the range: a batch ends at `batchRows` rows or 64 MiB of
records, and nothing is kept once Spark has taken it. Only requested columns are built. Bounds are
asked for when the task begins, so what expired since the plan was made is found here. A task's end
is one line in the executor's log: what was read, and what each stage of a filter did.
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
    options: SourceOptions, piece: QueueRange, message_filter: MessageFilter | None
) -> Iterator[pa.RecordBatch]:
    """The messages of a piece of a queue, as Arrow batches in queue order."""
    client = options.client
    tune_worker()
    try:
        broker = client_cache.cached_reader(client)
        batches = PartitionReader(broker, options, message_filter).read(piece)
        yield from coalesce(batches, options.batch_rows, BATCH_BYTES)
    except BrokerError as error:
        client_cache.forget(client)
        raise client_cache.translate(error, client.address, ACTION, attempts=1) from error


class PartitionReader:
    """Reads one range; keeps its place, so that it can go on after a part that has expired."""

    def __init__(
        self, broker: Broker, options: SourceOptions, message_filter: MessageFilter | None
    ) -> None:
        self._broker = broker
        self._options = options
        self._filter = message_filter
        self._report = policy(fail=options.fail_on_data_loss, warn=log.warning)

    def read(self, piece: QueueRange) -> Iterator[pa.RecordBatch]:
        """Batches of the piece, in order."""
        counting = self._broker if isinstance(self._broker, CountingBroker) else None
        before = counting.filter_count if counting else FilterCount()
        wanted = self._first_look(piece)
        rows = 0
        for batch in self._read(wanted):
            rows += batch.num_rows
            yield batch
        work = counting.filter_count - before if counting else FilterCount()
        log.info(
            "event=piece_read queue=%s start=%d end=%d rows=%d %s",
            wanted.queue,
            wanted.start,
            wanted.end,
            rows,
            work,
        )

    def _read(self, rest: OffsetRange) -> Iterator[pa.RecordBatch]:
        while rest.size:
            try:
                for next_offset, batches in self._batches(rest):
                    rest = replace(rest, start=LogicalOffset(next_offset))
                    yield from batches
            except (OffsetRangeError, TopicNotFoundError):
                # Not all of it is there, or retention was faster than we: see what is left.
                left = readable(rest, held_now(self._broker, rest.queue), self._report)
                if left == rest:
                    raise
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
        """Close in on a message that the broker can't find for damage, by halves, and skip it."""
        if rest.size == 1:
            _log_skipped(rest.queue, rest.start, error)
            return
        middle = LogicalOffset((rest.start + rest.end) // 2)
        yield from self._read(replace(rest, end=middle))
        yield from self._read(replace(rest, start=middle))

    def _first_look(self, piece: QueueRange) -> OffsetRange:
        """The range to try. Known numbers are tried as they are: mostly all of it is there."""
        if piece.start is not None and piece.end is not None:
            both = Bounds(LogicalOffset(0), piece.end)
            return resolve(piece, both, self._report)
        return resolve(piece, held_now(self._broker, piece.queue), self._report)

    def _require_end(self, rest: OffsetRange) -> None:
        """A broker that delivers less than it was asked for, without a word, loses messages."""
        if rest.size:
            raise OffsetRangeError(
                f"Queue {rest.queue} delivered messages up to {rest.start} only, not to {rest.end}."
            )

    def _batches(self, wanted: OffsetRange) -> Iterator[tuple[int, Iterable[pa.RecordBatch]]]:
        """What the broker delivers, each with the offset up to which it was examined."""
        rows = self._options.batch_rows
        # Who skips what is damaged must see the records themselves.
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
    """What a queue holds at this moment; nothing if it, or its topic, is gone."""
    try:
        held = broker.offsets(queue.topic).get(queue)
    except TopicNotFoundError:
        return _NOTHING
    return _NOTHING if held is None else Bounds(*held)
