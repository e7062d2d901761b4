"""Tail dispatch: 20 ms after the first message, once for all that came, again if it failed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core import StorageError, open_broker
from broker_core.clients.grpc.client import GrpcBroker
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.tail_dispatch import DELAY_S, RETRY_S, TailDispatcher
from broker_core.service.transient_pool import PooledWriter
from broker_core.store.check.store import check
from broker_core.store.settings import StoreSettings
from tests.kit.faulty_files import Fault, FaultyFiles
from tests.kit.raw_calls import wait_until
from tests.kit.served import served
from tests.unit.service.test_few_commits import SMALL, new, open_pool, send


class Paused:
    """A clock that tests turn: it notes each pause, and does something in the middle of one."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.stops = False
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.meanwhile()
        return self.stops


def test_all_that_comes_within_the_time_is_dispatched_at_once(tmp_path: Path) -> None:
    pool, paused = open_pool(tmp_path / "store"), Paused()
    dispatcher = TailDispatcher(pool.writer, paused)
    generations: list[int] = []

    def more() -> None:
        send(pool, b"b")
        generations.append(pool.writer._session.tail.generation)

    paused.meanwhile = more
    send(pool, b"a")

    assert dispatcher.step()

    assert paused.pauses == [DELAY_S]
    assert pool.writer.dispatch_behind_bytes == 0
    assert pool.writer._session.tail.generation == generations[0] + 1
    assert not dispatcher._armed.is_set()
    assert new(pool) == [b"a", b"b"]
    pool.close()


def test_what_comes_during_a_dispatch_is_dispatched_by_the_next(tmp_path: Path) -> None:
    pool, paused = open_pool(tmp_path / "store"), Paused()
    dispatcher = TailDispatcher(pool.writer, paused)
    dispatch = pool.writer.dispatch_pending

    def dispatched() -> None:
        dispatch()
        send(pool, b"behind")

    pool.writer.dispatch_pending = dispatched  # type: ignore[method-assign]  # to be overtaken
    send(pool, b"a")
    assert dispatcher.step()

    assert pool.writer.dispatch_behind_bytes
    assert dispatcher.step()  # armed: it does not wait
    pool.close()


def test_nothing_happens_where_nothing_is_pending(tmp_path: Path) -> None:
    pool, paused = open_pool(tmp_path / "store"), Paused()
    dispatcher = TailDispatcher(pool.writer, paused)
    before = pool.writer._session.tail.generation
    dispatcher.start()

    send(pool, *[b"%d" % n for n in range(100)])  # a batch, dispatched by itself
    dispatcher.stop()

    assert paused.pauses == []
    assert pool.writer._session.tail.generation == before + 3
    assert not any(thread.name == "dispatch" for thread in threading.enumerate())
    pool.close()


def test_a_stop_that_comes_as_the_pause_ends_is_heard(tmp_path: Path) -> None:
    pool, paused = open_pool(tmp_path / "store"), Paused()
    dispatcher = TailDispatcher(pool.writer, paused)
    paused.meanwhile = dispatcher.stop
    send(pool, b"a")

    assert not dispatcher.step()
    pool.close()


def test_a_dispatch_that_fails_is_done_again_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles(Fault.FAIL_ONCE)
    pool, paused = open_pool(tmp_path / "store", files), Paused()
    dispatcher = TailDispatcher(pool.writer, paused)
    send(pool, b"a", b"b")
    files._at = files.calls + 1

    with caplog.at_level(logging.WARNING):
        assert dispatcher.step()
    assert files.has_failed
    assert "event=dispatch_failed retry_s=1" in caplog.text
    assert paused.pauses == [DELAY_S, RETRY_S]

    assert dispatcher.step()
    assert pool.writer.dispatch_behind_bytes == 0
    send(pool, b"c")
    assert new(pool) == [b"a", b"b", b"c"]
    pool.close()
    assert check(tmp_path / "store") == []


def test_appends_are_refused_until_what_is_pending_can_be_dispatched(tmp_path: Path) -> None:
    files = FaultyFiles(Fault.FAIL_ONCE)
    pool, paused = open_pool(tmp_path / "store", files), Paused()
    dispatcher = TailDispatcher(pool.writer, paused)
    send(pool, b"a")

    files._at = files.calls + 1
    assert dispatcher.step()
    files._at = files.calls + 1
    with pytest.raises(StorageError):
        send(pool, b"refused")
    files.heal()
    send(pool, b"b")

    assert new(pool) == [b"a", b"b"]
    pool.close()
    assert check(tmp_path / "store") == []


@pytest.mark.parametrize("stops_at", ["pause", "retry"])
def test_a_stop_ends_it_at_once_and_the_close_dispatches(tmp_path: Path, stops_at: str) -> None:
    files = FaultyFiles(Fault.FAIL_ONCE)
    pool, paused = open_pool(tmp_path / "store", files), Paused()
    dispatcher = TailDispatcher(pool.writer, paused)
    send(pool, b"a")
    if stops_at == "pause":
        paused.stops = True
    else:
        files._at = files.calls + 1
        paused.meanwhile = lambda: setattr(paused, "stops", len(paused.pauses) == 2)

    assert not dispatcher.step()

    files.heal()
    pool.close()
    assert check(tmp_path / "store") == []
    with open_broker(tmp_path / "store") as broker:
        assert broker.read("t").column("body").to_pylist()[2:] == [b"a"]


def test_a_server_dispatches_by_itself_and_tells_how_far_it_is(tmp_path: Path) -> None:
    with served(tmp_path / "store", SMALL) as process:
        numbers = process.metrics._gauges["rocketmq_dispatch_behind_bytes"][1]
        with open_broker(process.address, mode="rw") as broker:
            assert isinstance(broker, GrpcBroker)
            broker.create_topic("t", queues=1)
            broker.send("t", b"first")
            end = broker.send("t", b"second")
            wait_until(lambda: numbers() == 0, "the dispatch")

            assert broker.stats()["dispatchBehindBytes"] == 0
            assert int(broker.stats()["commitLogMaxOffset"]) > end.physical_offset
            assert broker.stats()["messages"] == 2
        assert any(thread.name == "dispatch" for thread in threading.enumerate())
    assert not any(thread.name == "dispatch" for thread in threading.enumerate())


def test_a_transient_pool_leaves_nothing_pending(tmp_path: Path) -> None:
    pool = BrokerPool.open(
        tmp_path / "store", StoreSettings.load(SMALL), create=True, is_pooled=True
    )
    assert isinstance(pool.writer, PooledWriter)
    told: list[None] = []
    pool.writer.on_pending = lambda: told.append(None)
    with pool.broker() as broker:
        broker.create_topic("t", queues=2)

    for number in range(3):
        send(pool, b"%d" % number)
        send(pool, b"sync %d" % number, flush="sync")
        with pool.broker() as broker:
            broker.send("t", b"own %d" % number, queue_id=0)
        assert not pool.writer._session.tail.has_pending

    assert told == []
    wanted = [w % n for n in range(3) for w in (b"%d", b"sync %d", b"own %d")]
    assert new(pool) == wanted
    pool.close()
    assert check(tmp_path / "store") == []
