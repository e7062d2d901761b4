"""Calls that last: a user who could not begin them any more gets nothing more from them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import pytest

from broker_core import open_broker
from broker_core.errors import AuthenticationError, PermissionDeniedError, UnavailableError
from broker_core.service.auth import credentials
from broker_core.service.auth.user_rights import Right, Rule, UserIdentity
from broker_core.service.call_limits import CallLimits
from broker_core.service.core import rpc
from broker_core.service.core.rpc import Call
from broker_core.service.main import BrokerProcess
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.methods import SERVICE
from tests.contract.test_messages import outgoing
from tests.kit.raw_calls import (
    RULES,
    RawCall,
    cheap_secret,
    first_chunk,
    raw_channel,
    wait_until,
    write_credentials,
)
from tests.kit.served import served

OWNERLESS = {name: rules for name, rules in RULES.items() if name != "owner"}
LASTING = {
    "Pull": pb.Pull(topic="orders", broker_name="broker-a", follow=True),
    "Await": pb.Await(
        topic="orders", queues=[pb.QueueOffset(queue_id=0, offset=1 << 40)], timeout_ms=60_000
    ),
    "Listen": pb.Listen(group="g"),
}
CHANGES: dict[str, Callable[[Path], object]] = {
    "user removed": lambda path: write_credentials(path, OWNERLESS),
    "secret changed": lambda path: write_credentials(path, secret=cheap_secret("new")),
    "rule removed": lambda path: write_credentials(path, {**RULES, "owner": []}),
    "rule narrowed": lambda path: write_credentials(
        path,
        {**RULES, "owner": [("orders-eu", "subscribe"), ("orders-eu", "publish")]},
    ),
}
ENDS = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAVAILABLE,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_credentials(tmp_path / "credentials.json")


@pytest.fixture
def guarded(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    monkeypatch.setattr(rpc, "RECHECK_S", 0.02)
    monkeypatch.setattr(credentials, "_LOOK_AGAIN_S", 0.02)
    settings = {
        "grpcCredentialsFile": str(path),
        "brokerName": "broker-a",
        "mappedFileSizeCommitLog": str(16 << 20),
    }
    with served(tmp_path / "store", settings) as process:
        with open_broker(process.address, "rw", token="admin.hush") as broker:
            broker.create_topic("orders", queues=1)
        yield process


def begin(process: BrokerProcess, raw: grpc.Channel, method: str) -> RawCall:
    """Begin a call of the owner, and wait until it waits."""
    call = RawCall(raw, f"/{SERVICE}/{method}", "owner", LASTING[method].SerializeToString())
    wait_until(lambda: process.server.limits.waiting.held == 1, "a call that waits")
    return call


# A listener needs the right to publish somewhere; a narrower one is asked about fewer messages.
ENDING = [each for each in product(LASTING, CHANGES) if each != ("Listen", "rule narrowed")]


@pytest.mark.parametrize(("method", "change"), ENDING)
def test_a_call_that_lasts_ends_soon_after_its_right(
    guarded: BrokerProcess, path: Path, method: str, change: str
) -> None:
    with raw_channel(guarded) as raw:
        call = begin(guarded, raw, method)
        CHANGES[change](path)

        assert call.replies.code() in ENDS
        assert list_replies(call) == []
        call.end()


@pytest.mark.parametrize("method", LASTING)
@pytest.mark.parametrize("change", ["other user", "unreadable", "missing"])
def test_a_call_that_could_begin_now_goes_on(
    guarded: BrokerProcess, path: Path, method: str, change: str
) -> None:
    """Without a readable file the last good one stays in force, for new calls and for old ones."""
    looks = threading.Semaphore(0)
    recognise = guarded.server._boundary._recognise

    def counted(context: Any) -> UserIdentity:
        found = recognise(context)
        looks.release()
        return found

    guarded.server._boundary._recognise = counted
    with raw_channel(guarded) as raw:
        call = begin(guarded, raw, method)
        if change == "other user":
            write_credentials(path, {**RULES, "reader": []})
        elif change == "missing":
            path.unlink()
        else:
            path.write_text("{broken", "utf-8")
        for _ in range(5):
            assert looks.acquire(timeout=30)

        assert not call.is_over
        call.end()


def test_no_message_is_sent_after_the_right_is_gone(
    guarded: BrokerProcess, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message is looked at, with a clock that stands between two messages."""
    monkeypatch.setattr(rpc, "RECHECK_S", 0.0)
    monkeypatch.setattr(credentials, "_LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(Call, "recheck_s", 60.0)  # nothing but a message wakes the follower
    with (
        raw_channel(guarded) as raw,
        open_broker(guarded.address, "rw", token="admin.hush") as admin,
    ):
        call = begin(guarded, raw, "Pull")
        admin.send("orders", b"before")
        assert b"before" in next(call.replies)
        write_credentials(path, OWNERLESS)
        admin.send("orders", b"after")

        assert list_replies(call) == []
        assert call.replies.code() is grpc.StatusCode.UNAUTHENTICATED
        call.end()


@pytest.mark.parametrize("method", ["Hello", "AppendChunks"])
def test_a_request_that_does_not_come_is_given_up_with_the_right(
    guarded: BrokerProcess, path: Path, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    limits, commit = guarded.server.limits, guarded.server.group_commit
    wait_until(lambda: limits.calls.held == 0, "the end of the calls before")
    messages = [first_chunk(method, 1 << 20)] if method == "AppendChunks" else []
    with raw_channel(guarded) as raw:
        call = RawCall(raw, f"/{SERVICE}/{method}", "owner", *messages)
        wait_until(lambda: limits.stalls.waiting == 1, "a call that waits")
        wait_until(lambda: bool(commit.held_bytes) == bool(messages), "its room")
        write_credentials(path, OWNERLESS)

        assert call.replies.code() in (grpc.StatusCode.CANCELLED, *ENDS)
        wait_until(lambda: limits.calls.held == commit.held_bytes == 0, "its place and room")
        call.end()
    assert "event=stalled" not in caplog.text


@pytest.mark.parametrize("change", CHANGES)
def test_a_reply_that_is_not_taken_is_given_up_with_the_right(
    guarded: BrokerProcess, path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    limits = guarded.server.limits
    with raw_channel(guarded) as raw:
        with open_broker(guarded.address, "rw", token="admin.hush") as admin:
            admin.append(outgoing(*[bytes(30_000)] * 320))  # more than gRPC has a window for
        wait_until(lambda: limits.calls.held == 0, "the end of the calls before")
        range_ = pb.Pull(topic="orders", broker_name="broker-a", end=320)
        call = RawCall(raw, f"/{SERVICE}/Pull", "owner", range_.SerializeToString())
        call.replies.initial_metadata()  # comes with the first reply
        wait_until(lambda: limits.stalls.waiting == 1, "a reply that is not taken")
        assert not call.is_over
        CHANGES[change](path)

        wait_until(lambda: limits.calls.held == 0, "the end of the call")
        list_replies(call)  # what gRPC had a window for
        assert call.replies.code() in (grpc.StatusCode.CANCELLED, *ENDS)
        call.end()
    assert "event=stalled" not in caplog.text
    assert "event=bug" not in caplog.text


def list_replies(call: RawCall) -> list[bytes]:
    got: list[bytes] = []
    with suppress(grpc.RpcError):
        got.extend(call.replies)
    return got


# Units


class Context:
    """A gRPC context that only has to be there."""

    def is_active(self) -> bool:
        return True


def test_rights_are_asked_once_a_second_and_taken_over() -> None:
    now, asked = [0.0], []
    narrow = UserIdentity("owner", (Rule("a", frozenset({Right.SUBSCRIBE})),))

    def recognise(context: Any) -> UserIdentity:
        asked.append(now[0])
        return narrow

    call = Call(Context(), UserIdentity("owner"), recognise, CallLimits(4), lambda: now[0])
    call.guard(lambda identity, request: None, None)
    for now[0] in (0.5, 0.9, 1.0, 1.5, 2.1):
        call.require_still()

    assert asked == [1.0, 2.1]
    assert call.identity is narrow


@pytest.mark.parametrize(
    "error", [AuthenticationError("gone"), PermissionDeniedError("no"), UnavailableError("new")]
)
def test_what_refuses_a_new_call_ends_an_old_one(error: Exception) -> None:
    now = [0.0]

    def recognise(context: Any) -> UserIdentity:
        raise error

    call = Call(Context(), UserIdentity("owner"), recognise, CallLimits(4), lambda: now[0])
    now[0] = 1.0

    with pytest.raises(type(error)):
        call.require_still()
