"""One connection: answers find their questions, and a broken peer costs one clear error."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.clients.cluster.net.connection import RemotingConnection, RemotingConnections
from broker_core.clients.cluster.settings import ClusterSettings
from broker_core.errors import UnavailableError
from broker_core.wire.remoting.acl import SigningCredentials
from broker_core.wire.remoting.command import Command, CommandFlag, Request
from broker_core.wire.remoting.frame import HeaderForm, RemotingProtocolError
from tests.unit.clients.cluster.peer import Answer, Peer, answer

SETTINGS = ClusterSettings(request_timeout_ms=2_000, max_frame_bytes=1 << 16)
SOON = 50
"""Milliseconds for requests that are meant to go unanswered."""


def echo(request: Command) -> Iterable[Answer]:
    return [answer(request, ext={"said": request.ext["say"]})]


def say(text: object) -> Request:
    return Request(30, {"say": str(text)})


@pytest.fixture
def echoing() -> Iterator[Peer]:
    with Peer(echo) as peer:
        yield peer


def test_answer_comes_back(echoing: Peer) -> None:
    found = RemotingConnection(echoing.endpoint, SETTINGS).call(say("hello"))

    assert found.ext == {"said": "hello"}


@pytest.mark.parametrize("form", HeaderForm)
def test_form_of_the_answer_is_the_servers_choice(form: HeaderForm) -> None:
    with Peer(echo, form) as peer:
        found = RemotingConnection(peer.endpoint, SETTINGS).call(say("hello"))

    assert found.ext == {"said": "hello"}


def test_answers_in_any_order_find_their_requests() -> None:
    waiting: list[Command] = []

    def backwards(request: Command) -> Iterable[Answer]:
        waiting.append(request)
        if len(waiting) < 20:
            return []
        return [answer(each, ext={"said": each.ext["say"]}) for each in reversed(waiting)]

    with Peer(backwards) as peer:
        found = RemotingConnection(peer.endpoint, SETTINGS).call_all(
            say(number) for number in range(20)
        )

    assert [command.ext["said"] for command in found] == [str(number) for number in range(20)]


def test_threads_share_a_connection(echoing: Peer) -> None:
    connection = RemotingConnection(echoing.endpoint, SETTINGS)
    found: dict[str, str] = {}

    def talk(name: int) -> None:
        for number in range(50):
            text = f"{name}-{number}"
            found[text] = connection.call(say(text)).ext["said"]

    threads = [threading.Thread(target=talk, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 200
    assert all(asked == said for asked, said in found.items())
    assert echoing.connections == 1


def test_unanswered_request_fails_alone() -> None:
    def deaf_to_one(request: Command) -> Iterable[Answer]:
        return [] if request.ext["say"] == "nothing" else echo(request)

    with Peer(deaf_to_one) as peer:
        connection = RemotingConnection(peer.endpoint, SETTINGS)
        with pytest.raises(UnavailableError, match="did not answer GET_MAX_OFFSET in time"):
            connection.call(say("nothing"), SOON)
        found = connection.call(say("hello"))

    assert found.ext["said"] == "hello"


def test_late_answer_is_dropped() -> None:
    late: list[Command] = []

    def slow(request: Command) -> Iterable[Answer]:
        if not late:
            late.append(request)
            return []
        return [answer(late[0], ext={"said": "too late"}), *echo(request)]

    with Peer(slow) as peer:
        connection = RemotingConnection(peer.endpoint, SETTINGS)
        with pytest.raises(UnavailableError):
            connection.call(say("first"), SOON)
        found = connection.call(say("second"))

    assert found.ext["said"] == "second"


def test_answer_that_lay_there_in_time_is_taken_late(echoing: Peer) -> None:
    connection = RemotingConnection(echoing.endpoint, SETTINGS)
    pending = connection.start(say("hello"), SOON)
    _await(lambda: pending.deadline.has_passed and echoing.answered == 1)

    found = connection.finish(pending)

    assert found.ext["said"] == "hello"


@pytest.mark.parametrize("opaque", [0, -1, 2**31 - 1])
def test_answer_to_nobodys_question_is_dropped(opaque: int) -> None:
    def confused(request: Command) -> Iterable[Answer]:
        return [answer(request)._replace(opaque=opaque), *echo(request)]

    with Peer(confused) as peer:
        found = RemotingConnection(peer.endpoint, SETTINGS).call(say("hello"))

    assert found.ext["said"] == "hello"


def test_requests_of_the_server_are_no_answers() -> None:
    def curious(request: Command) -> Iterable[Answer]:
        return [Command(40, request.opaque, CommandFlag.ONEWAY, {}, b""), *echo(request)]

    with Peer(curious) as peer:
        found = RemotingConnection(peer.endpoint, SETTINGS).call(say("hello"))

    assert found.ext["said"] == "hello"


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "1213486160 bytes", id="http"),
        pytest.param(struct.pack(">iI", 2**31 - 1, 0), "2147483647 bytes", id="huge"),
        pytest.param(struct.pack(">iI", -5, 0), "-5 bytes", id="negative"),
        pytest.param(struct.pack(">iI", 20, 0xFFFFFF), "header of 16777215", id="endless header"),
        pytest.param(struct.pack(">iI", 12, 8) + b"notajson", "can't be read", id="no JSON"),
    ],
)
def test_broken_peer_is_one_clear_error_for_all_in_flight(sent: bytes, complaint: str) -> None:
    with Peer(lambda _: [sent]) as peer:
        connection = RemotingConnection(peer.endpoint, SETTINGS)
        waiting = connection.start(say("first"))
        with pytest.raises(RemotingProtocolError, match=complaint) as caught:
            connection.call(say("second"))

    assert not caught.value.retryable
    assert str(peer.endpoint) in str(caught.value)
    assert waiting.error is caught.value
    assert not connection.is_usable


@given(st.binary(min_size=1, max_size=300))
@settings(max_examples=50)
def test_any_bytes_of_a_peer_end_in_an_answer_or_a_known_error(noise: bytes) -> None:
    with Peer(lambda request: [noise, *echo(request), None]) as peer:
        connection = RemotingConnection(peer.endpoint, replace(SETTINGS, request_timeout_ms=500))
        try:
            found = connection.call(say("hello"))
        except UnavailableError as error:
            told = str(error)
        else:
            told = f"{peer.endpoint} answered {found.code}"
        finally:
            connection.close()

    assert str(peer.endpoint) in told


def test_hanging_up_fails_what_is_in_flight() -> None:
    with Peer(lambda _: [None]) as peer:
        connection = RemotingConnection(peer.endpoint, SETTINGS)
        with pytest.raises(UnavailableError, match="was lost"):
            connection.call(say("hello"))

    assert not connection.is_usable


def test_nobody_there_is_unavailable() -> None:
    with Peer(echo) as peer:
        nobody = peer.endpoint

    with pytest.raises(UnavailableError, match=f"{nobody} can't be reached"):
        RemotingConnection(nobody, SETTINGS)


def test_idle_connection_that_was_closed_is_replaced(echoing: Peer) -> None:
    connections = RemotingConnections(SETTINGS)
    first = connections.to(echoing.endpoint)
    first.call(say("hello"))
    echoing.hang_up()
    _await(lambda: not first.is_usable)

    found = connections.call(echoing.endpoint, say("again"))

    assert found.ext["said"] == "again"
    assert echoing.connections == 2


def test_one_connection_a_server_is_kept(echoing: Peer) -> None:
    connections = RemotingConnections(SETTINGS)

    assert connections.to(echoing.endpoint) is connections.to(echoing.endpoint)


def test_closed_connections_dial_again(echoing: Peer) -> None:
    connections = RemotingConnections(SETTINGS)
    connections.call(echoing.endpoint, say("hello"))
    connections.close()

    assert connections.call(echoing.endpoint, say("again")).ext["said"] == "again"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_makes_its_own_connection(echoing: Peer) -> None:
    connections = RemotingConnections(SETTINGS)
    parents = connections.to(echoing.endpoint)
    read_end, write_end = os.pipe()

    child = os.fork()
    if child == 0:
        found = b"no"
        with open(write_end, "wb") as pipe:  # noqa: PTH123  # a descriptor has no path
            try:
                theirs = connections.to(echoing.endpoint)
                said = theirs.call(say("child")).ext["said"]
                found = b"yes" if said == "child" and theirs is not parents else b"no"
                connections.close()
            finally:
                pipe.write(found)
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as pipe:  # noqa: PTH123  # a descriptor has no path
        verdict = pipe.read()
    os.waitpid(child, 0)

    assert verdict == b"yes"
    assert parents.call(say("parent")).ext["said"] == "parent"


def test_every_request_is_signed(echoing: Peer) -> None:
    signing = replace(SETTINGS, credentials=SigningCredentials("ak", "sk"))
    connection = RemotingConnection(echoing.endpoint, signing)

    connection.call(Request(30, {"say": "T"}))

    (request,) = echoing.requests
    assert request.ext["AccessKey"] == "ak"
    assert (
        request.ext["Signature"]
        == SigningCredentials("ak", "sk").sign({"say": "T"}, b"")["Signature"]
    )


def test_request_larger_than_all_buffers_arrives(echoing: Peer) -> None:
    body = bytes(8 << 20)

    RemotingConnection(echoing.endpoint, SETTINGS).call(Request(320, {"say": "x"}, body))

    assert len(echoing.requests[0].body) == len(body)


def test_opaque_wraps_around(echoing: Peer) -> None:
    connection = RemotingConnection(echoing.endpoint, SETTINGS)
    connection._opaque = 2**31 - 2

    found = connection.call_all([say("last"), say("first")])

    assert [command.opaque for command in found] == [2**31 - 1, 1]


def _await(condition: Callable[[], bool]) -> None:
    """Look at a condition until it holds; the test's own time limit is the end."""
    while not condition():
        threading.Event().wait(0.005)
