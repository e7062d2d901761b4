from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_rocketmq.source.lag import Lag, LagListener, lag_of


def source(latest: str | None, end: str | None) -> Any:
    return SimpleNamespace(latestOffset=latest, endOffset=end)


def test_lag_is_latest_minus_read_and_a_new_queue_counts_from_zero() -> None:
    lag = lag_of("q", 7, source('{"t":{"b":{"0":10,"1":5,"2":6}}}', '{"t":{"b":{"0":4,"1":5}}}'))

    assert lag == Lag("q", 7, minimum=0, maximum=6, average=4.0, total=12)
    assert lag.metrics == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "6",
        "avgOffsetsBehindLatest": "4.0",
    }


@pytest.mark.parametrize(
    ("latest", "end"), [(None, None), ("{}", "{}"), ("3", "3"), ('{"logOffset":3}', "{}")]
)
def test_other_sources_and_empty_ones_have_no_lag(latest: str | None, end: str | None) -> None:
    assert lag_of("q", 0, source(latest, end)) is None


def test_the_listener_exports_every_source_of_ours() -> None:
    exported: list[Lag] = []
    ours = source('{"t":{"b":{"0":10}}}', '{"t":{"b":{"0":4}}}')
    progress = SimpleNamespace(name=None, id="id", batchId=3, sources=[ours, source("3", "3")])
    event: Any = SimpleNamespace(progress=progress)

    LagListener(exported.append).onQueryProgress(event)

    assert [str(lag) for lag in exported] == ["query=id batch=3 behind=6 min=6 max=6 avg=6.0"]
