"""Work that is done twice: by a retried task, and by a second driver.

Speculative copies need a Spark of their own: test_sink_speculation.py.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from broker_core.store.io.files import Failpoint
from tests.kit.dying_sink import Deed
from tests.kit.pipelines import PER_BATCH, TIMEOUT_S, Pipeline, driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * TIMEOUT_S)]


@pytest.mark.embedded
@pytest.mark.parametrize("deed", ["raise", "kill"])
@pytest.mark.parametrize("point", [Failpoint.MARKED_CLEAN, "end"])
def test_what_a_task_wrote_before_it_was_retried_is_never_seen(
    pipeline: Pipeline, deed: str, point: str
) -> None:
    pipeline.feed(2 * PER_BATCH)
    pipeline.control.arm(Deed("write", point, deed=deed))

    running = driver(pipeline.store.parent, "local[2,3]")
    output, _ = running.communicate(timeout=TIMEOUT_S)

    assert running.returncode == 0, output
    assert pipeline.control.is_done
    pipeline.require_all_once()


@pytest.mark.parametrize("point", ["begin", "end"])
def test_two_drivers_on_one_checkpoint_write_every_message_once(
    spark: SparkSession, pipeline: Pipeline, point: str
) -> None:
    pipeline.feed(2 * PER_BATCH)
    pipeline.control.arm(Deed("commit", point, deed="wait"))
    first = driver(pipeline.store.parent)
    pipeline.control.wait_until_done()

    second = pipeline.run(spark)
    pipeline.control.go()
    output, _ = first.communicate(timeout=TIMEOUT_S)

    assert second is None
    assert first.returncode != 0, "the first driver did not notice that it was overtaken"
    assert "CONCURRENT_STREAM_LOG_UPDATE" in output
    pipeline.require_all_once()
