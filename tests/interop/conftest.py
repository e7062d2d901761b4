"""What all interop tests share: the jars, and one name server for every broker they start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.kit import peers
from tests.interop.kit.servers import NameServer


@pytest.fixture(scope="session")
def apache() -> None:
    """Require what a real peer needs; ends the run with one line when it is not there."""
    missing = peers.missing()
    if missing:
        pytest.exit(missing, returncode=1)
    peers.jars()


@pytest.fixture(scope="session")
def name_server(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    """A name server for brokers that run one at a time, all under one name."""
    with NameServer(tmp_path_factory.mktemp("name-server")) as server:
        yield server
