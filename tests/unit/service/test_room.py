"""Room for requests: held by what goes on, shared between users, and given back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from random import Random

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import open_broker
from broker_core.errors import AuthenticationError, RequestError, UnavailableError
from broker_core.service import call_limits
from broker_core.service.auth import credentials
from broker_core.service.auth.user_rights import ANYONE, UserIdentity
from broker_core.service.broker_pool import BrokerPool
from broker_core.service.call_limits import STALL_S, Slots
from broker_core.service.core import rpc
from broker_core.service.core.write import PACE_BYTES_S, join_chunks
from broker_core.service.group_commit import GroupCommit
from broker_core.service.main import BrokerProcess
from broker_core.service.room import Claim, Room
from broker_core.store.settings import StoreSettings
from broker_core.wire.core.frames import Chunk, pack_records, unpack
from broker_core.wire.core.methods import SERVICE
from tests.contract.test_messages import outgoing
from tests.kit.raw_calls import (
    RULES,
    RawCall,
    first_chunk,
    raw_channel,
    wait_until,
    write_credentials,
)
from tests.kit.served import served

ROOM = 1 << 20
METHODS = ("AppendChunks", "PrepareChunks")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "grpcCredentialsFile": str(write_credentials(tmp_path / "credentials.json")),
        "grpcMaxInFlightBytes": str(ROOM),
        "grpcMaxAppendBytes": str(ROOM // 2),
    }
    with served(tmp_path / "store", settings) as process:
        with open_broker(process.address, "rw", token="admin.hush") as broker:
            for topic in ("orders", "mal"):
                broker.create_topic(topic, queues=1)
        yield process


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("user", [None, "norule", "reader"])
def test_rights_are_asked_before_room_is_taken(
    guarded: BrokerProcess, user: str | None, method: str
) -> None:
    with raw_channel(guarded) as raw:
        call = RawCall(raw, f"/{SERVICE}/{method}", user, first_chunk(method, ROOM // 2))

        assert call.replies.code() in (
            grpc.StatusCode.UNAUTHENTICATED,
            grpc.StatusCode.PERMISSION_DENIED,
        )
        assert guarded.server.group_commit.held_bytes == 0
        call.end()


@pytest.mark.parametrize("method", METHODS)
def test_one_user_can_not_hold_all_room(
    guarded: BrokerProcess, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    commit = guarded.server.group_commit
    with raw_channel(guarded) as raw:
        chunk = first_chunk(method, ROOM // 2)
        calls = [RawCall(raw, f"/{SERVICE}/{method}", "stranger", chunk) for _ in range(4)]
        wait_until(lambda: guarded.server.limits.waiting.held == 3, "calls that wait for room")
        # What was announced keeps the user's other calls out, and holds nothing.
        assert commit.held_bytes < 1000
        with open_broker(guarded.address, "rw", retry_ms=0, token="owner.hush") as owner:
            owner.append(outgoing(b"x" * 1000))

        for call in calls:
            call.end()
        wait_until(lambda: commit.held_bytes == 0, "room given back")
    wait_until(lambda: guarded.server.limits.calls.held == 0, "the end of the calls")
    # What a client gives up is no bug of the broker's.
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("method", METHODS)
def test_a_request_that_does_not_go_on_loses_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(call_limits, "STALL_S", 0.1)
    settings = {"grpcMaxInFlightBytes": str(ROOM), "grpcMaxAppendBytes": str(ROOM)}
    with served(tmp_path / "store", settings) as process, raw_channel(process) as raw:
        call = RawCall(raw, f"/{SERVICE}/{method}", None, first_chunk(method, ROOM))

        assert call.replies.code() is grpc.StatusCode.CANCELLED
        wait_until(lambda: process.server.group_commit.held_bytes == 0, "room given back")
        call.end()
    assert "event=bug" not in caplog.text


@pytest.mark.parametrize("method", METHODS)
def test_a_removed_user_does_not_wait_for_room_any_longer(
    guarded: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(rpc, "RECHECK_S", 0.0)
    monkeypatch.setattr(credentials, "_LOOK_AGAIN_S", 0.0)
    with raw_channel(guarded) as raw:
        chunk = first_chunk(method, ROOM // 2)
        calls = [RawCall(raw, f"/{SERVICE}/{method}", "stranger", chunk) for _ in range(3)]
        wait_until(lambda: guarded.server.limits.waiting.held == 2, "calls that wait for room")
        write_credentials(tmp_path / "credentials.json", {**RULES, "stranger": []})

        # The one that has room is ended too: its next chunk is waited for without a right.
        wait_until(lambda: all(call.is_over for call in calls), "the end of all")
        ends = sorted(call.replies.code().name for call in calls)
        assert ends == ["CANCELLED", "PERMISSION_DENIED", "PERMISSION_DENIED"]
        for call in calls:
            call.end()


# Units


class Sender:
    """A call of a user that waits for room, as far as room is concerned."""

    is_active = True

    def __init__(self, name: str, slots: Slots | None = None) -> None:
        self.identity = UserIdentity(name) if name else ANYONE
        self._slots = slots or Slots("calls", 100, 100)
        self.is_removed = False

    def require_still(self) -> None:
        if self.is_removed:
            raise AuthenticationError("gone")

    def waiting(self) -> AbstractContextManager[None]:
        return self._slots.hold(self.identity)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPool]:
    opened = BrokerPool.open(tmp_path_factory.mktemp("s") / "store", StoreSettings(), create=True)
    yield opened
    opened.close()


@given(
    st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), st.integers(1, 120)), max_size=30)
)
def test_room_is_never_overdrawn_and_shared_between_users(
    pool: BrokerPool, asked: list[tuple[str, int]]
) -> None:
    """Requests in any order: all of them within the room, a user's several within half of it."""
    commit = GroupCommit(pool, max_bytes=100, monotonic=lambda: 0.0)
    held: dict[str, list[int]] = {}
    with ExitStack() as stack:
        for name, size in asked:
            own = held.setdefault(name, [])
            total = sum(sum(each) for each in held.values())
            fits = (not total or total + size <= 100) and (not own or sum(own) + size <= 50)
            if fits:
                stack.enter_context(commit.room(size, 0.0, Sender(name)))
                own.append(size)
            else:
                with pytest.raises(UnavailableError), commit.room(size, 0.0, Sender(name)):
                    pass
            assert commit.held_bytes == sum(sum(each) for each in held.values())
    assert commit.held_bytes == 0
    assert commit._room._claims == {}


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(["one", "two", ""]), st.integers(1, 60)), max_size=8),
    st.randoms(use_true_random=False),
)
def test_requests_that_come_in_parts_all_get_here(
    asked: list[tuple[str, int]], random: Random
) -> None:
    """Parts come in any order: one request can always go on, and all hold a bounded room."""
    room = Room(100, monotonic=lambda: 0.0)
    with ExitStack() as stack:
        coming = []
        for name, size in asked:
            open_claim = ExitStack()
            with suppress(UnavailableError):
                claim = open_claim.enter_context(
                    room.claim(size, 0.0, Sender(name), is_coming=True)
                )
                coming.append((claim, open_claim))
                stack.push(open_claim)
        while coming:
            random.shuffle(coming)
            gone_on = next((each for each in coming if _could_take(each[0])), None)
            assert gone_on is not None, "none of them can go on"
            assert room.held_bytes <= 100 + max(each.size_bytes for each, _ in coming)
            claim, open_claim = gone_on
            if claim.held_bytes == claim.size_bytes:
                open_claim.close()
                coming.remove(gone_on)
    assert room.held_bytes == 0


def _could_take(claim: Claim) -> bool:
    with suppress(UnavailableError):
        claim.take(min(5, claim.size_bytes - claim.held_bytes))
        return True
    return False


def test_what_was_announced_keeps_nobody_else_out() -> None:
    room = Room(100, monotonic=lambda: 0.0)
    with ExitStack() as stack:
        for name in ("one", "two", "three"):
            stack.enter_context(room.claim(50, 0.0, Sender(name), is_coming=True)).take(1)

        with room.claim(97, 0.0, Sender("four")):
            pass


def test_requests_that_come_leave_a_quarter_to_those_that_are_here() -> None:
    room = Room(100, monotonic=lambda: 0.0)
    with ExitStack() as stack:
        for name in ("one", "two", "three"):
            stack.enter_context(room.claim(50, 0.0, Sender(name), is_coming=True)).take(50)
        assert room.held_bytes == 150

        stack.enter_context(room.claim(25, 0.0, Sender("four")))
        with pytest.raises(UnavailableError), room.claim(1, 0.0, Sender("five")):
            pass
        coming = room.claim(50, 0.0, Sender("five"), is_coming=True)
        with coming as claim, pytest.raises(UnavailableError):
            claim.take(1)


def test_a_users_large_request_is_not_passed_by_later_ones() -> None:
    room, slots = Room(100), Slots("calls that wait", 9, 9)
    one = Sender("one", slots)
    got_it = threading.Event()

    def wait() -> None:
        with room.claim(50, None, one):
            got_it.set()

    with room.claim(10, None, one):
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: slots.held == 1, "a call that waits")
        with pytest.raises(UnavailableError), room.claim(10, 0.0, one):
            pass
    thread.join(30)
    assert got_it.is_set()


def test_requests_of_no_bytes_hold_nothing(pool: BrokerPool) -> None:
    commit = GroupCommit(pool, 1000)

    with commit.room(0, None), commit.room(10, None), commit.room(0, None):
        assert commit.held_bytes == 10
    with commit.room(0, None), commit.room(0, None):
        pass

    assert commit.held_bytes == 0


def test_without_users_all_room_is_everybodys(pool: BrokerPool) -> None:
    commit = GroupCommit(pool, max_bytes=100, monotonic=lambda: 0.0)

    with commit.room(50, 0.0, Sender("")), commit.room(50, 0.0, Sender("")):
        assert commit.held_bytes == 100


def test_calls_that_wait_for_room_have_a_limit(pool: BrokerPool) -> None:
    commit, slots = GroupCommit(pool, max_bytes=100), Slots("calls that wait", 1, 1)
    first = Sender("one", slots)
    got_it = threading.Event()

    def wait() -> None:
        with commit.room(60, None, first):
            got_it.set()

    with commit.room(60, None, first):
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: slots.held == 1, "a call that waits")
        refused = pytest.raises(UnavailableError, match="Too many calls that wait")
        with refused, commit.room(60, None, first):
            pass
        assert not got_it.is_set()
    thread.join(30)
    assert got_it.is_set()
    assert slots.held == 0


def test_a_call_that_its_client_gave_up_stops_waiting_for_room(pool: BrokerPool) -> None:
    commit = GroupCommit(pool, max_bytes=100)
    gone = Sender("one")
    gone.is_active = False

    with (
        commit.room(60, None, Sender("two")),
        pytest.raises(UnavailableError),
        commit.room(60, None, gone),
    ):
        pass


def test_room_that_comes_after_the_right_is_gone_is_not_taken(pool: BrokerPool) -> None:
    commit = GroupCommit(pool, max_bytes=100)
    slots = Slots("calls that wait", 1, 1)
    removed = Sender("one", slots)
    ends: list[str] = []

    def wait() -> None:
        try:
            with commit.room(60, None, removed):
                ends.append("room")
        except AuthenticationError:
            ends.append("refused")

    with commit.room(60, None, Sender("two")):
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: slots.held == 1, "a call that waits")
        removed.is_removed = True
    thread.join(30)

    assert ends == ["refused"]
    assert commit.held_bytes == slots.held == 0


def chunk(size: int, *, has_more: bool = True) -> bytes:
    sizes = np.array([size] if size else [], np.int32)
    return pack_records(b"", sizes, memoryview(bytes(size)), has_more=has_more)


@pytest.mark.parametrize("behind_s", [-100.0, 0.0, 0.9 * STALL_S, 1.1 * STALL_S, 1e6])
def test_a_request_has_to_come_at_a_pace(behind_s: float) -> None:
    """The last chunk comes so many seconds later than the pace asks for; 10 s are granted."""
    now = [0.0]
    size, count = 1 << 20, 40
    total = size * count

    def rest() -> Iterator[bytes]:
        for number in range(2, count + 1):
            now[0] = max(0.0, number * size / PACE_BYTES_S + (number == count) * behind_s)
            yield chunk(size, has_more=number < count)

    first: Chunk = unpack(chunk(size))
    if behind_s < STALL_S:
        assert len(join_chunks(first, rest(), total, None, lambda: now[0]).data) == total
    else:
        with pytest.raises(UnavailableError, match="too slow"):
            join_chunks(first, rest(), total, None, lambda: now[0])


def test_bytes_that_came_fast_do_not_save_up_time() -> None:
    """With most of it here a request would otherwise hold its room for minutes."""
    now = [0.0]
    size = 40 << 20

    def rest() -> Iterator[bytes]:
        yield chunk(size)
        now[0] = 1.1 * STALL_S
        yield chunk(1)

    with pytest.raises(UnavailableError, match="too slow"):
        join_chunks(unpack(chunk(1)), rest(), 2 * size, None, lambda: now[0])


def test_time_that_a_request_waits_for_room_is_not_its_senders() -> None:
    now = [0.0]

    class Waits(Claim):
        def take(self, size_bytes: int) -> None:
            now[0] += 10 * STALL_S

    claim = Waits(Room(1), 2000, True, "", None, None)
    parts = [chunk(1000), chunk(1000, has_more=False)]

    joined = join_chunks(unpack(parts[0]), parts[1:], 2000, None, lambda: now[0], claim)

    assert len(joined) == 2


@pytest.mark.parametrize("size", [0, 1, 91])
def test_a_request_of_tiny_chunks_is_refused(size: int) -> None:
    """Each chunk takes memory beside its bytes."""
    taken = 0

    def rest() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield chunk(size)

    with pytest.raises(RequestError, match="chunks of at most 514"):
        join_chunks(unpack(chunk(size)), rest(), ROOM, None, lambda: 0.0)
    assert taken <= 514


def test_a_request_whose_records_are_smaller_than_what_counts_them_is_refused() -> None:
    """Each has a size and an offset beside its byte, which no room is counted for."""
    sizes = np.ones(10_000, np.int32)
    request = pack_records(b"", sizes, memoryview(bytes(10_000)))

    with pytest.raises(RequestError, match="has 10000 records in 10000 bytes"):
        join_chunks(unpack(request), (), 10_000, None)
