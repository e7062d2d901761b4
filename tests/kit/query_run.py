"""One run of a streaming query over a broker in memory, without Spark: topic t with two queues."""

from __future__ import annotations

from typing import Any

from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.options.options import SourceOptions
from pyspark_rocketmq.plan.offsets import SourceOffset
from pyspark_rocketmq.plan.rate_limit import TriggerLimits
from pyspark_rocketmq.source.microbatch import GroupProgress, MicroBatches
from pyspark_rocketmq.source.offset_reader import OffsetReader
from tests.kit.clock import ManualClock
from tests.kit.memory_broker import MemoryBroker

Q0, Q1, Q2 = (QueueRef("t", "broker-a", number) for number in range(3))


class Run:
    """One run of a query over a broker in memory."""

    def __init__(self, broker: MemoryBroker, **options: str) -> None:
        texts = {"broker": "memory:", "fetchOffset.retryIntervalMs": "10", **options}
        if not {"subscribePattern", "assign"} & texts.keys():
            texts["subscribe"] = texts.get("subscribe", "t")
        self.options = SourceOptions.parse(texts).for_stream()
        self.clock = ManualClock()
        opener: Any = lambda: broker  # noqa: E731 - a Broker as far as the source needs one
        offset_reader = OffsetReader(opener, "memory:", self.options.retry, self.clock)
        group = self.options.consumer_group if self.options.commit_offsets else None
        progress = GroupProgress(opener, group) if group else None
        self.batches = MicroBatches(self.options, offset_reader, self.clock, progress)

    def advance(self, start: SourceOffset, limits: TriggerLimits | None = None) -> SourceOffset:
        return self.batches.advance(start, self.options.limits if limits is None else limits)

    def spans(self, start: SourceOffset, end: SourceOffset) -> list[tuple[int, int, int]]:
        planned = self.batches.plan(start, end)
        return [(each.queue.queue_id, each.start, each.end) for each in planned]


def ten_and_four() -> MemoryBroker:
    """Topic t with 10 messages in queue 0 and 4 in queue 1."""
    broker = MemoryBroker()
    broker.create_topic("t", 2)
    broker.put(Q0, *[b"x"] * 10)
    broker.put(Q1, *[b"x"] * 4)
    return broker


def at(*numbers: int) -> SourceOffset:
    queues = (QueueRef("t", "broker-a", number) for number in range(len(numbers)))
    return SourceOffset(dict(zip(queues, map(LogicalOffset, numbers), strict=True)))
