from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.store.dispatch import group_by_queue

pytestmark = pytest.mark.usefixtures("either_way")

QUEUES = st.one_of(
    st.integers(0, 70_000),
    st.integers(-3, 3),
    st.sampled_from([-(2**31), -1, 2**31 - 1]),
)
"""All numbers that a record can hold: grouping is right for those that are refused, too."""
ROWS = st.lists(st.tuples(st.integers(0, 3), QUEUES), max_size=60)


@pytest.mark.property
@given(rows=ROWS, mask=st.integers(0, 2**60 - 1))
def test_groups_hold_every_row_once_in_order(rows: list[tuple[int, int]], mask: int) -> None:
    topics = ["a", "b", "c", "a"]
    codes = np.array([code for code, _ in rows], dtype=np.int32)
    ids = np.array([queue_id for _, queue_id in rows], dtype=np.int32)
    chosen = np.array([bool(mask >> row & 1) for row in range(len(rows))], dtype=np.bool_)

    groups = group_by_queue(topics, codes, ids, chosen)

    found = {
        queue: groups.rows[groups.bounds[n] : groups.bounds[n + 1]].tolist()
        for n, queue in enumerate(groups.queues)
    }
    wanted: dict[tuple[str, int], list[int]] = {}
    for row, (code, queue_id) in enumerate(rows):
        if chosen[row]:
            wanted.setdefault((topics[code], queue_id), []).append(row)
    assert found == wanted
    assert len(groups.queues) == len(set(groups.queues))


@pytest.mark.property
@given(rows=ROWS, start=st.integers(0, 10**12))
def test_rows_continue_their_queues(rows: list[tuple[int, int]], start: int) -> None:
    codes = np.array([code for code, _ in rows], dtype=np.int32)
    ids = np.array([queue_id for _, queue_id in rows], dtype=np.int32)
    groups = group_by_queue(list("abcd"), codes, ids)
    ends = [start + number for number in range(len(groups.queues))]

    offsets = groups.offsets_from(ends, len(rows))

    counters = dict(zip(groups.queues, ends, strict=True))
    for row, (code, queue_id) in enumerate(rows):
        queue = ("abcd"[code], queue_id)
        assert offsets[row] == counters[queue]
        counters[queue] += 1
