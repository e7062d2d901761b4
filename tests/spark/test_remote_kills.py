"""Kill -9 of the broker behind gRPC while a query writes to it; sync flush, started again.

The query notices nothing: its calls are repeated until the broker is back, prepared messages of a
lost answer are never named by a decision, and a decision that was made is found in the log.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from broker_core.store.io.files import Failpoint
from tests.kit.pipelines import PER_BATCH, TIMEOUT_S, Pipeline
from tests.kit.served_child import RestartedBroker
from tests.spark.conftest import REMOTE_FILES

pytestmark = [pytest.mark.crash, pytest.mark.embedded, pytest.mark.timeout(2 * TIMEOUT_S)]

PLACES = [
    Failpoint.MARKED_APPENDING,
    Failpoint.LOG_WRITTEN,
    Failpoint.LOG_SYNCED,
    Failpoint.MARKED_DISPATCHING,
    Failpoint.QUEUE_WRITTEN,
    Failpoint.MARKED_CLEAN,
]
EVERYDAY = [
    (Failpoint.LOG_WRITTEN, 1),  # the first task's messages
    (Failpoint.LOG_SYNCED, 3),  # the first batch's decision
    (Failpoint.QUEUE_WRITTEN, 6),  # what the decision makes visible, or the next batch
]
EVERY = [(place, count) for place in PLACES for count in range(1, 9)]


def survive(spark: SparkSession, pipeline: Pipeline, place: Failpoint, count: int) -> None:
    pipeline.feed(2 * PER_BATCH)
    served = RestartedBroker(pipeline.store, (place, count), REMOTE_FILES)
    try:
        pipeline.move_to(served.address)
        error = pipeline.run(spark, flush="sync")
        pipeline.feed(PER_BATCH)
        assert pipeline.run(spark, flush="sync") is None
        written = pipeline.written()
    finally:
        served.close()
        pipeline.move_back()

    assert error is None
    assert served.deaths == 1, "it was not killed: the place is never reached so often"
    assert written == sorted(pipeline.sent)
    pipeline.require_all_once()


@pytest.mark.parametrize(("place", "count"), EVERYDAY)
def test_a_broker_that_is_killed_while_a_query_writes_loses_and_doubles_nothing(
    spark: SparkSession, pipeline: Pipeline, place: Failpoint, count: int
) -> None:
    survive(spark, pipeline, place, count)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "count"), EVERY)
def test_a_broker_that_is_killed_anywhere_in_a_write_loses_and_doubles_nothing(
    spark: SparkSession, pipeline: Pipeline, place: Failpoint, count: int
) -> None:
    survive(spark, pipeline, place, count)
