"""A streaming query's run on the driver, without Spark: start, advance, plan, report.

`stream.py` calls this with Spark's calls. Questions to the broker go through `offset_reader.py`;
every decision is a pure function of `plan/`: starting_offsets (where a query begins), rate_limit
(where a batch ends), dataloss and split (which ranges its tasks read).

**Problem.** Spark may kill the driver at any instruction, ask a question twice, and run a batch
again. Each message must be read by exactly one batch.

**Invariants.** Only Spark's offset log survives a restart; everything kept here may be lost. Where
a batch ends depends on its start, the limits and the broker alone, minOffsetsPerTrigger's waiting
apart. A batch that is in the offset log reads the ranges between its two offsets whenever it runs,
whatever is subscribed by then. An end that planning would refuse is refused before Spark gets it:
a start with wrong options leaves the offset log as it was, and the right ones go on from there.

**Outline.** Three things are kept, each for one run of the query:

- the initial offset. Spark asks for it more than once and writes it down nowhere, and the answers
  of one run must agree. So the end of the first batch also says where it began (plan/offsets.py): a
  later run reads that batch as it was logged, whatever its options say. A start that could move
  over unread messages (latest, the offsets of a consumer group) is pinned: the first batch is
  empty, so that the start reaches the offset log before any message is read.
- the target of an AvailableNow run: what the broker held when the run first looked.
- when the last batch was worth running, for minOffsetsPerTrigger.

**Rejected.** Repeating the last answer while a query is idle: a message sent before the call must
be seen by it, so the pause comes before the question. Taking the target of an AvailableNow run as
soon as Spark announces the run: a batch that an earlier run left undone is planned before that,
and must not be judged by it. Leaving queues out of an end because nothing chooses them now: the
next start would take them for new and read them twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from broker_core.errors import BrokerError
from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.plan.dataloss import (
    check_target,
    kept_offsets,
    plan_ranges,
    policy,
    readable,
    report_missing,
    report_skipped,
)
from pyspark_rocketmq.plan.offsets import Bounds, SourceOffset
from pyspark_rocketmq.plan.rate_limit import (
    TriggerLimits,
    batch_end,
    is_worth_a_batch,
)
from pyspark_rocketmq.plan.split import split
from pyspark_rocketmq.plan.starting_offsets import Start, resolve_start
from pyspark_rocketmq.plan.subscription import chosen

if TYPE_CHECKING:
    from broker_core.api import Broker
    from pyspark_rocketmq.options.options import SourceOptions
    from pyspark_rocketmq.source.offset_reader import Clock, OffsetReader

log = logging.getLogger(__name__)

IDLE_PAUSE_MS = 25


class MicroBatches:
    """Decides what each micro-batch reads. One instance per run of a query; not thread-safe."""

    def __init__(
        self,
        options: SourceOptions,
        offset_reader: OffsetReader,
        clock: Clock,
        progress: GroupProgress | None = None,
    ) -> None:
        self._options = options
        self._offset_reader = offset_reader
        self._clock = clock
        self._progress = progress
        self._initial: Start | None = None
        self._is_pinned = False
        self._has_planned = False
        self._is_available_now = False
        self._target: dict[QueueRef, LogicalOffset] | None = None
        self._last_batch_ms = 0
        self._idle_since_ms: int | None = None
        self._latest: SourceOffset | None = None
        self._missing: frozenset[QueueRef] = frozenset()
        self._report_loss = policy(fail=options.fail_on_data_loss, warn=log.warning)

    def get_ready(self) -> None:
        """Open the broker, so that the first batch need not wait for it."""
        self._offset_reader.get_ready()

    def initial(self) -> SourceOffset:
        """Return where a query without a checkpoint starts; every call of a run agrees."""
        if self._initial is None:
            self._initial = self._resolve_start()
        return SourceOffset(self._initial.offsets)

    def prepare_available_now(self) -> None:
        """Make this an AvailableNow run.

        The target is taken at the next `advance`, not here: a batch that an earlier run left undone
        is planned before that and must not be judged by it.
        """
        self._is_available_now = True

    def advance(self, start: SourceOffset, limits: TriggerLimits) -> SourceOffset:
        """Return where the batch after `start` ends; `start` itself if there is nothing to run.

        DataLossError instead of an end that `plan` would refuse.
        """
        self._pause_if_idle()
        self._report_progress(start)
        options = self._options
        bounds = self._offset_reader.settled_bounds(
            options.subscription, start, may_lack=not options.fail_on_data_loss
        )
        kept = self._kept(start, bounds)
        end = self._end(start, bounds, kept, limits)
        self._refuse(start, end, bounds)
        self._idle_since_ms = self._clock.now_ms() if end == start else None
        if self._is_first(start):
            return SourceOffset(end.queues, start.queues)
        # Spark compares texts: "nothing to run" is `start` with all that it says.
        return start if end == start else end

    def latest(self) -> SourceOffset | None:
        """Return the end of all queues as `advance` last saw it; None before the first call."""
        return self._latest

    def plan(self, start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
        """Return the ranges of a batch, one per task."""
        self._is_pinned = self._has_planned = True  # a batch that is planned is in the offset log
        resolved = None
        if end.start is not None and start.start is None:
            start = SourceOffset(end.start)  # a first batch, as it was logged
        else:
            resolved = self._just_resolved(start)
        if resolved is not None:
            # Leave out queues that came after the end was logged; the next batch finds them new.
            start = SourceOffset({queue: start[queue] for queue in start if queue in end})
            end = self._resolvable(start, end)
            self._log_hidden_loss(start, end)
        # Known queues need no bounds: the tasks notice what is missing.
        unknown = start.keys() ^ end.keys() if self._target is None else start.keys() | end.keys()
        bounds = self._existing(unknown)
        if self._target is not None:
            check_target(start, end, self._target, bounds)
        return split(
            plan_ranges(start, end, bounds, self._report_loss, resolved or (), bounds),
            min_tasks=self._options.min_partitions,
            max_messages=self._options.max_records_per_partition,
        )

    def queues(self) -> set[QueueRef]:
        """Return the queues that can be read now."""
        return set(self._offset_reader.bounds(self._options.subscription))

    def commit(self, end: SourceOffset) -> None:
        """Take note that the batch that ended here is committed."""
        self._report_progress(end)

    def close(self) -> None:
        """Close the broker of the questions and that of the reports."""
        self._offset_reader.close()
        if self._progress is not None:
            self._progress.close()

    def _log_hidden_loss(self, start: SourceOffset, end: SourceOffset) -> None:
        """Warn of queues of a repeated first batch whose start has moved behind the logged end.

        The batch read those messages the first time; they have expired since.
        """
        if self._initial is None or self._initial.is_movable:
            return
        for queue in sorted(start):
            if end[queue] < start[queue]:
                template = "event=first_batch_replayed queue=%s end=%d earliest=%d: some expired"
                log.warning(template, queue, end[queue], start[queue])

    def _is_first(self, start: SourceOffset) -> bool:
        """Tell whether the batch after `start` is the query's first, whose start is in no log."""
        return (
            not self._has_planned
            and start.start is None
            and self._initial is not None
            and start == SourceOffset(self._initial.offsets)
        )

    def _just_resolved(self, start: SourceOffset) -> frozenset[QueueRef] | None:
        """Return the queues whose start was resolved after an older version had logged the end.

        None if `start` was logged too, or if this run made the end: then it must fit the start.
        """
        has_advanced = self._latest is not None
        if has_advanced or self._initial is None or start != SourceOffset(self._initial.offsets):
            return None
        return frozenset(start.keys() - self._initial.given)

    def _resolvable(self, start: SourceOffset, end: SourceOffset) -> SourceOffset:
        """Return what counts of the logged end of a first batch whose start was just resolved.

        Whatever these options do not read, and the batch may have had, is reported. Older versions
        pinned a movable start by an empty batch: of queues that are not chosen any more, nothing is
        read then.
        """
        others = end.keys() - start.keys()
        report_missing(others & self._existing(others).keys(), others, self._report_loss)
        report_skipped(start, end, self._existing(start), self._report_loss)
        if self._initial is not None and self._initial.is_movable:
            return SourceOffset({queue: end[queue] for queue in end if queue not in others})
        return end

    def _kept(
        self, start: SourceOffset, bounds: dict[QueueRef, Bounds]
    ) -> dict[QueueRef, LogicalOffset]:
        """Return the offsets of queues that were read before and are not there to be read now.

        They are reported, tolerated ones once per run and not with every question. A queue that
        came back since `bounds` was asked for is not: it only has to wait for the next batch.
        """
        missing = start.keys() - bounds.keys()
        existing = self._existing(missing)
        back = chosen(self._options.subscription, existing.keys()) & missing
        lost = frozenset(missing - back)
        if lost != self._missing:
            report_missing(lost, existing, self._report_loss)
            self._missing = lost
        return kept_offsets(start, missing, {queue.topic for queue in existing})

    def _existing(self, queues: Collection[QueueRef]) -> dict[QueueRef, Bounds]:
        """Return what the topics of some queues hold; asks nothing if there is none."""
        topics = {queue.topic for queue in queues}
        found = self._offset_reader.existing(topics) if topics else {}
        return {queue: held for of_topic in found.values() for queue, held in of_topic.items()}

    def _refuse(
        self, start: SourceOffset, end: SourceOffset, bounds: dict[QueueRef, Bounds]
    ) -> None:
        """Raise what `plan` or a task would raise; what they would only log is logged there.

        An end beyond what can be read now, of a broker that was given by mistake, would stay in the
        offset log for good.
        """
        if end == start:
            return
        if self._target is not None:
            check_target(start, end, self._target, bounds)
        if self._options.fail_on_data_loss:
            for planned in plan_ranges(start, end, bounds, self._report_loss):
                if planned.queue in bounds:
                    readable(planned, bounds[planned.queue], self._report_loss)

    def _resolve_start(self) -> Start:
        spec = self._options.starting
        assert spec is not None, "options were not prepared for a stream"
        bounds = self._offset_reader.bounds(self._options.subscription)
        start = resolve_start(
            spec,
            bounds,
            self._offset_reader.answers(spec, bounds.keys()),
            late_is_latest=self._options.late_is_latest,
        )
        log.info("event=start offsets=%s", SourceOffset(start.offsets).render())
        return start

    def _end(
        self,
        start: SourceOffset,
        bounds: dict[QueueRef, Bounds],
        kept: dict[QueueRef, LogicalOffset],
        limits: TriggerLimits,
    ) -> SourceOffset:
        available = {queue: held.latest for queue, held in bounds.items()} | kept
        if self._is_available_now and self._target is None:
            self._target = available
        self._latest = SourceOffset(available)
        reachable = available if self._target is None else self._target
        # With no queue at all stay at `start`: an empty offset would forget every queue's offset,
        # and Spark has no way to say "none yet".
        if (
            not reachable
            or self._must_pin(start)
            or not self._is_time_for_a_batch(start, reachable, limits)
        ):
            return start
        return SourceOffset(
            batch_end(start, reachable, bounds, limits, self._offset_reader.measure)
        )

    def _must_pin(self, start: SourceOffset) -> bool:
        """Return True, once per run, if this batch must be empty to log a movable start."""
        if self._is_pinned or self._initial is None or not self._initial.is_movable:
            return False
        self._is_pinned = True
        return start == SourceOffset(self._initial.offsets)

    def _is_time_for_a_batch(
        self, start: SourceOffset, end: dict[QueueRef, LogicalOffset], limits: TriggerLimits
    ) -> bool:
        now_ms = self._clock.now_ms()
        if not is_worth_a_batch(start, end, limits, now_ms - self._last_batch_ms):
            return False
        self._last_batch_ms = now_ms
        return True

    def _pause_if_idle(self) -> None:
        """Wait until 25 ms after the last idle answer: an idle query asks about every 12 ms.

        Waiting before asking, instead of repeating an answer, keeps every answer fresh: a message
        that was sent before the call is seen by it.
        """
        if self._idle_since_ms is None:
            return
        rest_ms = IDLE_PAUSE_MS - (self._clock.now_ms() - self._idle_since_ms)
        if 0 < rest_ms <= IDLE_PAUSE_MS:
            self._clock.sleep_ms(rest_ms)

    def _report_progress(self, done: SourceOffset) -> None:
        """Report `done`, where the last committed batch ended, to the consumer group.

        Spark commits batch N to the source only when batch N + 1 begins, but it asks for the next
        offset as soon as batch N is in its commit log; so progress is reported at both.
        """
        is_initial = self._initial is not None and done == SourceOffset(self._initial.offsets)
        if self._progress is not None and not is_initial:
            self._progress.report(done)


class GroupProgress:
    """Commits a query's offsets to a consumer group, for RocketMQ's tools to show the lag.

    Spark's checkpoint alone decides what is read. So progress is reported on a broker of its own,
    which `opener` opens for writing when there is something to report. An error is logged and stops
    nothing: the next report repeats every queue that has moved.
    """

    def __init__(self, opener: Callable[[], Broker], group: str) -> None:
        self._opener = opener
        self._group = group
        self._broker: Broker | None = None
        self._reported = SourceOffset({})

    def report(self, done: SourceOffset) -> None:
        """Move the group to `done`; only queues that moved since the last report are sent."""
        moved = [queue for queue in sorted(done) if self._reported.get(queue) != done[queue]]
        try:
            for queue in moved:
                if self._broker is None:
                    self._broker = self._opener()
                self._broker.commit_offset(
                    self._group,
                    queue.topic,
                    queue.queue_id,
                    done[queue],
                    broker_name=queue.broker_name,
                )
        except BrokerError as error:
            log.warning("event=progress_not_reported group=%s error=%s", self._group, error)
            self.close()
            return
        self._reported = done

    def close(self) -> None:
        """Close the broker; the next report opens it again."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()
