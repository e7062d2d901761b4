from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from broker_core.broker.transactions.check_back_plan import (
    NOT_IMMUNE,
    CheckPolicy,
    OpenHalves,
    Step,
    Verdict,
    advance,
    open_offsets,
    plan,
)

pytestmark = pytest.mark.usefixtures("either_way")

NOW = 1_000_000_000
POLICY = CheckPolicy(batch_patience_ms=3_600_000)


class Half(NamedTuple):
    age_ms: int
    verdict: Verdict = Verdict.UNKNOWN
    checks: int = 0
    immunity_ms: int = NOT_IMMUNE
    batch: int = -1
    producer: int = 0


PLENTY = 1 << 30


def steps(*halves: Half, room: Sequence[int] = (PLENTY,)) -> list[Step]:
    columns = OpenHalves(
        offsets=np.arange(len(halves)),
        stored_ms=np.array([NOW - half.age_ms for half in halves]),
        checks=np.array([half.checks for half in halves]),
        immunity_ms=np.array([half.immunity_ms for half in halves]),
        verdicts=np.array([half.verdict for half in halves], dtype=np.int64),
        batches=np.array([half.batch for half in halves], dtype=np.int64),
        producers=np.array([half.producer for half in halves], dtype=np.int64),
    )
    return [Step(step) for step in plan(columns, NOW, POLICY, room).tolist()]


def step(half: Half) -> Step:
    return steps(half)[0]


@pytest.mark.parametrize(
    ("half", "expected"),
    [
        (Half(6_000), Step.WAIT),
        (Half(6_001), Step.ASK),
        (Half(-1), Step.ASK),
        (Half(600_000, immunity_ms=600_000), Step.WAIT),
        (Half(600_001, immunity_ms=600_000), Step.ASK),
        (Half(29_999, checks=1), Step.WAIT),
        (Half(30_000, checks=1), Step.ASK),
        (Half(30_000, checks=14), Step.ASK),
        (Half(29_999, checks=15), Step.WAIT),
        (Half(30_000, checks=15), Step.GIVE_UP),
        (Half(72 * 3_600_000 + 1, checks=2), Step.GIVE_UP),
    ],
    ids=[
        "young",
        "timed-out",
        "stored-in-the-future",
        "immune",
        "no-longer-immune",
        "just-asked",
        "asked-an-interval-ago",
        "asked-14-times",
        "asked-15-times-just-now",
        "asked-15-times",
        "older-than-retention",
    ],
)
def test_a_message_is_asked_about_until_it_is_given_up(half: Half, expected: Step) -> None:
    assert step(half) is expected


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [
        (7_000, Step.WAIT),
        (3_600_000, Step.WAIT),
        (3_600_000 + 15 * 30_000, Step.WAIT),
        (3_600_000 + 15 * 30_000 + 1, Step.GIVE_UP),
    ],
)
def test_a_message_of_an_undecided_batch_is_left_alone_until_its_patience_ends(
    age_ms: int, expected: Step
) -> None:
    assert step(Half(age_ms, Verdict.UNDECIDED)) is expected


@pytest.mark.parametrize("age_ms", [4_050_001, 3 * 86_400_000])
def test_a_batch_that_is_still_being_prepared_is_not_given_up(age_ms: int) -> None:
    old, new = Half(age_ms, Verdict.UNDECIDED, batch=1), Half(60_000, Verdict.UNDECIDED, batch=1)
    silent = Half(age_ms, Verdict.UNDECIDED, batch=0)

    assert steps(old, silent, new) == [Step.WAIT, Step.GIVE_UP, Step.WAIT]


@pytest.mark.parametrize("checks", [0, 1, 14])
def test_a_message_that_nobody_can_be_asked_about_keeps_its_count(checks: int) -> None:
    half = Half(100_000, checks=checks)

    assert steps(half, room=[0]) == [Step.WAIT]
    assert steps(half._replace(age_ms=72 * 3_600_000 + 1), room=[0]) == [Step.GIVE_UP]


def test_no_more_are_asked_than_can_be_told() -> None:
    halves = [Half(9_000, producer=number % 2) for number in range(6)]

    asked = [step is Step.ASK for step in steps(*halves, room=[2, 1])]

    assert asked == [True, True, True, False, False, False]


@pytest.mark.parametrize("age_ms", [0, 10_000, 10**9])
def test_what_the_log_knows_is_done_at_any_age(age_ms: int) -> None:
    halves = [Half(age_ms, Verdict.COMMITTED), Half(age_ms, Verdict.DROPPED)]

    assert steps(*halves) == [Step.FINISH, Step.ROLL_BACK]


def test_each_message_has_its_own_step() -> None:
    halves = [Half(1), Half(9_000), Half(1, Verdict.DROPPED), Half(10**12), Half(2)]

    assert steps(*halves) == [Step.WAIT, Step.ASK, Step.ROLL_BACK, Step.GIVE_UP, Step.WAIT]


def test_no_messages_need_no_steps() -> None:
    assert steps() == []


def test_open_are_those_that_no_op_message_lists() -> None:
    decided = np.array([0, 5, 6, 9, 10])

    assert open_offsets(4, 10, decided).tolist() == [4, 7, 8]
    assert open_offsets(4, 4, decided).tolist() == []


def test_progress_stops_at_the_first_message_that_waits() -> None:
    listed, listing = np.array([3, 4, 9, 5]), np.array([20, 20, 21, 22])

    waiting = advance(12, 23, np.array([7, 8]), listed, listing)
    nothing_waits = advance(12, 23, np.array([], dtype=np.int64), listed, listing)

    # Op message 21 lists message 9, which lies behind the first that waits.
    assert (waiting.half_offset, waiting.op_offset) == (7, 21)
    assert (nothing_waits.half_offset, nothing_waits.op_offset) == (12, 23)
