"""A sink under real speculation: a slow task and its copy both prepare all of their messages.

Spark starts copies on a second host only, so neither the session of the other tests nor
`local-cluster` ever does; tests/kit/two_hosts.py is the smallest Spark that does. One driver writes
three batches and a save on it, in each of which both attempts at a task live until both have
prepared (tests/kit/meeting_sink.py). The original is let go first, then the copy, then both at
once: Spark's commit coordinator lets one of them pass, and the loser's receipt reaches nobody.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import pytest

from broker_core.api import Broker
from broker_core.codec.ids import MAKER_CHARS
from broker_core.codec.property_names import DISCARD_TOPIC, HALF_TOPIC
from tests.kit.meeting_sink import ATTEMPTS, SAVED, WINNERS
from tests.kit.paths import PYTHONPATH, ROOT
from tests.kit.pipelines import PER_BATCH, Pipeline
from tests.kit.served import served
from tests.kit.transactions import visible
from tests.spark.conftest import REMOTE_FILES

DRIVER_S = 600

pytestmark = [
    pytest.mark.slow,  # three JVMs start for it, which is too long for every day
    pytest.mark.timeout(DRIVER_S + 60),
]

Bodies = dict[str, list[str]]


@dataclass(frozen=True)
class Story:
    """What a driver left behind: bodies by the attempt that prepared them, and of those seen."""

    pipeline: Pipeline
    prepared: Bodies
    seen: Bodies

    def attempts(self, batch: str) -> list[str]:
        """The attempts at the slow task of a batch that lived at the same time, by their number."""
        folder = self.pipeline.store.parent / "meetings" / batch
        assert [(folder / f"met-{number}").exists() for number in ATTEMPTS] == [True, True]
        return [(folder / f"prepared-{number}").read_text() for number in ATTEMPTS]


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Story]:
    """One run of the query and the save, to their end."""
    pipeline = Pipeline(tmp_path_factory.mktemp("speculation"))
    pipeline.create()
    pipeline.feed((len(WINNERS) - 1) * PER_BATCH)
    is_remote = request.config.getoption("transport") == "grpc"
    with served(pipeline.store, REMOTE_FILES) if is_remote else nullcontext() as process:
        if process is not None:
            pipeline.move_to(process.address)
        run_driver(pipeline)
        pipeline.sent += SAVED
        with pipeline.open() as broker:
            prepared = by_attempt(broker, HALF_TOPIC, 1)
            seen = by_attempt(broker, "out", 2)
        yield Story(pipeline, prepared, seen)


def run_driver(pipeline: Pipeline) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.meeting_sink", str(pipeline.store.parent)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DRIVER_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def by_attempt(broker: Broker, topic: str, queues: int) -> Bodies:
    """The bodies of a topic, sorted, by the attempt that their unique keys begin with."""
    found: Bodies = {}
    for queue in range(queues):
        for row in broker.read(topic, queue_id=queue, columns=["msgId", "body"]).to_pylist():
            found.setdefault(row["msgId"][:MAKER_CHARS], []).append(row["body"].decode())
    return {attempt: sorted(bodies) for attempt, bodies in found.items()}


@pytest.mark.parametrize("batch", WINNERS)
def test_of_two_attempts_that_prepared_the_same_rows_one_is_seen(story: Story, batch: str) -> None:
    original, copy = story.attempts(batch)

    seen = [attempt for attempt in (original, copy) if attempt in story.seen]

    assert original != copy
    assert story.prepared[original] == story.prepared[copy]
    assert len(story.prepared[copy]) == PER_BATCH // 2
    assert [story.seen[attempt] for attempt in seen] == [story.prepared[original]]


@pytest.mark.parametrize(
    "batch", [batch for batch, winner in WINNERS.items() if winner is not None]
)
def test_the_attempt_that_comes_first_is_the_one_that_is_seen(story: Story, batch: str) -> None:
    winner = WINNERS[batch]

    seen = [number for number in ATTEMPTS if story.attempts(batch)[number] in story.seen]

    assert seen == [winner]


def test_every_message_is_written_once_though_tasks_have_copies(story: Story) -> None:
    story.pipeline.require_all_once()


def test_what_losers_prepared_is_rolled_back(story: Story) -> None:
    losers = story.prepared.keys() - story.seen.keys()

    with story.pipeline.open() as broker:
        report = broker.transactions.check_back()
        discarded = visible(broker, DISCARD_TOPIC)

    assert len(losers) >= len(WINNERS)
    assert (report.waiting, report.given_up, discarded) == (0, 0, [])
