"""Limits of calls: whatever anybody keeps open, others are served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from broker_core import UnavailableError, open_broker
from broker_core.errors import AuthenticationError
from broker_core.service import call_limits, health, server
from broker_core.service.auth.user_rights import ANYONE, UserIdentity
from broker_core.service.call_limits import CallLimits, Slots, StallWatch
from broker_core.service.health import HEALTH_SERVICE
from broker_core.service.main import BrokerProcess
from broker_core.types import OffsetRange
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core.methods import SERVICE
from tests.contract.test_messages import outgoing
from tests.kit.raw_calls import (
    RawCall,
    call_without_window,
    first_chunk,
    raw_channel,
    wait_until,
    write_credentials,
)
from tests.kit.served import served

MOST = 16
CALLS = 2 * MOST
UNREAD = 320
"""Messages of 30,000 bytes: more than gRPC has a window for."""
LARGE_FILES = {"mappedFileSizeCommitLog": str(16 << 20)}
ONE, OTHER = UserIdentity("one"), UserIdentity("other")

WAITING = {
    "Listen": [pb.Listen(group="g").SerializeToString()],
    "Pull": [pb.Pull(topic="orders", broker_name="broker-a", follow=True).SerializeToString()],
    "Await": [
        pb.Await(
            topic="orders", queues=[pb.QueueOffset(queue_id=0, offset=1 << 40)], timeout_ms=60_000
        ).SerializeToString()
    ],
}
STALLED = {
    "AppendChunks": [first_chunk("AppendChunks", 1 << 20)],
    "PrepareChunks": [first_chunk("PrepareChunks", 1 << 20)],
    "Hello": [],
    "Append": [],
    "Pull": [],
}
PER_USER, PER_USER_WAITING = MOST * 3 // 4, MOST // 4
ALLOWED = {("reader", "Pull"), ("reader", "Await"), ("stranger", "Listen")}
SENDERS = {"AppendChunks", "PrepareChunks"}
ACTORS = [None, "norule", "reader", "stranger"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with users; calls that stall are given a minute, so that they do not end here."""
    root = tmp_path_factory.mktemp("limits")
    settings = {
        "grpcCredentialsFile": str(write_credentials(root / "credentials.json")),
        "grpcMaxCalls": str(MOST),
        "brokerName": "broker-a",
    }
    before = call_limits.STALL_S, health._STALL_S
    call_limits.STALL_S = health._STALL_S = 60.0
    with served(root / "store", settings) as process:
        with open_broker(process.address, "rw", token="admin.hush") as broker:
            for topic in ("orders", "mal"):
                broker.create_topic(topic, queues=1)
        yield process
    call_limits.STALL_S, health._STALL_S = before


def serve_others_beside(
    process: BrokerProcess, path: str, user: str | None, messages: list[bytes], held: int
) -> None:
    """Open more calls than the server has threads; `held` of them stay, and a send succeeds."""
    wait_until(lambda: process.server.limits.calls.held == 0, "the end of the calls before")
    with raw_channel(process) as channel:
        calls = [RawCall(channel, path, user, *messages) for _ in range(CALLS)]
        try:
            wait_until(
                lambda: sum(not call.is_over for call in calls) == held, f"{held} calls left open"
            )
            with open_broker(process.address, "rw", retry_ms=0, token="owner.hush") as owner:
                assert owner.append(outgoing(b"served")).queue_ids.tolist() == [0]
            assert sum(not call.is_over for call in calls) == held
        finally:
            for call in calls:
                call.end()


@pytest.mark.parametrize("method", WAITING)
@pytest.mark.parametrize("user", ACTORS)
def test_calls_that_wait_leave_threads_to_others(
    guarded: BrokerProcess, user: str | None, method: str
) -> None:
    held = PER_USER_WAITING if (user, method) in ALLOWED else 0
    serve_others_beside(guarded, f"/{SERVICE}/{method}", user, WAITING[method], held)


@pytest.mark.parametrize("method", STALLED)
@pytest.mark.parametrize("user", ACTORS)
def test_calls_that_do_not_go_on_leave_threads_to_others(
    guarded: BrokerProcess, user: str | None, method: str
) -> None:
    if user is None or (method in SENDERS and user != "stranger"):
        held = 0
    else:
        held = PER_USER
    serve_others_beside(guarded, f"/{SERVICE}/{method}", user, STALLED[method], held)


@pytest.mark.parametrize("method", ["Hello", "Append", "Pull"])
def test_silent_calls_of_several_users_leave_threads_to_others(
    guarded: BrokerProcess, method: str
) -> None:
    limits = guarded.server.limits
    wait_until(lambda: limits.calls.held == 0, "the end of the calls before")
    with (
        raw_channel(guarded) as one,
        raw_channel(guarded) as other,
        open_broker(guarded.address, "rw", retry_ms=5000, token="owner.hush") as owner,
    ):
        calls = [
            RawCall(channel, f"/{SERVICE}/{method}", user)
            for _ in range(CALLS)
            for channel, user in ((one, "norule"), (other, "stranger"))
        ]
        wait_until(
            lambda: sum(not call.is_over for call in calls) == limits.calls.held < MOST,
            "the end of the others",
        )
        for _ in range(10):
            assert owner.append(outgoing(b"served")).queue_ids.tolist() == [0]
        for call in calls:
            call.end()


def test_health_is_told_beside_silent_checks(guarded: BrokerProcess) -> None:
    path = f"/{HEALTH_SERVICE}/Check"
    with raw_channel(guarded) as silent, raw_channel(guarded) as other:
        calls = [RawCall(silent, path, None) for _ in range(2 * health.MOST_CHECKS)]
        wait_until(
            lambda: sum(not call.is_over for call in calls) == health.MOST_CHECKS, "calls that wait"
        )
        assert [other.unary_unary(path)(b"") for _ in range(20)] == [b"\x08\x01"] * 20
        for call in calls:
            call.end()


@pytest.mark.parametrize(
    ("path", "user"), [(f"/{SERVICE}/Topics", "reader"), (f"/{HEALTH_SERVICE}/Check", None)]
)
def test_a_call_is_not_over_while_its_reply_is_not_taken(
    guarded: BrokerProcess, path: str, user: str | None
) -> None:
    limits, checks = guarded.server.limits, guarded.server._health._stalls
    wait_until(lambda: limits.calls.held == checks.waiting == 0, "the end of the calls before")
    with call_without_window(guarded, path, user, b""):
        wait_until(lambda: limits.calls.held + checks.waiting == 1, "a call")
        # Others are served in its time, so its handler is over.
        with open_broker(guarded.address, retry_ms=0, token="admin.hush") as admin:
            for _ in range(3):
                admin.topics()
        wait_until(lambda: limits.calls.held + checks.waiting == 1, "its place alone")
        assert (limits.calls.held, checks.waiting) == ((1, 0) if user else (0, 1))
    wait_until(lambda: limits.calls.held == checks.waiting == 0, "the end of the call")


@pytest.mark.parametrize(
    ("method", "messages"), [("Watch", [b""]), ("Watch", []), ("Check", [])], ids=str
)
def test_health_calls_take_no_thread_of_the_brokers_calls(
    guarded: BrokerProcess, method: str, messages: list[bytes]
) -> None:
    held = health.MOST_WATCHES if method == "Watch" else health.MOST_CHECKS
    serve_others_beside(guarded, f"/{HEALTH_SERVICE}/{method}", None, messages, held)

    own = guarded.server._health
    wait_until(lambda: own._watches.held == own._stalls.waiting == 0, "an end of all of them")


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_health_calls_that_a_full_server_refuses_take_no_slot(tmp_path: Path, method: str) -> None:
    with (
        served(tmp_path / "store", {"grpcMaxCalls": "1"}) as process,
        raw_channel(process) as other,
        raw_channel(process) as raw,
    ):
        limits = process.server.limits
        silent = RawCall(other, f"/{SERVICE}/Hello", None)
        wait_until(lambda: limits.calls.held == 1, "a full server")
        for _ in range(2 * health.MOST_CHECKS):
            refused = RawCall(raw, f"/{HEALTH_SERVICE}/{method}", None, b"")
            assert refused.replies.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            refused.end()
        silent.end()
        wait_until(lambda: first_reply(raw, method) == b"\x08\x01", "an answer")


def first_reply(raw: grpc.Channel, method: str) -> bytes | None:
    """The first reply of a health call, None if it is refused."""
    call = RawCall(raw, f"/{HEALTH_SERVICE}/{method}", None, b"")
    try:
        return bytes(next(call.replies))
    except grpc.RpcError:
        return None
    finally:
        call.end()


def test_all_users_together_leave_threads_to_calls_that_do_not_wait(
    tmp_path: Path,
) -> None:
    with (
        served(tmp_path / "store", {"grpcMaxCalls": str(MOST)}) as process,
        raw_channel(process) as raw,
    ):
        calls = [RawCall(raw, f"/{SERVICE}/Listen", None, *WAITING["Listen"]) for _ in range(12)]
        wait_until(lambda: sum(not call.is_over for call in calls) == MOST // 2, "half left open")
        with open_broker(process.address, "rw", retry_ms=0) as broker:
            broker.create_topic("orders", queues=1)
        refused = next(call for call in calls if call.is_over)
        assert refused.replies.code() is grpc.StatusCode.UNAVAILABLE
        assert "calls that wait" in refused.replies.details()
        for call in calls:
            call.end()


@pytest.mark.parametrize("path", [f"/{SERVICE}/Hello", f"/{HEALTH_SERVICE}/Check"])
def test_a_call_whose_request_does_not_come_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(call_limits, "STALL_S", 0.1)
    monkeypatch.setattr(health, "_STALL_S", 0.1)
    with served(tmp_path / "store") as process, raw_channel(process) as raw:
        call = RawCall(raw, path, None)

        assert call.replies.code() is grpc.StatusCode.CANCELLED
        call.end()
    assert "event=stalled calls=1" in caplog.text
    assert "event=bug" not in caplog.text


@pytest.mark.parametrize("columns", [[], ["body"]], ids=["records", "columns"])
def test_a_call_whose_replies_are_not_taken_is_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(call_limits, "STALL_S", 0.2)
    settings = {"brokerName": "broker-a", **LARGE_FILES}
    with served(tmp_path / "store", settings) as process, raw_channel(process) as raw:
        with open_broker(process.address, "rw") as broker:
            broker.create_topic("orders", queues=1)
            broker.append(outgoing(*[bytes(30_000)] * UNREAD))
        wanted = pb.Pull(topic="orders", broker_name="broker-a", end=UNREAD, columns=columns)
        call = RawCall(raw, f"/{SERVICE}/Pull", None, wanted.SerializeToString())

        wait_until(lambda: "event=stalled calls=1" in caplog.text, "a call that is given up")
        wait_until(lambda: process.server.limits.calls.held == 0, "the end of the call")
        with pytest.raises(grpc.RpcError) as ended:
            list(call.replies)
        assert ended.value.code() is grpc.StatusCode.CANCELLED
        call.end()
    assert "event=bug" not in caplog.text


@pytest.mark.parametrize("path", [f"/{SERVICE}/Topics", f"/{HEALTH_SERVICE}/Check"])
def test_a_call_whose_only_reply_is_not_taken_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(call_limits, "STALL_S", 0.1)
    monkeypatch.setattr(health, "_STALL_S", 0.1)
    monkeypatch.setattr(server, "IDLE_MS", 200)
    settings = {"grpcMaxConnections": "1"}
    with served(tmp_path / "store", settings) as process:
        with call_without_window(process, path, None, b"") as connection:
            while connection.recv(1 << 16):
                pass  # until the server closes it, as it has no call any more

        wait_until(lambda: process.server.limits.calls.held == 0, "a place given back")
        with open_broker(process.address) as broker:
            assert broker.topics() == []
    assert "event=stalled calls=1" in caplog.text


def test_a_reader_that_pauses_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(call_limits, "STALL_S", 0.2)
    with (
        served(tmp_path / "store", LARGE_FILES) as process,
        open_broker(process.address, "rw") as broker,
    ):
        broker.create_topic("orders", queues=1)
        broker.append(outgoing(*[bytes(30_000)] * UNREAD))
        (wanted,) = (OffsetRange(q, *held) for q, held in broker.offsets("orders").items())
        frames = broker.pull(wanted, batch_bytes=300_000)
        taken = len(next(frames))
        wait_until(lambda: "event=stalled" in caplog.text, "the end of the call")

        assert taken < UNREAD
        assert taken + sum(map(len, frames)) == UNREAD


# Units


def test_slots_are_limited_for_each_user_and_for_all() -> None:
    slots = Slots("calls", per_user=2, total=3)
    slots.take(ONE)
    slots.take(ONE)
    with pytest.raises(UnavailableError, match="one has 2 of at most 2, all users 2 of 3"):
        slots.take(ONE)
    slots.take(OTHER)
    with pytest.raises(UnavailableError, match="other has 1 of at most 2, all users 3 of 3"):
        slots.take(OTHER)
    slots.give(ONE)
    slots.take(OTHER)
    for user in (ONE, OTHER, OTHER):
        slots.give(user)

    assert slots.held == 0
    assert slots._by_user == {}


@pytest.mark.parametrize("most", range(1, 40))
def test_limits_leave_threads_to_calls_that_do_not_wait(most: int) -> None:
    limits = CallLimits(most)

    assert 1 <= limits.waiting._per_user <= limits.waiting._total <= max(1, most // 2)
    assert limits.waiting._per_user <= max(1, most // 4)
    assert limits.calls._total == most
    assert limits.calls._per_user < most or most == 1


def test_without_credentials_all_callers_share_the_limit_of_all() -> None:
    slots = Slots("calls", per_user=1, total=3)
    for _ in range(3):
        slots.take(ANYONE)

    with pytest.raises(UnavailableError):
        slots.take(ANYONE)


def test_only_calls_that_waited_too_long_are_ended() -> None:
    now = [0.0]
    watch = StallWatch(10.0, monotonic=lambda: now[0])
    ended: list[str] = []
    with watch.watching("one", lambda: ended.append("first")):
        now[0] = 5.0
        with watch.watching("one", lambda: ended.append("second")):
            now[0] = 9.9
            assert watch.look() == 0
            now[0] = 10.0
            assert watch.look() == 1
            assert watch.look() == 0
        now[0] = 30.0
        assert watch.look() == 0
    assert ended == ["first"]


def test_only_calls_without_a_right_are_ended_before_their_time() -> None:
    watch = StallWatch(10.0, monotonic=lambda: 0.0)
    ended: list[str] = []

    def refuse() -> None:
        raise AuthenticationError("gone")

    with (
        watch.watching("one", lambda: ended.append("none asked")),
        watch.watching("one", lambda: ended.append("removed"), refuse),
        watch.watching("one", lambda: ended.append("permitted"), lambda: None),
    ):
        assert watch.look() == 0
        assert watch.look() == 0
    assert ended == ["removed"]


def test_the_oldest_call_of_the_user_who_has_most_is_ended_for_others() -> None:
    ended: list[str] = []
    watch = StallWatch(10.0, monotonic=lambda: 0.0)
    for name, user in (("a", "one"), ("b", "other"), ("c", "other"), ("d", "other"), ("e", "one")):
        watch.watch(user, partial(ended.append, name))
    for _ in range(6):
        watch.end_oldest()

    assert ended == ["b", "a", "c", "d", "e"]
    assert watch.waiting == 0


def test_calls_are_ended_for_others_only_near_the_end_of_places() -> None:
    ended: list[str] = []
    limits = CallLimits(16)
    limits.stalls.watch("one", lambda: ended.append("silent"))
    for _ in range(12):
        limits.take(ONE)
    limits.take(OTHER)
    limits.take(OTHER)
    assert ended == []
    limits.take(OTHER)

    assert ended == ["silent"]


def test_a_large_reply_has_time_by_its_size() -> None:
    now, ended = [0.0], []
    watch = StallWatch(10.0, monotonic=lambda: now[0])
    watch.watch("one", lambda: ended.append("small"))
    watch.watch("one", lambda: ended.append("large"), more_s=20.0)
    now[0] = 29.0
    assert watch.look() == 1
    now[0] = 30.0
    assert watch.look() == 1

    assert ended == ["small", "large"]


def test_slots_are_given_back_by_threads_that_fail() -> None:
    slots = Slots("calls", per_user=50, total=50)

    def fail() -> None:
        with pytest.raises(RuntimeError), slots.hold(ONE):
            raise RuntimeError

    threads = [threading.Thread(target=fail) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert slots.held == 0
