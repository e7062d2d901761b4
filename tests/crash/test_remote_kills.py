"""Kill -9 of a broker behind gRPC, at every place of its work, while clients write through it.

The clients go on when it is back. Every message that was acknowledged is there, none twice; every
batch is committed entirely and once.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.clients.grpc.client import GrpcBroker
from broker_core.store.check.store import check
from broker_core.store.io.files import Failpoint
from broker_core.types import BatchOutcome, BatchRef
from tests.kit.served import SMALL_FILES
from tests.kit.served_child import RestartedBroker
from tests.kit.transactions import prepare

PLACES = [
    Failpoint.MARKED_APPENDING,
    Failpoint.LOG_WRITTEN,
    Failpoint.LOG_SYNCED,
    Failpoint.MARKED_DISPATCHING,
    Failpoint.QUEUE_WRITTEN,
    Failpoint.INDEX_ENTRIES_WRITTEN,
    Failpoint.INDEX_SLOTS_WRITTEN,
    Failpoint.MARKED_CLEAN,
]
SINGLE_PLACES = [
    Failpoint.ROOM_CLAIMED,
    Failpoint.MARKED_PENDING,
    Failpoint.PENDING_WRITTEN,
    Failpoint.PENDING_DISPATCHED,
]
"""Places of single sends alone: how often they are reached depends on how many sends share one."""
EVERYDAY = [
    (PLACES[1], 2),
    (PLACES[3], 5),
    (PLACES[7], 3),
    (PLACES[4], 9),
    (SINGLE_PLACES[1], 2),
    (SINGLE_PLACES[2], 3),
]
ALL = [(place, count) for place in PLACES for count in range(1, 14)]
ALL += [(place, count) for place in SINGLE_PLACES for count in range(1, 3)]
BATCHES, SENDERS, SENT = 4, 3, 6


def bodies(batch: int, task: int) -> list[bytes]:
    return [b"%d/%d/%d" % (batch, task, number) for number in range(5)]


def write_batches(broker: GrpcBroker) -> list[BatchOutcome]:
    """Batches of two tasks each, all but the last of which a driver asks for twice."""
    outcomes = []
    for number in range(BATCHES):
        batch = BatchRef("query:q", "", number)
        receipts = [
            prepare(broker.transactions, batch, 10 * number + task, bodies(number, task))
            for task in (1, 2)
        ]
        outcomes.append(broker.transactions.commit_batch(batch, receipts, run="r", flush="sync"))
        if number < BATCHES - 1:
            again = broker.transactions.commit_batch(batch, receipts, run="again", flush="sync")
            assert again.is_repeat
    return outcomes


def send(broker: GrpcBroker, sender: int) -> None:
    for number in range(SENT):
        broker.send("sent", b"%d/%d" % (sender, number), queue_id=0)


def survive(root: Path, place: Failpoint, count: int) -> None:
    with open_broker(root, mode="rw", create=True, config=SMALL_FILES) as made:
        made.create_topic("t", queues=2)
        made.create_topic("sent", queues=1)
    served = RestartedBroker(root, (place, count))
    try:
        with open_broker(served.address, mode="rw") as broker:
            assert isinstance(broker, GrpcBroker)
            senders = [
                threading.Thread(target=send, args=(broker, number)) for number in range(SENDERS)
            ]
            for sender in senders:
                sender.start()
            outcomes = write_batches(broker)
            for sender in senders:
                sender.join()
            tables = [broker.read("t", queue_id=queue) for queue in (0, 1)]
            sent = broker.read("sent").column("body").to_pylist()
    finally:
        served.close()

    assert served.deaths == 1, "it was not killed: the place is never reached so often"
    assert outcomes == [BatchOutcome(is_repeat=False, run="r")] * BATCHES
    visible = sorted(body for table in tables for body in table.column("body").to_pylist())
    assert visible == sorted(
        body for batch in range(BATCHES) for task in (1, 2) for body in bodies(batch, task)
    )
    assert sorted(sent) == sorted(b"%d/%d" % (s, n) for s in range(SENDERS) for n in range(SENT))
    with open_broker(root, mode="rw"):
        pass
    assert check(root) == []


@pytest.mark.parametrize(("place", "count"), EVERYDAY)
def test_a_killed_broker_loses_and_doubles_nothing(
    tmp_path: Path, place: Failpoint, count: int
) -> None:
    survive(tmp_path / "store", place, count)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "count"), ALL)
def test_a_broker_killed_anywhere_loses_and_doubles_nothing(
    tmp_path: Path, place: Failpoint, count: int
) -> None:
    survive(tmp_path / "store", place, count)
