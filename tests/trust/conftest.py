"""Worlds for the tests of trust, copied from one that is made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trust.judging import Judge
from tests.trust.world import Template, World


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template.make(tmp_path_factory.mktemp("template") / "world")


@pytest.fixture
def judge(tmp_path: Path, template: Template) -> Judge:
    return Judge(tmp_path, template)


@pytest.fixture
def world(tmp_path: Path, template: Template) -> Iterator[World]:
    made = World(tmp_path / "world", template)
    yield made
    made.close()
