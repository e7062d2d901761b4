from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import IllegalMessageError
from broker_core.store.dispatch import group_by_queue
from broker_core.store.log.writer import place

pytestmark = pytest.mark.usefixtures("either_way")

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 70_000)), max_size=60)


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


@pytest.mark.property
@given(
    sizes=st.lists(st.integers(91, 992), min_size=1, max_size=80),
    start=st.integers(0, 5000),
)
def test_records_follow_apaches_rule_at_the_end_of_a_segment(sizes: list[int], start: int) -> None:
    placed = place(np.array(sizes, dtype=np.int32), start, 1000)

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
    start=st.integers(0, 5000),
)
def test_pieces_cover_all_rows_and_end_segments_with_a_blank(sizes: list[int], start: int) -> None:
    placed = place(np.array(sizes, dtype=np.int32), start, 1000)

    rows = [row for piece in placed.pieces for row in range(piece.first, piece.last)]
    assert rows == list(range(len(sizes)))
    for piece in placed.pieces[:-1]:
        used = sum(sizes[piece.first : piece.last])
        assert (piece.physical_offset + used + piece.blank_bytes) % 1000 == 0
        assert piece.blank_bytes >= 8
    assert placed.pieces[-1].blank_bytes == 0


def test_record_that_fits_no_segment_is_refused() -> None:
    with pytest.raises(IllegalMessageError, match="993 bytes does not fit"):
        place(np.array([993], dtype=np.int32), 0, 1000)
