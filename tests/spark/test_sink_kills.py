"""Workers and drivers of a pipeline killed with SIGKILL, where it hurts; the query goes on.

A worker that dies fails the batch: Spark aborts it, the query ends, and the test starts it again on
the same checkpoint, as an operator would. A driver that dies takes everything with it.
"""

from __future__ import annotations

import signal

import pytest
from pyspark.sql import SparkSession

from broker_core.store.io.files import Failpoint
from tests.kit.dying_sink import Deed
from tests.kit.pipelines import PER_BATCH, TIMEOUT_S, Pipeline, driver

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

APPEND = [
    Failpoint.MARKED_APPENDING,
    Failpoint.SEGMENT_WRITTEN,
    Failpoint.LOG_WRITTEN,
    Failpoint.MARKED_DISPATCHING,
    Failpoint.QUEUE_WRITTEN,
    Failpoint.INDEX_ENTRIES_WRITTEN,
    Failpoint.INDEX_HEADER_WRITTEN,
    Failpoint.INDEX_SLOTS_WRITTEN,
    Failpoint.MARKED_CLEAN,
]
AT_LANDING = [
    Deed("plan"),
    Deed("write"),
    Deed("write", Failpoint.LOG_WRITTEN),
    Deed("write", "end"),
    Deed("commit"),
    Deed("commit", Failpoint.LOG_WRITTEN),
    Deed("commit", Failpoint.QUEUE_WRITTEN, 2),
    Deed("commit", "end"),
]
EVERY_WORKER = [
    *(Deed(phase, point) for phase in ("plan", "write", "commit") for point in ("begin", "end")),
    *(Deed("write", point, nth) for point in APPEND for nth in (1, 2)),
    *(Deed("commit", point) for point in APPEND),
    *(Deed("commit", Failpoint.QUEUE_WRITTEN, nth) for nth in (2, 3, 4)),
    *(Deed("commit", "begin", deed="raise"), Deed("commit", "end", deed="raise")),
    *(Deed("write", point, deed="raise") for point in ("begin", Failpoint.MARKED_CLEAN, "end")),
]
EVERY_DRIVER = [
    *(Deed("write", point, deed="kill-driver") for point in ("begin", Failpoint.LOG_WRITTEN)),
    Deed("write", "end", deed="kill-driver"),
    *(Deed("commit", point, deed="kill-driver") for point in ("begin", *APPEND[1:], "end")),
]


def kill_one_by_one(spark: SparkSession, pipeline: Pipeline, deeds: list[Deed]) -> None:
    """A batch for every deed, and what must hold after each; then the rest of the input."""
    for deed in deeds:
        pipeline.feed(PER_BATCH)
        pipeline.control.arm(deed)
        error = pipeline.run(spark)
        assert pipeline.control.is_done, f"nothing came to {deed}"
        assert error is not None, f"the query survived {deed}"
        pipeline.require_nothing_twice_or_strange()
    pipeline.feed(PER_BATCH // 2)
    assert pipeline.run(spark) is None
    pipeline.require_all_once()


@pytest.mark.landing
@pytest.mark.embedded
def test_every_message_is_written_once_though_workers_are_killed(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    kill_one_by_one(spark, pipeline, AT_LANDING)


@pytest.mark.landing
def test_every_message_is_written_once_though_the_driver_is_killed_after_its_commit(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    kill_driver(pipeline, Deed("commit", "end", deed="kill-driver"))
    pipeline.feed()

    assert pipeline.run(spark) is None
    pipeline.require_all_once()


@pytest.mark.slow
@pytest.mark.embedded
@pytest.mark.timeout(1800)
def test_every_message_is_written_once_whichever_worker_is_killed_wherever(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    kill_one_by_one(spark, pipeline, EVERY_WORKER)


@pytest.mark.slow
@pytest.mark.embedded
@pytest.mark.parametrize("deed", EVERY_DRIVER, ids=str)
def test_every_message_is_written_once_wherever_the_driver_is_killed(
    spark: SparkSession, pipeline: Pipeline, deed: Deed
) -> None:
    kill_driver(pipeline, deed)
    pipeline.feed()

    assert pipeline.run(spark) is None
    pipeline.require_all_once()


def kill_driver(pipeline: Pipeline, deed: Deed) -> None:
    """Run the query in a driver of its own until it is killed."""
    pipeline.feed(PER_BATCH * 2)
    pipeline.control.arm(deed)
    running = driver(pipeline.store.parent)
    output, _ = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == -signal.SIGKILL, output
    pipeline.require_nothing_twice_or_strange()
