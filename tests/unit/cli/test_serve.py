"""`rocketmq-broker serve` as a process: starts, refuses, stops, survives being killed."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from broker_core import ConfigError, StoreNotFoundError, open_broker
from broker_core.cli.serve import serve as serve_command
from broker_core.service.main import serve as serve_store
from broker_core.service.settings import ServiceSettings
from broker_core.store.check.store import check
from tests.kit.served import ServeCommand, served

ANY_PORT = ("--listen", "127.0.0.1:0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_the_store_closed(tmp_path: Path, number: int) -> None:
    store = tmp_path / "store"
    serve = ServeCommand(store, "--create", *ANY_PORT)
    address = serve.wait_ready()
    with open_broker(address, mode="rw") as broker:
        broker.create_topic("t", queues=1)
        broker.send("t", b"hello")
        was_open = (store / "abort").exists()

    status = serve.stop(number)

    assert status == 0
    assert was_open
    assert not (store / "abort").exists()
    assert check(store) == []
    with open_broker(store) as closed:
        assert closed.read("t").column("body").to_pylist() == [b"hello"]
    assert sum("event=ready" in line for line in serve.lines) == 1


def test_a_store_that_is_locked_is_refused_in_one_line(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with served(store):
        serve = ServeCommand(store, *ANY_PORT)
        status = serve.wait()

    assert status == 1
    [line] = serve.lines
    assert f"rocketmq-broker: Store {store} is locked by" in line


def test_a_port_that_is_taken_is_refused_and_the_store_is_closed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(ConfigError, match=f"Can't listen at {address}"):
            serve_store(tmp_path / "store", ServiceSettings(listen=address), create=True)

    assert not (tmp_path / "store" / "abort").exists()
    with open_broker(tmp_path / "store", mode="rw") as broker:
        broker.create_topic("t")


def test_other_machines_are_let_in_only_on_purpose(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="add --insecure"):
        serve_store(tmp_path / "store", ServiceSettings(listen="0.0.0.0:0"), create=True)
    assert not (tmp_path / "store").exists()


def test_a_store_that_is_not_there_is_not_made_unasked(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        serve_store(tmp_path / "store", ServiceSettings(listen="127.0.0.1:0"))
    assert not (tmp_path / "store").exists()


def test_without_a_store_there_is_nothing_to_serve() -> None:
    with pytest.raises(ConfigError, match="give --store, or storePathRootDir"):
        serve_command.callback(None, None, None, False, False)  # type: ignore[misc]  # click's


def test_settings_of_the_configuration_reach_the_client(tmp_path: Path) -> None:
    with (
        served(tmp_path / "store", {"brokerName": "broker-x"}) as process,
        open_broker(process.address, mode="rw") as broker,
    ):
        [queue] = broker.create_topic("t", queues=1).queues

    assert queue.broker_name == "broker-x"
