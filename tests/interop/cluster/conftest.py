"""A name server for each test: one that has just lost a broker may forget its successor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.kit.servers import NameServer


@pytest.fixture
def name_server(apache: None, tmp_path: Path) -> Iterator[NameServer]:
    with NameServer(tmp_path) as server:
        yield server
        server.kill()  # It keeps nothing.
