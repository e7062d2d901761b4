"""Errors of reads: ROCKETMQ_DATA_LOSS, ROCKETMQ_AVAILABLE_NOW and ROCKETMQ_CHECKPOINT.

One function per condition. It returns the error and the caller raises it; the sentences are in
pyspark_rocketmq/conditions.py. With failOnDataLoss=false data loss is logged instead: see
plan/dataloss.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_rocketmq.errors import CheckpointError, DataLossError, listed, shown

if TYPE_CHECKING:
    from broker_core.types import QueueRef


# ROCKETMQ_AVAILABLE_NOW


def available_now_end_after_latest(queue: QueueRef, end: int, latest: int) -> DataLossError:
    """Report a planned end beyond what the queue holds now."""
    return DataLossError(
        "ROCKETMQ_AVAILABLE_NOW.END_AFTER_LATEST",
        {"queue": str(queue), "end": end, "latest": latest},
    )


def available_now_end_after_target(queue: QueueRef, end: int, target: int) -> DataLossError:
    """Report a planned end beyond the run's target."""
    return DataLossError(
        "ROCKETMQ_AVAILABLE_NOW.END_AFTER_TARGET",
        {"queue": str(queue), "end": end, "target": target},
    )


def available_now_queues_differ(
    end: Iterable[QueueRef], target: Iterable[QueueRef]
) -> DataLossError:
    """Report a planned end and a target of the run that name different queues."""
    return DataLossError(
        "ROCKETMQ_AVAILABLE_NOW.QUEUES_DIFFER",
        {"end": listed(end), "target": listed(target)},
    )


def available_now_queues_lost(queues: Iterable[QueueRef]) -> DataLossError:
    """Report queues of the planned end that no longer exist."""
    return DataLossError("ROCKETMQ_AVAILABLE_NOW.QUEUES_LOST", {"queues": listed(queues)})


# ROCKETMQ_CHECKPOINT


def checkpoint_malformed(text: object) -> CheckpointError:
    """Report an offset in the checkpoint that this source can't have written."""
    return CheckpointError("ROCKETMQ_CHECKPOINT.MALFORMED", {"text": shown(text)})


# ROCKETMQ_DATA_LOSS


def first_start_unknown(queue: QueueRef, start: int, count: int) -> DataLossError:
    """Report messages that a first batch may have had, whose start is not logged."""
    return DataLossError(
        "ROCKETMQ_DATA_LOSS.FIRST_START_UNKNOWN",
        {"queue": str(queue), "start": start, "count": count},
    )


def new_queue_starts_late(queue: QueueRef, earliest: int) -> DataLossError:
    """Report a queue that is new to the query and does not begin at 0."""
    return DataLossError(
        "ROCKETMQ_DATA_LOSS.NEW_QUEUE_STARTS_LATE",
        {"queue": str(queue), "earliest": earliest, "lost": earliest},
    )


def offset_expired(queue: QueueRef, start: int, earliest: int, lost: int) -> DataLossError:
    """Report messages that retention removed before they were read."""
    return DataLossError(
        "ROCKETMQ_DATA_LOSS.OFFSET_EXPIRED",
        {"queue": str(queue), "start": start, "earliest": earliest, "lost": lost},
    )


def offset_not_reached(queue: QueueRef, end: int, latest: int) -> DataLossError:
    """Report a queue that became shorter after the batch was planned."""
    return DataLossError(
        "ROCKETMQ_DATA_LOSS.OFFSET_NOT_REACHED",
        {"queue": str(queue), "end": end, "latest": latest},
    )


def offset_went_back(queue: QueueRef, start: int, end: int) -> DataLossError:
    """Report a queue that ends before the offset up to which it was read."""
    return DataLossError(
        "ROCKETMQ_DATA_LOSS.OFFSET_WENT_BACK", {"queue": str(queue), "start": start, "end": end}
    )


def queues_deleted(queues: Iterable[QueueRef]) -> DataLossError:
    """Report queues that were read before and no longer exist."""
    return DataLossError("ROCKETMQ_DATA_LOSS.QUEUES_DELETED", {"queues": listed(queues)})


def queues_not_subscribed(queues: Iterable[QueueRef]) -> DataLossError:
    """Report queues that were read before, still exist, and are not chosen any more."""
    return DataLossError("ROCKETMQ_DATA_LOSS.QUEUES_NOT_SUBSCRIBED", {"queues": listed(queues)})


def queue_start_unknown(queue: QueueRef) -> DataLossError:
    """Report a new queue that vanished before its earliest offset was known."""
    return DataLossError("ROCKETMQ_DATA_LOSS.QUEUE_START_UNKNOWN", {"queue": str(queue)})
