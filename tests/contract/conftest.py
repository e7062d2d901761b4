"""One suite for every kind of broker: each test gets a fresh one of each kind.

A kind is a place to put a store and a way to open it. The embedded one and the remote one are made
here; the cluster's needs a real peer and joins where that is set up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

import pytest

from broker_core import open_broker
from broker_core.api import Broker, TransactionalBroker
from broker_core.service.main import BrokerProcess
from broker_core.service.settings import ServiceSettings
from broker_core.types import Mode

SMALL_FILES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


class AnyBroker(Broker, TransactionalBroker, Protocol):
    """All that every kind of our own brokers can do."""


@dataclass
class Place:
    """Where a broker of some kind can be opened, any number of times."""

    address: str
    _opened: ExitStack = field(default_factory=ExitStack)

    def open(self, mode: Mode = "rw") -> AnyBroker:
        """Open it once more; closed after the test."""
        # A store decides its file sizes with its first file, so each opening must know them.
        opened = open_broker(self.address, mode=mode, config=SMALL_FILES)
        return cast("AnyBroker", self._opened.enter_context(opened))

    def close(self) -> None:
        self._opened.close()


@contextmanager
def embedded(store: Path) -> Iterator[str]:
    """A store that is made, and opened in this process."""
    open_broker(store, mode="rw", create=True, config=SMALL_FILES).close()
    yield f"file:{store}"


@contextmanager
def remote(store: Path) -> Iterator[str]:
    """A store that is served, over loopback."""
    settings = ServiceSettings.of({**SMALL_FILES, "grpcListenAddress": "127.0.0.1:0"}, "test")
    served = BrokerProcess(store, settings, create=True)
    served.start()
    try:
        yield served.address
    finally:
        served.stop(grace_s=0)


KINDS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {"file": embedded, "grpc": remote}


@pytest.fixture(params=KINDS, ids=str)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with KINDS[request.param](tmp_path / "store") as address:
        made = Place(address)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def broker(place: Place) -> AnyBroker:
    """A broker of each kind, open for reading and writing."""
    return place.open()
