"""A query that is started with wrong options between right ones delivers every message once.

Also with topics or queues missing for a while. A start that fails must leave no trace: the next
right one goes on as if it had not been.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from broker_core.types import QueueRef
from pyspark_rocketmq.errors import ConnectorError
from pyspark_rocketmq.options.options import SourceOptions
from tests.kit.memory_broker import BROKER_NAME, MemoryBroker, MemoryQueue
from tests.property.test_plan_stream import CRASHES, Query

OTHER_CHOICES = st.sampled_from(
    [
        {"subscribe": "t0"},
        {"subscribe": "t1"},
        {"subscribe": "t0,missing"},
        {"subscribePattern": "^t1"},
        {"subscribePattern": "^nothing"},
        {"assign": f'{{"t0":{{"{BROKER_NAME}":[0]}}}}'},
        {"assign": f'{{"t0":{{"{BROKER_NAME}":[1,2]}},"t1":{{"{BROKER_NAME}":[0]}}}}'},
        {"assign": '{"t0":{"broker-b":[0]}}'},
    ]
)
STARTS = st.sampled_from(["earliest", "latest", f'{{"t0":{{"{BROKER_NAME}":{{"0":1}}}}}}'])


class RestartedQuery(Query):
    """One query, started with other options now and then."""

    fail_on_data_loss = "true"

    @initialize()
    def remember(self) -> None:
        self.hidden: dict[QueueRef, MemoryQueue] = {}

    def run_with(self, options: SourceOptions, steps: int, crash: str) -> None:
        """Start, run a few triggers unless one fails, stop, and take the right options again."""
        right, self.options, self.run = self.options, options, None
        try:
            for _ in range(steps):
                self.step(crash)
        except ConnectorError:
            pass
        self.options, self.run = right, None

    @rule(choice=OTHER_CHOICES, steps=st.integers(1, 3), crash=CRASHES)
    def start_with_another_choice(self, choice: dict[str, str], steps: int, crash: str) -> None:
        texts = {name: text for name, text in self.texts.items() if name != "subscribePattern"}
        self.run_with(SourceOptions.parse({**texts, **choice}).for_stream(), steps, crash)

    @precondition(lambda self: self.committed > 0)
    @rule(start=STARTS, steps=st.integers(1, 3), crash=CRASHES)
    def start_elsewhere(self, start: str, steps: int, crash: str) -> None:
        """Not before a batch is committed: until then the options tell where the query starts."""
        texts = {**self.texts, "startingOffsets": start}
        self.run_with(SourceOptions.parse(texts).for_stream(), steps, crash)

    @precondition(lambda self: self.committed > 0 and self.fail_on_data_loss == "true")
    @rule(steps=st.integers(1, 3), crash=CRASHES)
    def start_on_a_broker_of_another_name(self, steps: int, crash: str) -> None:
        """Not before a queue was read: to a query that knows none, those of any name are new."""
        if self.logged[self.committed - 1] == "{}":
            return
        right, other = self.broker, MemoryBroker()
        for queue, held in right.queues.items():
            other.queues[QueueRef(queue.topic, "broker-b", queue.queue_id)] = held
        self.broker = other
        self.run_with(self.options, steps, crash)
        self.broker = right

    @rule(topic=st.integers(0, 1), is_whole=st.booleans(), steps=st.integers(1, 3), crash=CRASHES)
    def miss_queues_for_a_while(self, topic: int, is_whole: bool, steps: int, crash: str) -> None:
        """A tolerant query loses what it was about to read, and forgets topics that are gone.

        So it misses only queues that no logged batch has to read, of a topic that stays.
        """
        is_strict = self.fail_on_data_loss == "true"
        if not is_strict and self.committed < len(self.logged):
            return
        is_whole = is_whole and is_strict
        for queue in sorted(self.broker.queues):
            if queue.topic == f"t{topic}" and (is_whole or queue.queue_id > 0):
                self.hidden[queue] = self.broker.queues.pop(queue)
        self.run_with(self.options, steps, crash)
        self.broker.queues |= self.hidden
        self.hidden = {}

    def texts_of(self, texts: dict[str, str]) -> dict[str, str]:
        return {**texts, "failOnDataLoss": self.fail_on_data_loss}


class TolerantQuery(RestartedQuery):
    """The same with failOnDataLoss=false: wrong starts run, and leave offsets as they are."""

    fail_on_data_loss = "false"


class LatestRestartedQuery(RestartedQuery):
    """The same, starting at latest."""

    position = "latest"


def run(machine: Any) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=20))


def test_a_strict_query_delivers_every_message_once() -> None:
    run(RestartedQuery)


def test_a_tolerant_query_delivers_every_message_once() -> None:
    run(TolerantQuery)


def test_a_query_from_latest_delivers_every_message_after_its_start_once() -> None:
    run(LatestRestartedQuery)
