"""The commands that pages show do what they show, or at least are taken as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from broker_core import open_broker
from broker_core.cli import main
from broker_core.cli.serve import serve

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"^\$ rocketmq-broker (.+)$", re.MULTILINE)
ENDLESS = {"--follow", "--watch"}


def commands() -> list[str]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [line for page in pages for line in COMMAND.findall(page.read_text("utf-8"))]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store such as the pages talk of."""
    folder = tmp_path / "rocketmq-store"
    with open_broker(f"file:{folder}", mode="rw", create=True) as broker:
        broker.create_topic("orders", queues=4)
        broker.send("orders", b"order 1", keys=["o-1"], properties={"price": "70"})
    return folder


@pytest.mark.parametrize("line", [line for line in commands() if not line.startswith("serve")])
def test_command_of_a_page_runs(line: str, store: Path) -> None:
    placed = line.replace("/tmp/rocketmq-store", str(store))
    placed = placed.replace("ADDRESS", f"file:{store}").replace("STORE", str(store))
    words = [word for word in shlex.split(placed) if word not in ENDLESS]

    answer = CliRunner().invoke(main, words)

    assert (answer.exit_code, answer.stderr) == (0, "")


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("serve")])
def test_server_is_started_with_options_that_there_are(line: str) -> None:
    assert isinstance(serve, click.Command)

    taken = serve.make_context("serve", shlex.split(line)[1:])

    assert taken.params["store"] or taken.params["config"]
