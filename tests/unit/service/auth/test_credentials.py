"""Credentials: hashed, compared, reloaded, never shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from broker_core.cli import main
from broker_core.errors import AuthenticationError, ConfigError, PermissionDeniedError
from broker_core.service.auth import credentials
from broker_core.service.auth.credentials import (
    Credentials,
    HashedSecret,
    given_credentials,
    hash_secret,
    parse_credentials,
)
from broker_core.service.auth.user_rights import Right, Rule, UserIdentity

HASHED = hash_secret("hush")


def document(name: str = "etl", **more: Any) -> str:
    rules = [{"topics": "orders-*", "rights": ["publish"]}]
    return json.dumps({"users": [{"name": name, "secret": HASHED, "rules": rules, **more}]})


def test_a_secret_is_recognised_and_not_kept() -> None:
    parsed = HashedSecret.parse(HASHED)

    assert parsed.is_hash_of("hush")
    assert not parsed.is_hash_of("hush ")
    assert "hush" not in HASHED
    assert repr(parsed) == "HashedSecret(cost=16384, block=8, parallel=1)"
    assert hash_secret("hush") != HASHED


def test_the_command_prints_what_the_file_holds() -> None:
    result = CliRunner().invoke(main, ["hash-secret"], input="hush\n")

    assert result.exit_code == 0
    assert HashedSecret.parse(result.output.strip()).is_hash_of("hush")


@pytest.mark.parametrize(
    ("name", "secret"), [("etl", "wrong"), ("nobody", "hush"), ("etl", ""), ("", "hush")]
)
def test_wrong_credentials_are_all_the_same_error(tmp_path: Path, name: str, secret: str) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(document(), "utf-8")

    with pytest.raises(AuthenticationError, match=r"^The credentials are wrong") as caught:
        Credentials(path).check(name, secret)
    assert "hush" not in str(caught.value)


def test_right_ones_are_recognised_again_at_once(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(document(), "utf-8")
    credentials = Credentials(path)

    first, again = credentials.check("etl", "hush"), credentials.check("etl", "hush")

    assert first is again
    assert b"hush" not in b"".join(credentials._known.values())
    assert "hush" not in repr(vars(credentials))


def in_force(folder: Path, now: list[float]) -> tuple[Path, Credentials]:
    """A file and its credentials, by a clock that the test turns; one user has logged in."""
    path = folder / "credentials.json"
    path.write_text(document(), "utf-8")
    credentials = Credentials(path, monotonic=lambda: now[0])
    credentials.check("etl", "hush")
    return path, credentials


def test_a_changed_file_is_in_force_soon(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    path, credentials = in_force(tmp_path, now)

    path.write_text(document("batch-job"), "utf-8")
    now[0] = 0.5
    still = credentials.check("etl", "hush")
    now[0] = 2.0

    with pytest.raises(AuthenticationError):
        credentials.check("etl", "hush")
    assert still.name == "etl"
    assert credentials.check("batch-job", "hush").name == "batch-job"

    path.write_text("{broken", "utf-8")
    now[0] = 4.0
    assert credentials.check("batch-job", "hush").name == "batch-job"
    assert "event=credentials_kept" in caplog.text


@pytest.mark.parametrize(
    "trouble", [PermissionError(13, "denied"), OSError(24, "too many open files")], ids=str
)
def test_a_file_that_could_not_be_read_for_a_while_is_in_force_soon_after(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: OSError,
) -> None:
    now = [0.0]
    path, credentials = in_force(tmp_path, now)
    path.write_text(document("batch-job"), "utf-8")

    def fail(path: Path, *arguments: Any) -> str:
        raise trouble

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", fail)
        for now[0] in (2.0, 4.0, 6.0):
            assert credentials.check("etl", "hush").name == "etl"
    now[0] = 8.0

    with pytest.raises(AuthenticationError):
        credentials.check("etl", "hush")
    with pytest.raises(AuthenticationError):
        credentials.check_again("etl", "hush")
    assert caplog.text.count("event=credentials_kept") == 1


def test_a_change_is_seen_whatever_time_the_file_is_given(tmp_path: Path) -> None:
    now = [0.0]
    path = tmp_path / "credentials.json"
    path.write_text(document("one"), "utf-8")
    before = path.stat()
    credentials = Credentials(path, monotonic=lambda: now[0])
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # a file system's clock has ticks
        path.write_text(document("two"), "utf-8")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    now[0] = 2.0

    with pytest.raises(AuthenticationError):
        credentials.check("one", "hush")
    assert credentials.check("two", "hush").name == "two"


def test_a_secret_that_was_changed_is_not_right_any_more(tmp_path: Path) -> None:
    now = [0.0]
    path, credentials = in_force(tmp_path, now)

    path.write_text(document(secret=hash_secret("new")), "utf-8")
    now[0] = 2.0

    with pytest.raises(AuthenticationError):
        credentials.check("etl", "hush")
    assert credentials.check("etl", "new").name == "etl"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"users": 7}',
        document(secret="hush"),
        document(secret="scrypt:16384:8:1:!:!"),
        document(secret="md5:1:1:1:c2FsdA==:aGFzaA=="),
        document(secret="scrypt:999999999:8:1:c2FsdA==:aGFzaA=="),
        document(name="with.dot"),
        document(name=""),
        document(rules=[{"topics": "a", "rights": ["steal"]}]),
        document(rules=[{"rights": ["publish"]}]),
    ],
)
def test_a_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"credentials\.json") as caught:
        parse_credentials(text, "credentials.json")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("cost", "block", "parallel"),
    [
        (1, 8, 1),
        (0, 8, 1),
        (-2, 8, 1),
        (3, 8, 1),
        (16385, 8, 1),
        (16384, 0, 1),
        (16384, -8, 1),
        (16384, 8, 0),
        (1 << 18, 8, 1),  # a few bytes more than the memory that it may take
        (16384, 128, 1),
        (2, 8, 1 << 18),
        (1 << 16, 1, 1),
    ],
)
def test_costs_that_scrypt_refuses_are_refused_with_the_users_name(
    cost: int, block: int, parallel: int
) -> None:
    secret = f"scrypt:{cost}:{block}:{parallel}:c2FsdA==:aGFzaA=="

    with pytest.raises(ConfigError, match=r"User 0 \(etl\) in credentials\.json"):
        parse_credentials(document(secret=secret), "credentials.json")
    with pytest.raises((ValueError, TypeError)):
        credentials._scrypt("hush", b"salt", cost, block, parallel)


@pytest.mark.parametrize(
    ("cost", "block", "parallel"), [(2, 1, 1), (1 << 15, 1, 1), (16384, 8, 3), (2, 8, 1000)]
)
def test_costs_that_scrypt_takes_are_taken(cost: int, block: int, parallel: int) -> None:
    secret = HashedSecret.parse(f"scrypt:{cost}:{block}:{parallel}:c2FsdA==:aGFzaA==")

    assert not secret.is_hash_of("hush")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ([("authorization", "Bearer etl.hu.sh")], ("etl", "hu.sh")),
        ([("authorization", "bearer etl.hush")], ("etl", "hush")),
        (
            [("x-rocketmq-access-key-bin", b"etl"), ("x-rocketmq-secret-key-bin", "hü".encode())],
            ("etl", "hü"),
        ),
    ],
)
def test_credentials_come_as_token_or_keys(metadata: Any, expected: tuple[str, str]) -> None:
    assert given_credentials(metadata) == expected


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        [("authorization", "")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer nodot")],
        [("authorization", "Basic etl.hush")],
        [("x-rocketmq-access-key-bin", b"etl")],
    ],
)
def test_no_credentials_are_asked_for(metadata: Any) -> None:
    with pytest.raises(AuthenticationError, match="asks for credentials"):
        given_credentials(metadata)


def test_rules_say_what_may_be_done_where() -> None:
    someone = UserIdentity(
        "etl",
        (
            Rule("orders-*", frozenset({Right.PUBLISH})),
            Rule("audit", frozenset({Right.ADMIN})),
        ),
    )

    assert someone.may(Right.PUBLISH, "orders-eu")
    assert not someone.may(Right.SUBSCRIBE, "orders-eu")
    assert not someone.may(Right.PUBLISH, "Orders-eu")
    assert someone.may(Right.SUBSCRIBE, "audit")
    assert someone.may_see("orders-eu")
    assert not someone.may_see("secrets")
    with pytest.raises(PermissionDeniedError, match="etl may not subscribe topic orders-eu"):
        someone.require(Right.SUBSCRIBE, ["audit", "orders-eu"])
    with pytest.raises(PermissionDeniedError, match="whole broker"):
        someone.require_everywhere(Right.ADMIN)
    with pytest.raises(PermissionDeniedError, match="any topic"):
        UserIdentity("nobody").require_somewhere(Right.PUBLISH)
