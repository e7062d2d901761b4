from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.transactions.decision_retention_plan import NewestDecisions, State, plan

BEFORE, OLDEST_MS = 100, 1000
ROWS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 2),
        st.integers(0, 199),
        st.integers(900, 1100),
        st.sampled_from(State),
    ),
    max_size=12,
    unique_by=(lambda row: row[2], lambda row: row[:2]),
)


def decisions(rows: list[tuple[int, int, int, int, State]]) -> NewestDecisions:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 5)
    return NewestDecisions(*table.T)


@given(ROWS, st.integers(0, 12))
def test_what_leaves_is_carried_or_forgotten_by_groups(
    rows: list[tuple[int, int, int, int, State]], most: int
) -> None:
    newest = decisions(rows)

    planned = plan(newest, BEFORE, OLDEST_MS, most)

    carried, forgotten = planned.carried.tolist(), planned.forgotten.tolist()
    wanted = {row for row, found in enumerate(rows) if found[4] is not State.OVER}
    leaving = {rows[row][0] for row in wanted if rows[row][2] < BEFORE}
    assert sorted([*carried, *forgotten]) == sorted(
        row for row in wanted if rows[row][0] in leaving
    )
    assert not {rows[row][0] for row in carried} & {rows[row][0] for row in forgotten}
    assert [rows[row][2] for row in carried] == sorted(rows[row][2] for row in carried)
    assert all(rows[row][4] is State.DONE and rows[row][2] < BEFORE for row in forgotten)
    # A group is carried for a reason: one that lasts or stays, or one that is recent.
    reasons = {
        rows[row][0]
        for row in carried
        if rows[row][4] is State.LASTING or rows[row][2] >= BEFORE or rows[row][3] >= OLDEST_MS
    }
    assert reasons == {rows[row][0] for row in carried}
    recent = [row for row in forgotten if rows[row][3] >= OLDEST_MS]
    assert not recent or len(carried) >= most


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(0, 60))
def test_users_take_turns_and_their_newest_stay(counts: list[int], most: int) -> None:
    owners = [(user, number) for user, count in enumerate(counts) for number in range(count)]
    rows = [(at, user, at, 1000 + number, State.DONE) for at, (user, number) in enumerate(owners)]

    planned = plan(decisions(rows), BEFORE + 1000, 0, most)

    kept = [
        sorted(owners[row][1] for row in planned.carried if owners[row][0] == user)
        for user in range(len(counts))
    ]
    assert sum(map(len, kept)) == min(most, sum(counts))
    for count, numbers in zip(counts, kept, strict=True):
        assert numbers == list(range(count))[count - len(numbers) :]
        # Who has less than all of theirs has as many as anybody else, but for the last turn.
        assert len(numbers) == count or len(numbers) >= max(map(len, kept)) - 1
