"""The command line on a broker behind gRPC, with credentials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker_core.cli import main
from broker_core.service.auth.credentials import hash_secret
from tests.kit.served import served


def run(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, arguments, env=env)


@pytest.fixture
def secured(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "credentials.json"
    rules = [{"topics": "*", "rights": ["admin"]}]
    users = [{"name": "ops", "secret": hash_secret("hush"), "rules": rules}]
    path.write_text(json.dumps({"users": users}), "utf-8")
    return {"grpcCredentialsFile": str(path)}


def test_commands_work_on_a_broker_behind_a_network(
    tmp_path: Path, secured: dict[str, str]
) -> None:
    with served(tmp_path / "store", secured) as process:
        who = {"ROCKETMQ_BROKER": process.address, "ROCKETMQ_TOKEN": "ops.hush"}

        made = run("topics", "create", "t", "--queues", "1", **who)
        sent = run("send", "t", "hello", "--json", **who)
        seen = run("tail", "t", "--json", **who)
        refused = run("--token", "ops.wrong", "topics", "list", ROCKETMQ_BROKER=process.address)

    assert (made.exit_code, sent.exit_code, seen.exit_code) == (0, 0, 0)
    assert json.loads(seen.output)["body"] == "hello"
    assert refused.exit_code == 1
    assert refused.output.startswith("rocketmq-broker: The credentials are wrong")
    assert "ops.wrong" not in refused.output
