"""failOnDataLoss: what counts as data loss, and what is read instead when it is tolerated.

Every case goes through one callback, `report`: it raises when the query must not lose messages and
logs otherwise. Code after a call of `report` is therefore the tolerant branch, and says what is
read instead. Two callers need it: planning a micro-batch on the driver, and reading a range in
a task, where the bounds are those of that moment and not of the plan.

A batch is planned twice: when its end is made up, so that no end that would be refused is logged,
and when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from broker_core.types import LogicalOffset, OffsetRange, QueueRef
from pyspark_rocketmq.errors import DataLossError, source_errors
from pyspark_rocketmq.plan.offsets import Bounds

Report = Callable[[DataLossError], None]


def policy(*, fail: bool, warn: Callable[[str], None]) -> Report:
    """Return the callback for one value of failOnDataLoss."""

    def report(loss: DataLossError) -> None:
        if fail:
            raise loss
        warn(f"condition={loss.condition} {loss.message}")

    return report


def plan_ranges(
    start: Mapping[QueueRef, LogicalOffset],
    end: Mapping[QueueRef, LogicalOffset],
    bounds: Mapping[QueueRef, Bounds],
    report: Report,
    just_resolved: Collection[QueueRef] = (),
    existing: Collection[QueueRef] = (),
) -> list[OffsetRange]:
    """Return the ranges between two offsets, in queue order; queues with nothing to read have none.

    Bounds are only looked at for queues that `start` does not know, which are read from their
    earliest message. The start of `just_resolved` queues was resolved from the options a moment
    ago: it may lie after an `end` that an earlier run logged, and nothing is lost by that, because
    the next batch starts at that end. Queues that `end` lacks are gone, but for `existing` ones.
    """
    report_missing(start.keys() - end.keys(), existing, report)
    found = (
        _old_range(OffsetRange(queue, start[queue], end[queue]), report, queue in just_resolved)
        if queue in start
        else _new_range(queue, end[queue], bounds.get(queue), report)
        for queue in sorted(end)
    )
    return [each for each in found if each is not None and each.size > 0]


def readable(wanted: OffsetRange, held: Bounds, report: Report) -> OffsetRange:
    """Return the part of a range that is there now, perhaps empty, and report what is missing."""
    start, end = wanted.start, wanted.end
    if wanted.size and start < held.earliest:
        lost = min(end, held.earliest) - start
        report(source_errors.offset_expired(wanted.queue, start, held.earliest, lost))
        start = held.earliest
    if wanted.size and end > held.latest:
        report(source_errors.offset_not_reached(wanted.queue, end, held.latest))
        end = held.latest
    return OffsetRange(wanted.queue, start, max(start, end))


def report_missing(
    missing: Collection[QueueRef], existing: Collection[QueueRef], report: Report
) -> None:
    """Report queues that were read before and are not there to be read now, by why they are not."""
    unsubscribed = {queue for queue in missing if queue in existing}
    gone = {queue for queue in missing if queue not in existing}
    if unsubscribed:
        report(source_errors.queues_not_subscribed(unsubscribed))
    if gone:
        report(source_errors.queues_deleted(gone))


def report_skipped(
    start: Mapping[QueueRef, LogicalOffset],
    end: Mapping[QueueRef, LogicalOffset],
    bounds: Mapping[QueueRef, Bounds],
    report: Report,
) -> None:
    """Report messages that a logged first batch may have had, and that lie before its new start.

    Older versions did not log where the first batch began. If messages lie before both the end and
    the start that today's options give, nothing tells whether the batch had them.
    """
    for queue in sorted(start.keys() & end.keys() & bounds.keys()):
        count = min(start[queue], end[queue]) - bounds[queue].earliest
        if count > 0:
            report(source_errors.first_start_unknown(queue, start[queue], count))


def check_target(
    start: Mapping[QueueRef, LogicalOffset],
    end: Mapping[QueueRef, LogicalOffset],
    target: Mapping[QueueRef, LogicalOffset],
    bounds: Mapping[QueueRef, Bounds],
) -> None:
    """Refuse a planned end that no longer fits the target of an AvailableNow run.

    Such a run promises to process what was there when it began, so failOnDataLoss=false does not
    help here. Queues whose offset is only kept were not there, and need not be.
    """
    if end.keys() != target.keys():
        raise source_errors.available_now_queues_differ(end, target)
    lost = {queue for queue in end.keys() - bounds.keys() if end[queue] != start.get(queue)}
    if lost:
        raise source_errors.available_now_queues_lost(lost)
    for queue in sorted(end.keys() & bounds.keys()):
        if end[queue] > target[queue]:
            raise source_errors.available_now_end_after_target(queue, end[queue], target[queue])
        if end[queue] > bounds[queue].latest:
            latest = bounds[queue].latest
            raise source_errors.available_now_end_after_latest(queue, end[queue], latest)


def kept_offsets(
    start: Mapping[QueueRef, LogicalOffset], missing: Collection[QueueRef], topics: Collection[str]
) -> dict[QueueRef, LogicalOffset]:
    """Return the offsets of missing queues whose topics exist, to be handed on unchanged.

    Their numbering goes on, whether the queues were removed or are only left out for a while:
    forgetting their offsets would read them twice. A topic that is gone is forgotten: on a cluster
    it starts at 0 if it returns.
    """
    return {queue: start[queue] for queue in sorted(missing) if queue.topic in topics}


def _old_range(planned: OffsetRange, report: Report, is_just_resolved: bool) -> OffsetRange:
    # The range is then empty, and the next batch starts at its lower end.
    if planned.end < planned.start and not is_just_resolved:
        report(source_errors.offset_went_back(planned.queue, planned.start, planned.end))
    return planned


def _new_range(
    queue: QueueRef, end: LogicalOffset, held: Bounds | None, report: Report
) -> OffsetRange | None:
    if held is None:
        report(source_errors.queue_start_unknown(queue))
        return None
    # A new queue begins at 0 unless messages of it have expired unread.
    if held.earliest > 0:
        report(source_errors.new_queue_starts_late(queue, held.earliest))
    return OffsetRange(queue, held.earliest, end)
