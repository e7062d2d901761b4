"""What a reader sees while batches are committed in pieces and rolled back, at every step of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from broker_core.broker.transactions.op import SettledHalves
from broker_core.broker.transactions.settle import HalfSettler
from broker_core.store.io.files import Failpoint, OsFiles
from broker_core.types import BatchRef
from tests.kit import stores
from tests.kit.faulty_files import Died, FaultyFiles
from tests.kit.seen import BODY, OWNER, TOPIC, Fate, Seen, bodies, changes, faults, look, wanted
from tests.kit.transactions import START_MS, in_pieces, prepare
from tests.kit.watched_commit import (
    TASKS,
    Size,
    ToldFiles,
    create,
    open_writer,
    prepare_tasks,
    roll_back,
)

SIZE = Size(batches=2, rows=20, piece_rows=7)
ALL = wanted(range(SIZE.batches), TASKS, SIZE.rows)
PLACES = [
    Failpoint.LOG_WRITTEN,
    Failpoint.MARKED_DISPATCHING,
    Failpoint.QUEUE_WRITTEN,
    Failpoint.INDEX_ENTRIES_WRITTEN,
    Failpoint.MARKED_CLEAN,
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create(tmp_path / "store", SIZE)
    return tmp_path / "store"


def write(root: Path, files: OsFiles) -> None:
    """Batches that are committed, with some that are rolled back before, between and after."""
    broker = open_writer(root, SIZE, files)
    transactions = in_pieces(broker, SIZE.piece_rows)
    for number in range(SIZE.batches):
        receipts = prepare_tasks(transactions, number, SIZE.rows)
        roll_back(transactions, number, 5)
        transactions.commit_batch(BatchRef(OWNER, "", number), receipts)
    roll_back(transactions, SIZE.batches, 5)
    broker.close()


def test_at_every_step_of_commits_a_reader_sees_what_is_decided_in_order(root: Path) -> None:
    with stores.open_r(root) as reader:
        looks: list[Seen] = []
        write(root, ToldFiles(lambda _: looks.append(look(reader))))

    assert [fault for each in looks for fault in faults(each)] == []
    assert [change for before, now in pairwise(looks) for change in changes(before, now)] == []
    pieces = -(-TASKS * SIZE.rows // SIZE.piece_rows) * SIZE.batches
    assert len({len(each) for each in looks}) > 2 * pieces, "queue after queue, piece after piece"
    assert looks[-1].bodies() == ALL


@pytest.mark.parametrize("nth", [7, 9, 20])
@pytest.mark.parametrize("point", PLACES, ids=str)
def test_what_a_reader_sees_of_a_commit_that_died_is_the_beginning_of_what_it_will_see(
    root: Path, point: Failpoint, nth: int
) -> None:
    files = FaultyFiles(stop_at=(point, nth))
    with pytest.raises(Died):
        write(root, files)
    files.abandon()

    with stores.open_r(root) as reader:
        left = look(reader)
        with open_writer(root, SIZE) as broker:
            recovered = look(reader)
            broker.transactions.check_back()
            finished = look(reader)

    assert faults(left) + faults(recovered) + faults(finished) == []
    assert changes(left, recovered) + changes(recovered, finished) == []
    assert finished.bodies() == wanted(sorted(finished.decided), TASKS, SIZE.rows)


def test_half_way_through_a_commit_a_part_of_the_batch_is_there(root: Path) -> None:
    files = FaultyFiles(stop_at=(Failpoint.MARKED_CLEAN, 8))
    with pytest.raises(Died):
        write(root, files)
    files.abandon()

    with stores.open_r(root) as reader:
        seen = look(reader)

    assert 0 < len(seen) < TASKS * SIZE.rows
    assert seen.decided.keys() == {0}


# The judge


@pytest.fixture
def good(root: Path) -> Iterator[Seen]:
    write(root, OsFiles())
    with stores.open_r(root) as reader:
        yield look(reader)


def with_message(seen: Seen, row: int, **fields: int) -> Seen:
    """The same look with another message at a row."""
    messages = seen.messages.copy()
    for name, value in fields.items():
        messages[name][row] = value
    return replace(seen, messages=messages)


def without(seen: Seen, row: int) -> Seen:
    """The same look without a row."""
    rest = np.arange(len(seen)) != row
    return Seen(
        seen.queue_ids[rest],
        seen.offsets[rest],
        seen.places[rest],
        seen.is_half[rest],
        seen.messages[rest],
        seen.decided,
    )


def with_values(seen: Seen, name: str, row: int, value: int) -> Seen:
    """The same look with another value of a column at a row."""
    column = getattr(seen, name).copy()
    column[row] = value
    return replace(seen, **{name: column})


WRONG: dict[str, Callable[[Seen], Seen]] = {
    "nobody commits": lambda seen: with_message(seen, 3, fate=Fate.ROLLED_BACK),
    "half message": lambda seen: with_values(seen, "is_half", 3, 1),
    "not decided": lambda seen: replace(seen, decided={0: seen.decided[0]}),
    "before its decision": lambda seen: replace(seen, decided={**seen.decided, 1: 1 << 40}),
    "an offset out of turn": lambda seen: with_values(seen, "offsets", 3, 4),
    "a message out of turn": lambda seen: with_message(seen, 3, number=8),
}


def test_a_look_at_what_was_committed_is_faultless(good: Seen) -> None:
    assert faults(good) == []
    assert good.bodies() == ALL


@pytest.mark.parametrize("wrong", WRONG)
def test_what_must_never_be_seen_is_found(good: Seen, wrong: str) -> None:
    found = faults(WRONG[wrong](good))

    assert len(found) == 1
    assert wrong in found[0]


def test_a_message_that_is_missing_or_there_twice_is_found(good: Seen) -> None:
    missing = without(good, 3)
    twice = with_message(good, 4, number=int(good.messages["number"][3]))

    assert "an offset out of turn" in faults(missing)[0]
    assert "a message out of turn" in faults(twice)[0]


def test_what_a_later_look_has_lost_or_changed_is_found(good: Seen) -> None:
    last = int(np.flatnonzero(good.queue_ids == 0)[-1])

    assert changes(without(good, last), good) == []
    assert changes(good, without(good, last)) == ["queue 0 does not begin with what it was"]
    assert changes(good, with_message(good, last, number=1)) == [
        "queue 0 does not begin with what it was"
    ]


def test_a_broker_that_shows_messages_before_it_decides_is_found_out(root: Path) -> None:
    batch = BatchRef(OWNER, "", 0)
    with open_writer(root, SIZE) as broker:
        transactions = in_pieces(broker, 4)
        receipt = prepare(transactions, batch, 1, bodies(0, 0, 4), topic=TOPIC)
        other = prepare(broker.transactions, batch, 2, bodies(0, 1, 4), topic=TOPIC)
        settling = HalfSettler(
            broker.reader,
            broker.writer,
            lambda: START_MS,
            lambda: broker.catalog.table().topics,
        )
        [copies] = settling.commits(np.arange(4))
        settling.settle(copies, SettledHalves(broker.reader, 0))

        before = faults(look(broker))
        broker.transactions.commit_batch(batch, [other])
        after = faults(look(broker))

    assert receipt.count == 4
    assert ["a message whose batch is not decided" in line for line in before] == [True]
    assert ["a message that lies before its decision" in line for line in after] == [True]


def test_bodies_say_where_they_belong() -> None:
    [first, second] = bodies(7, 1, 2, Fate.LEFT_OVER)

    assert np.frombuffer(first + second, dtype=BODY).tolist() == [(7, 0, 1, 3), (7, 1, 1, 3)]
