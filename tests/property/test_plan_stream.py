"""A streaming query as a state machine: whatever happens, every message is delivered once.

The engine is modelled on what Spark does: an offset log, a commit log, batches that run again after
a crash with the ends that were logged, and a start that is asked for anew in every run. The sink is
idempotent per batch, as an exactly-once sink is.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker_core.types import LogicalOffset, QueueRef
from pyspark_rocketmq.options.options import SourceOptions
from pyspark_rocketmq.plan.offsets import SourceOffset
from pyspark_rocketmq.plan.rate_limit import TriggerLimits
from pyspark_rocketmq.source.microbatch import MicroBatches
from pyspark_rocketmq.source.offset_reader import OffsetReader
from pyspark_rocketmq.source.partition import QueuePartition
from pyspark_rocketmq.source.partition_reader import PartitionReader
from tests.kit.clock import ManualClock
from tests.kit.memory_broker import BROKER_NAME, MemoryBroker

Place = tuple[QueueRef, int]
CRASHES = st.sampled_from(["no", "no", "after logging", "after delivery"])


class Query(RuleBasedStateMachine):
    """One query with its checkpoint, over a broker that others write to."""

    position = "earliest"

    def __init__(self) -> None:
        super().__init__()
        self.broker = MemoryBroker()
        self.clock = ManualClock()
        self.run: MicroBatches | None = None
        self.logged: list[str] = []
        self.committed = 0
        self.delivered: dict[int, list[Place]] = {}
        self.first: SourceOffset | None = None

    @initialize(
        limit=st.none() | st.integers(1, 6),
        minimum=st.none() | st.integers(1, 3),
        splits=st.none() | st.integers(1, 4),
    )
    def begin(self, limit: int | None, minimum: int | None, splits: int | None) -> None:
        texts = {
            "broker": "memory:",
            "subscribePattern": "^t",
            "startingOffsets": self.position,
            "columns": "topic,brokerName,queueId,queueOffset",
        }
        given = {"maxOffsetsPerTrigger": limit, "minPartitions": splits}
        if limit is None or minimum is None or minimum <= limit:
            given["minOffsetsPerTrigger"] = minimum
        texts |= {name: str(value) for name, value in given.items() if value is not None}
        self.texts = self.texts_of(texts)
        self.options = SourceOptions.parse(self.texts).for_stream()
        self.broker.create_topic("t0", 1)

    def texts_of(self, texts: dict[str, str]) -> dict[str, str]:
        """The options of a query, from those that every kind of it has."""
        return texts

    @rule(topic=st.integers(0, 1), queue_id=st.integers(0, 2), count=st.integers(1, 5))
    def send(self, topic: int, queue_id: int, count: int) -> None:
        queue = QueueRef(f"t{topic}", BROKER_NAME, queue_id)
        if queue in self.broker.queues:
            self.broker.put(queue, *[b"x"] * count)

    @rule(topic=st.integers(0, 1), total=st.integers(1, 3))
    def grow(self, topic: int, total: int) -> None:
        self.broker.create_topic(f"t{topic}", total)

    @rule()
    def crash(self) -> None:
        self.run = None

    @rule(duration_ms=st.integers(0, 10**6))
    def wait(self, duration_ms: int) -> None:
        self.clock.pass_ms(duration_ms)

    @rule(crash=CRASHES)
    def trigger(self, crash: str) -> None:
        self.step(crash)

    @precondition(lambda self: self.committed > 0)
    @rule()
    def lose_the_last_commit(self) -> None:
        """A driver that dies before its last batch is in the commit log."""
        if self.committed == len(self.logged):
            self.committed -= 1
            self.run = None

    @invariant()
    def nothing_is_delivered_twice(self) -> None:
        places = [place for rows in self.delivered.values() for place in rows]
        assert len(places) == len(set(places))

    def teardown(self) -> None:
        """In the end everything from the start on has been delivered."""
        if not hasattr(self, "options"):
            return
        self.clock.pass_ms(10**9)
        while self.step("no"):
            self.clock.pass_ms(10**9)
        assert self.first is not None
        expected = {
            (queue, offset)
            for queue, held in self.broker.queues.items()
            for offset in range(self.first.get(queue, LogicalOffset(0)), len(held.records))
        }
        assert {place for rows in self.delivered.values() for place in rows} == expected

    def step(self, crash: str) -> bool:
        """One trigger; whether it ran a batch."""
        if self.run is None:
            self.run = self.new_run()
        if self.committed == len(self.logged):
            start = self.start_of(len(self.logged))
            end = self.run.advance(start, self.options.limits)
            if end == start and self.logged:
                return False
            self.logged.append(json.dumps(end.to_json()))
            self.first = start if self.first is None else self.first
            if crash == "after logging":
                self.run = None
                return True
        batch_id = self.committed
        self.deliver(batch_id)
        if crash == "after delivery":
            self.run = None
            return True
        self.committed = batch_id + 1
        return True

    def start_of(self, batch_id: int) -> SourceOffset:
        assert self.run is not None
        if batch_id == 0:
            return SourceOffset.from_json(json.loads(json.dumps(self.run.initial().to_json())))
        return SourceOffset.from_json(json.loads(self.logged[batch_id - 1]))

    def deliver(self, batch_id: int) -> None:
        assert self.run is not None
        start, end = self.start_of(batch_id), SourceOffset.from_json(self.logged[batch_id])
        broker: Any = self.broker
        rows: list[Place] = []
        for planned in self.run.plan(start, end):
            partition = pickle.loads(pickle.dumps(QueuePartition(planned)))
            for batch in PartitionReader(broker, self.options, None).read(partition.value):
                rows += [
                    (QueueRef(row["topic"], row["brokerName"], row["queueId"]), row["queueOffset"])
                    for row in batch.to_pylist()
                ]
        self.delivered[batch_id] = rows

    def new_run(self) -> MicroBatches:
        opener: Any = lambda: self.broker  # noqa: E731 - a Broker as far as the source needs one
        offset_reader = OffsetReader(opener, "memory:", self.options.retry, self.clock)
        return MicroBatches(self.options, offset_reader, self.clock)


class LatestQuery(Query):
    """The same, starting at latest: from the offset that the first batch pinned."""

    position = "latest"


def test_a_query_from_earliest_delivers_every_message_once() -> None:
    run_state_machine_as_test(Query, settings=settings(max_examples=60, stateful_step_count=25))


def test_a_query_from_latest_delivers_every_message_after_its_start_once() -> None:
    run_state_machine_as_test(
        LatestQuery, settings=settings(max_examples=60, stateful_step_count=25)
    )


def test_where_a_batch_ends_depends_on_its_start_and_the_broker_alone() -> None:
    broker = MemoryBroker()
    broker.create_topic("t", 3)
    for number in range(3):
        broker.put(QueueRef("t", BROKER_NAME, number), *[b"x"] * (number * 7 + 1))
    texts = {"broker": "memory:", "subscribe": "t", "startingOffsets": "earliest"}
    options = SourceOptions.parse(texts | {"maxOffsetsPerTrigger": "5"}).for_stream()
    fake: Any = broker
    clock = ManualClock()

    def fresh() -> MicroBatches:
        return MicroBatches(options, OffsetReader(lambda: fake, "m", options.retry, clock), clock)

    kept, place, other = fresh(), fresh().initial(), fresh().initial()
    for _ in range(10):
        place = kept.advance(place, options.limits)
        other = fresh().advance(other, options.limits)

        assert place == other
    assert kept.advance(place, TriggerLimits()) == place
