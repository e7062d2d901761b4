"""The remote client when the way to its broker breaks: it goes on, once, or says that it can't."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from broker_core import LogicalOffset, OffsetRange, QueueRef, UnavailableError, open_broker
from broker_core.clients.grpc.client import GrpcBroker, SharedIds
from tests.contract.test_messages import outgoing
from tests.kit.served import ServeCommand, served

QUEUE = QueueRef("orders", "broker-a", 0)


def wanted(start: int, end: int) -> OffsetRange:
    return OffsetRange(QUEUE, LogicalOffset(start), LogicalOffset(end))


def test_no_broker_is_said_after_the_time_is_over() -> None:
    with pytest.raises(UnavailableError, match=r"grpc://127.0.0.1:9 answered UNAVAILABLE"):
        open_broker("grpc://127.0.0.1:9", retry_ms=10)


def test_a_restart_in_the_middle_goes_unnoticed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = ServeCommand(store, "--create", "--listen", "127.0.0.1:0")
    address = first.wait_ready()
    port = address.rpartition(":")[2]
    with open_broker(address, mode="rw") as broker:
        broker.create_topic("orders", queues=1)
        broker.append(outgoing(*[b"%05d" % number for number in range(5000)]))
        pulled = broker.pull(wanted(0, 5000), batch_rows=500)
        rows = len(next(pulled))

        first.kill()
        second = ServeCommand(store, "--listen", f"127.0.0.1:{port}")
        second.wait_ready()
        rows += sum(len(frames) for frames in pulled)
        sent = broker.send("orders", b"after")

        assert rows == 5000
        assert sent.queue_offset == 5000
        assert broker.offsets("orders") == {QUEUE: (0, 5001)}
    assert second.stop() == 0


def test_senders_outlive_kills_and_nothing_is_doubled(tmp_path: Path) -> None:
    store = tmp_path / "store"
    serve = ServeCommand(store, "--create", "--listen", "127.0.0.1:0")
    address = serve.wait_ready()
    port = address.rpartition(":")[2]
    failures: list[BaseException] = []
    with open_broker(address, mode="rw") as broker:
        broker.create_topic("orders", queues=2)

        def send(sender: int) -> None:
            try:
                for number in range(40):
                    broker.send("orders", b"%d/%d" % (sender, number), queue_id=sender % 2)
            except BaseException as error:  # noqa: BLE001 - told at the end
                failures.append(error)

        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            serve.kill()
            serve = ServeCommand(store, "--listen", f"127.0.0.1:{port}")
            serve.wait_ready()
        for thread in threads:
            thread.join(60)
        tables = [broker.read("orders", queue_id=queue) for queue in (0, 1)]

    bodies = [body for table in tables for body in table.column("body").to_pylist()]
    assert failures == []
    assert sorted(bodies) == sorted(b"%d/%d" % (s, n) for s in range(8) for n in range(40))
    assert serve.stop() == 0


def test_ids_of_several_threads_differ() -> None:
    ids = SharedIds()
    made: list[str] = []

    def make() -> None:
        made.extend([ids.make(1_700_000_000_000) for _ in range(2000)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(made)) == len(made) == 16_000


def test_a_forked_process_makes_its_own_connection(tmp_path: Path) -> None:
    serve = ServeCommand(tmp_path / "store", "--create", "--listen", "127.0.0.1:0")
    with open_broker(serve.wait_ready(), mode="rw") as broker:
        assert isinstance(broker, GrpcBroker)
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"parent")

        child = os.fork()
        if child == 0:
            broker.send("orders", b"child")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        broker.send("orders", b"parent again")

        assert status == 0
        bodies = broker.read("orders").column("body").to_pylist()
        assert bodies == [b"parent", b"child", b"parent again"]
    assert serve.stop() == 0


def test_a_follower_is_told_of_what_comes(tmp_path: Path) -> None:
    with served(tmp_path / "store") as process, open_broker(process.address, mode="rw") as broker:
        assert isinstance(broker, GrpcBroker)
        broker.create_topic("orders", queues=1)
        broker.send("orders", b"before")
        followed = broker.follow(QUEUE, 0)
        seen = [next(followed).records()]

        for number in range(3):
            broker.send("orders", b"%d" % number)
            seen.append(next(followed).records())

        assert [len(records) for records in seen] == [1, 1, 1, 1]


def test_waiting_ends_when_something_comes_or_the_time_is_over(tmp_path: Path) -> None:
    with served(tmp_path / "store") as process, open_broker(process.address, mode="rw") as broker:
        assert isinstance(broker, GrpcBroker)
        broker.create_topic("orders", queues=2)
        nothing = broker.wait({QUEUE: LogicalOffset(0)}, timeout_ms=1)
        found: list[tuple[int, int]] = []
        waiting = threading.Thread(
            target=lambda: found.append(
                broker.wait({QUEUE: LogicalOffset(0)}, timeout_ms=60_000)[QUEUE]
            )
        )
        waiting.start()

        broker.send("orders", b"x", queue_id=0)
        waiting.join(30)

        assert nothing[QUEUE] == (0, 0)
        assert found == [(0, 1)]


def test_stopping_ends_those_who_wait(tmp_path: Path) -> None:
    with served(tmp_path / "store") as process:
        broker = open_broker(process.address, mode="rw", retry_ms=0)
        assert isinstance(broker, GrpcBroker)
        broker.create_topic("orders", queues=1)
        followed = broker.follow(QUEUE, 0)
        broker.send("orders", b"x")
        next(followed)
        stopping = threading.Thread(target=process.server.stop, args=(30,))
        stopping.start()

        with pytest.raises(UnavailableError, match="stopping"):
            next(followed)
        stopping.join(30)

        assert not stopping.is_alive()
        broker.close()
