from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import IllegalMessageError
from broker_core.store.log.writer import plan_placement


@pytest.mark.property
@given(
    sizes=st.lists(st.integers(91, 992), min_size=1, max_size=80),
    start=st.integers(0, 5000),
)
def test_records_follow_apaches_rule_at_the_end_of_a_segment(sizes: list[int], start: int) -> None:
    placed = plan_placement(np.array(sizes, dtype=np.int32), start, 1000)

    at = start
    for size, found in zip(sizes, placed.physical_offsets.tolist(), strict=True):
        if size + 8 > 1000 - at % 1000:
            at += 1000 - at % 1000
        assert found == at
        at += size
    assert placed.end == at


@pytest.mark.property
@given(
    sizes=st.lists(st.integers(91, 992), min_size=1, max_size=80),
    # A log never ends within the last 8 bytes of a segment: a blank fills them.
    start=st.integers(0, 5000).filter(lambda start: start % 1000 <= 992),
)
def test_runs_cover_all_rows_and_end_segments_with_a_blank(sizes: list[int], start: int) -> None:
    placed = plan_placement(np.array(sizes, dtype=np.int32), start, 1000)

    rows = [row for run in placed.runs for row in range(run.first, run.last)]
    assert rows == list(range(len(sizes)))
    for run in placed.runs[:-1]:
        used = sum(sizes[run.first : run.last])
        assert (run.physical_offset + used + run.blank_bytes) % 1000 == 0
        assert run.blank_bytes >= 8
    assert placed.runs[-1].blank_bytes == 0


def test_record_that_fits_no_segment_is_refused() -> None:
    with pytest.raises(IllegalMessageError, match="993 bytes does not fit"):
        plan_placement(np.array([993], dtype=np.int32), 0, 1000)
