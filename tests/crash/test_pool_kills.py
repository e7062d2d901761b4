"""Kill -9 of a broker with transientStorePoolEnable: what is lost are each queue's last messages.

What was acknowledged and committed is there, what was not committed may be gone. Nothing is torn or
doubled, and the store is whole.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from broker_core import open_broker
from broker_core.clients.grpc.client import GrpcBroker
from broker_core.store.check.store import check
from broker_core.store.io.files import Failpoint
from tests.contract.test_messages import outgoing
from tests.kit.served import SMALL_FILES
from tests.kit.served_child import RestartedBroker, StopAt

POOL = {"flushDiskType": "ASYNC_FLUSH", "transientStorePoolEnable": "true"}
NEVER = {"commitIntervalCommitLog": "3600000", "flushIntervalCommitLog": "3600000"}
OFTEN = {"commitIntervalCommitLog": "1", "commitCommitLogLeastPages": "0"}
PLACES = [
    Failpoint.MARKED_APPENDING,
    Failpoint.LOG_WRITTEN,
    Failpoint.MARKED_DISPATCHING,
    Failpoint.QUEUE_WRITTEN,
    Failpoint.MARKED_CLEAN,
]
SENDERS, SENT = 3, 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with open_broker(root, mode="rw", create=True, config=SMALL_FILES) as made:
        made.create_topic("orders", queues=SENDERS)
    return root


def kept(root: Path, queue_id: int = 0) -> list[bytes]:
    with open_broker(root, mode="rw") as broker:
        found: list[bytes] = broker.read("orders", queue_id).column("body").to_pylist()
        return found


def test_a_kill_loses_what_was_not_committed_and_nothing_else(root: Path) -> None:
    served = RestartedBroker(root, settings={**POOL, **NEVER})
    try:
        with open_broker(served.address, mode="rw") as broker:
            broker.send("orders", b"committed", queue_id=0)
            broker.append(outgoing(b"durable"), flush="sync")
            lost = broker.send("orders", b"acknowledged", queue_id=0)
            assert lost.queue_offset == 2
            assert broker.read("orders").num_rows == 2

            served.kill()

            again = broker.send("orders", b"after", queue_id=0)
            broker.append(outgoing(b"end"), flush="sync")
    finally:
        served.close()

    assert again.queue_offset == lost.queue_offset
    assert kept(root) == [b"committed", b"durable", b"after", b"end"]
    assert check(root) == []


def send(broker: GrpcBroker, sender: int, acknowledged: list[tuple[int, bytes]]) -> None:
    for number in range(SENT):
        body = b"%d/%d" % (sender, number)
        sent = broker.send("orders", body, queue_id=sender, properties={"pad": "x" * 100})
        acknowledged.append((sent.queue_offset, body))


def survive(root: Path, stop_at: StopAt) -> None:
    acknowledged: list[list[tuple[int, bytes]]] = [[] for _ in range(SENDERS)]
    served = RestartedBroker(root, stop_at, {**POOL, **OFTEN})
    try:
        with open_broker(served.address, mode="rw") as broker:
            assert isinstance(broker, GrpcBroker)
            senders = [
                threading.Thread(target=send, args=(broker, number, acknowledged[number]))
                for number in range(SENDERS)
            ]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            broker.append(outgoing(b"end"), flush="sync")
    finally:
        served.close()

    assert served.deaths == 1, "it was not killed: the place is never reached so often"
    for queue_id, told in enumerate(acknowledged):
        found = [body for body in kept(root, queue_id) if body != b"end"]
        assert len(told) == SENT
        assert len(set(found)) == len(found)
        numbers = [int(body.split(b"/")[1]) for body in found]
        assert numbers == sorted(numbers)
        lost = sorted(set(range(SENT)) - set(numbers))
        assert lost == list(range(SENT))[lost[0] : lost[-1] + 1] if lost else numbers
    assert check(root) == []


@pytest.mark.parametrize("stop_at", [(PLACES[1], 3), (PLACES[3], 5), (PLACES[4], 4)])
def test_a_kill_during_a_commit_loses_one_stretch_at_most(root: Path, stop_at: StopAt) -> None:
    survive(root, stop_at)


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [(place, count) for place in PLACES for count in range(1, 9)])
def test_a_kill_anywhere_in_a_commit_loses_one_stretch_at_most(root: Path, stop_at: StopAt) -> None:
    survive(root, stop_at)
